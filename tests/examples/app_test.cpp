// What every command does before its own work: its version, and how many threads there are.
#include <gtest/gtest.h>

#include "core/parallel.h"
#include "tests/examples/program.h"
#include "tests/test_util.h"

namespace sinter {
namespace {

using test::Program;
using test::Result;
using test::times_in;

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
