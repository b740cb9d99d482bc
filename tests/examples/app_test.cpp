// What every command does before its own work: how threads wait, and how many there are.
#include <gtest/gtest.h>

#include "core/parallel.h"
#include "tests/examples/program.h"
#include "tests/test_util.h"

namespace sinter {
namespace {

using test::Program;
using test::Result;
using test::times_in;

// libgomp says what it has read, each time a program begins.
TEST(App, ThreadsSpinBrieflyUnlessTheUserSaidOtherwise) {
  Program program;
  const std::vector<std::string> plain{
      "OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "OMP_DISPLAY_ENV=verbose"};
  program.environment = plain;  // a name alone takes the variable away
  const std::string begin = "OPENMP DISPLAY ENVIRONMENT BEGIN";
  for (const char* name : {"01_tensor", "mnist"}) {  // each tutorial is linked so
    program.name = name;
    const Result r = program.run(0, {"--version"});
    if (times_in(r.err, begin) == 0) GTEST_SKIP() << "this build has no libgomp";
    EXPECT_EQ(times_in(r.err, begin), 2) << "once restarted\n" << r.err;
    EXPECT_EQ(
        times_in(r.err, "GOMP_SPINCOUNT = '300'") + times_in(r.err, "GOMP_SPINCOUNT = '12000'"), 1)
        << r.err;
    EXPECT_EQ(r.out.starts_with("mnist "), program.name == "mnist") << r.out;
  }

  for (const char* said : {"OMP_WAIT_POLICY=active", "GOMP_SPINCOUNT=77"}) {
    program.environment = plain;
    program.environment.push_back(said);
    const Result as_said = program.run(0, {"--version"});
    EXPECT_EQ(times_in(as_said.err, begin), 1) << as_said.err;
    for (const char* ours : {"'300'", "'12000'"}) EXPECT_EQ(times_in(as_said.err, ours), 0);
  }
}

TEST(App, TheVersionTakesNoValue) {
  test::expect_facts(Program().run(2, {"--version=x"}).err, {"--version takes no value"});
}

TEST(App, MoreThreadsThanCoresAreSaid) {
  const Program program;
  const std::string cores = std::to_string(available_cores()),
                    more = std::to_string(available_cores() + 1);
  for (const auto& [threads, times] : {std::pair{cores, 0}, std::pair{more, 1}}) {
    const Result r = program.run(0, {"train", "--data", "synthetic", "--limit", "64", "--dry-run",
                                        "--hidden", "8", "--threads", threads});
    EXPECT_EQ(times_in(r.err, "threads " + more + " on " + cores + " core"), times) << r.err;
  }
}

}  // namespace
}  // namespace sinter
