// --expect, --fail-on and the table's flags: their grammar, what they check, and what they do to a
// program's exit status.
#include "cli/step.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "tests/examples/program.h"
#include "tests/test_util.h"

namespace sinter::cli {
namespace {

using test::Program;
using test::Result;
using test::with;
using test::Words;

template <class F> std::optional<Error> error_of(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    return e;
  }
  return std::nullopt;
}

TEST(Expect, Grammar) {
  const std::vector<Expectation> all = parse_expectations(
      "launches==5, row:matmul(wgrad).launches>=2,eager.launches==25,speedup>1.5");
  ASSERT_EQ(all.size(), 4u);
  EXPECT_EQ(all[1].row, "matmul(wgrad)");
  EXPECT_EQ(all[1].key, "launches");
  EXPECT_EQ(all[1].relation, ">=");
  EXPECT_TRUE(all[2].eager);
  EXPECT_EQ(all[3].wanted, 1.5);
  EXPECT_EQ(parse_distrust("incomplete,distortion>5%,noise>2").at(1).percent, 5);
}

profiler::Report counted(std::vector<int64_t> launches) {
  profiler::Report r;
  r.rules = "all";
  for (const int64_t n : launches)
    r.steps.push_back({.number = int64_t(r.steps.size()),
        .round = 0,
        .t0 = 0,
        .t1 = 1,
        .allocs = 0,
        .launches = n});
  return r;
}

TEST(Expect, ChecksEveryStep) {
  const profiler::Report nine = counted({9, 9}), varying = counted({9, 10}), eager = counted({25});
  ViewFlags view;
  const auto checked = [&](const char* expect, const Measured& m) {
    view.expect = expect;
    return error_of([&] { check_view("compare", view, m); });
  };
  EXPECT_FALSE(checked("launches==9,allocs==0,eager.launches==25,row:none.launches==0",
      {.only = &nine, .eager = &eager}));
  EXPECT_EQ(checked("launches==10", {.only = &nine})->message(),
      "compare: --expect failed: launches==10; counted 9 (rules all)");
  EXPECT_EQ(checked("launches==10", {.only = &nine})->kind(), Error::Kind::check);
  EXPECT_EQ(checked("launches>=9", {.only = &varying})->message(),
      "compare: --expect failed: launches>=9; counted 9..10 (rules all)");
  EXPECT_EQ(checked("eager.launches==25", {.only = &nine})->kind(), Error::Kind::usage);

  profiler::Report hidden = counted({9});  // a library call may have run more
  hidden.unproved = 1;
  EXPECT_EQ(checked("launches==9", {.only = &hidden})->kind(), Error::Kind::untrusted);

  // A speed-up is the lower end of its interval, or not decided: that is 8, not 7.
  Measured timed{.only = &nine, .speedup = profiler::Estimate{2, 1.4, 3, true}};
  EXPECT_FALSE(checked("speedup>=1.4", timed));
  EXPECT_EQ(checked("speedup>=1.5", timed)->kind(), Error::Kind::check);
  EXPECT_EQ(checked("speedup>=1.5", {.only = &nine})->kind(), Error::Kind::untrusted);
  profiler::Report lost = counted({9});
  lost.incomplete = {"1 launches were not timed"};
  timed.only = &lost;
  EXPECT_EQ(checked("speedup>=1.4", timed)->kind(), Error::Kind::untrusted);
  EXPECT_FALSE(checked("launches==9", timed));  // counts are checked all the same
}

const Words kOne{"compare", "--threads", "1", "--rounds", "1", "--steps", "1", "--warmup", "0"};

// What is of the profile's tables alone is not passed over.
TEST(Profile, FlagsOfItsTablesNeedIt) {
  const Program program;
  for (const Words& flags : {Words{"--columns", "all"}, Words{"--columns", "p95"},
           Words{"--rows", "3"}, Words{"--sort", "flops"}, Words{"-o", "NAME"}}) {
    const Result r = program.run(2, with(kOne, flags));
    test::expect_facts(r.err, {" needs --profile: none is given"});
  }
  test::expect_facts(program.run(0, with(kOne, {"--columns", "memory"})).out, {"\nkept "});
}

TEST(FailOn, BeatsExpectations) {
  profiler::Report lost = counted({9});
  lost.incomplete = {"3 records dropped"};
  ViewFlags view;
  view.expect = "launches==8";
  const auto checked = [&](const char* conditions, const Measured& m) {
    view.fail_on = conditions;
    return error_of([&] { check_view("compare", view, m); });
  };
  const Error error = *checked("incomplete", {.only = &lost});
  EXPECT_EQ(error.kind(), Error::Kind::untrusted);
  EXPECT_EQ(error.message(),
      "compare: untrusted by --fail-on: incomplete; 3 records dropped; compare: --expect failed: "
      "launches==8; counted 9 (rules all)");
  view.expect.clear();
  EXPECT_FALSE(checked("distortion>5%,noise>2%", {.only = &lost, .distortion = 5.0, .noise = 2.0}));
  test::expect_facts(checked("distortion>5%", {.only = &lost, .distortion = -7.2})->message(),
      {"distortion>5%; it is -7.2 %"});
  test::expect_facts(
      checked("noise>2%", {.only = &lost, .noise = 2.01})->message(), {"noise>2%; it is 2.1 %"});
  test::expect_facts(checked("noise>2%", {.only = &lost})->message(), {"it was not measured"});
  EXPECT_FALSE(checked("throttle,roof", {.only = &lost}));
  profiler::Report card = counted({5}), eager = card;
  card.device = eager.device = Device{Device::Type::cuda, 0};
  test::expect_facts(checked("throttle", {.only = &card})->message(), {"the clock was not read"});
  card.sm_mhz = 1500;
  card.sm_standard_mhz = eager.sm_standard_mhz = 2000;
  eager.sm_mhz = 1499;
  EXPECT_FALSE(checked("throttle", {.only = &card}));
  const auto slow = checked("throttle", {.only = &card, .eager = &eager});
  ASSERT_TRUE(slow);
  EXPECT_EQ(slow->kind(), Error::Kind::untrusted);
  test::expect_facts(slow->message(), {"throttle; the SM clock was 1499 of 2000 MHz"});
}

TEST(Expect, DecidesTheExitStatus) {
  const Program program;
  Result r =
      program.run(0, with(kOne, {"--expect",
                                    "launches==9,eager.launches==25,row:linear_act.launches==2,"
                                    "allocs==0,eager.row:linear.calls==3"}));
  r = program.run(7, with(kOne, {"--expect", "launches==8"}));
  test::expect_facts(r.err, {"compare: --expect failed: launches==8; counted 9 (rules all)"});
  test::expect_facts(r.out, {"counted 9"});
  r = program.run(7, with(kOne, {"--expect", "row:linear_at.launches==2"}));
  test::expect_facts(r.err, {"row:linear_at.launches==2; counted 0 (rules all), no row has this "
                             "name; nearest is linear_act"});
  r = program.run(8, with(kOne, {"--expect", "launches==8,speedup>=1"}));
  r = program.run(with(kOne, {"--fail-on", "noise>0%"}));  // of one pair of rounds nobody knows
  EXPECT_EQ(r.status, 8);
  test::expect_facts(r.err, {"compare: untrusted by --fail-on: noise>0%; it was not measured"});
}

TEST(ProfileTable, ASignalInTheWindowPrintsTheTableSoFar) {
  const Program program;
  const Words train{"train", "--mode", "eager", "--limit", "200", "--epochs", "100000", "--hidden",
      "16", "--threads", "1", "--val", "0", "--profile", "--profile-steps", "0:0:100000", "--rows",
      "3"};
  const Result r = program.run(130, train, [&](pid_t child) {
    for (int i = 0; i < 12000 && !std::filesystem::exists(program.folder() / "runs"); ++i)
      usleep(10'000);
    for (int i = 0; i < 12000; ++i, usleep(10'000)) {  // until the first epoch is saved
      const auto runs = std::filesystem::directory_iterator(program.folder() / "runs");
      if (std::any_of(begin(runs), end(runs),
              [](const auto& run) { return exists(run.path() / "last.safetensors"); }))
        break;
    }
    kill(child, SIGINT);
  });
  test::expect_facts(r.out, {"CPU eager  step#0..", " of 100000 active"});
}

TEST(ProfileTable, TrainChecksItsWindowAndWhatIsExpected) {
  const Program program;
  const Words train{"train", "--mode", "eager", "--limit", "200", "--steps", "9", "--hidden", "16",
      "--threads", "1", "--val", "0", "--profile", "--profile-steps", "1:1:2:2"};
  Result r = program.run(0, with(train, {"--expect", "launches==17,row:linear.launches==2"}));
  test::expect_facts(r.out, {"(2 x 2 active, 1 warmup)"});
  r = program.run(7, with(train, {"--out", "b", "--expect", "launches==16"}));
  test::expect_facts(r.err, {"train: --expect failed: launches==16; counted 17 (eager)"});
}

TEST(Expect, OnTheEmulatorSimtCountsAreExact) {
  const Result r = Program().run(0,
      {"compare", "--data", "synthetic", "--batch-size", "8", "--hidden", "24,16", "--device",
          "simt", "--expect", "launches==2,eager.launches==25,api_calls==2,memcpy==0,allocs==0"});
}

// Four steps an epoch, so that the window holds five evaluations and as many saves.
// The plan of a replay holds the batch that the step draws, too.
TEST(ProfileTable, TheOpsOfAReplayTakeNoMemoryOfTheAllocator) {
  const Program program;
  const Result r = program.run(0,
      {"train", "--data", "synthetic", "--limit", "600", "--val", "0", "--batch", "20", "--hidden",
          "16", "--epochs", "1", "--threads", "1", "--profile", "--columns", "memory"});
  expect_facts(r.out, {"memory: allocated 0.0 = ops 0.0 + rest of step 0.0 kB", "arena: "});
}

TEST(ProfileTable, EvaluationAndSavingAreNoPartOfAStep) {
  const Program program;
  const Words train{"train", "--mode", "eager", "--data", "synthetic", "--limit", "256",
      "--batch-size", "64", "--hidden", "16", "--log-every", "3", "--threads", "1", "--epochs", "8",
      "--profile=table,json", "--expect", "launches==17"};
  const Result r = program.run(0, train);
  const auto profile =
      nlohmann::json::parse(test::text_of(program.folder() / "runs/last/profile.json"));
  for (const auto& row : profile["rows"]) {
    if (row["name"] == "linear") {
      EXPECT_EQ(row["calls"], 2 * 20);
    }
    EXPECT_NE(row["name"], "argmax");
  }
}

TEST(ProfileTable, OnTheEmulatorSimtTheBatchIsNotCountedForTheStepEither) {
  const Program program;
  for (const char* device : {"cpu", "simt"}) {
    const Result r =
        program.run(0, {"train", "--mode", "eager", "--data", "synthetic", "--device", device,
                           "--limit", "64", "--batch-size", "8", "--hidden", "8", "--threads", "1",
                           "--val", "0", "--steps", "6", "--profile=table,json", "--profile-steps",
                           "1:1:3", "--out", device, "--expect", "launches==17,api_calls==17"});
    const auto profile =
        nlohmann::json::parse(test::text_of(program.folder() / device / "profile.json"));
    int64_t gathers = 0;
    for (const auto& row : profile["rows"])
      gathers += row["kind"] == "data" ? row["launches"].get<int64_t>() : 0;
    EXPECT_EQ(gathers, 3) << device;
  }
}

}  // namespace
}  // namespace sinter::cli
