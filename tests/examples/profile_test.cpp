// --expect, --fail-on and the table's flags: their grammar, what they check, and what they do to a
// program's exit status.
#include "examples/cli/step.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "tests/examples/program.h"

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
  const std::pair<const char*, const char*> bad[] = {
      {"launchs==5", "unknown key: launchs; nearest is launches"},
      {"launches", "is not KEY RELATION NUMBER: launches"},
      {"launches=5", "unknown relation: = in launches=5"}, {"launches==x", "--expect launches"},
      {"launches==5,", "has an empty item"},
      {"row:linear==1", "what to count of the row is missing"},
      {"row:linear.speedup==1", "unknown key: speedup"}};
  for (const auto& [text, words] : bad) {
    const auto error = error_of([&] { parse_expectations(text); });
    ASSERT_TRUE(error) << text;
    EXPECT_EQ(error->kind(), Error::Kind::usage);
    EXPECT_NE(error->message().find(words), std::string::npos) << error->message();
  }
  EXPECT_EQ(parse_distrust("incomplete,distortion>5%,noise>2").at(1).percent, 5);
  for (const char* text : {"incomplet", "distortion", "incomplete>5%", "noise>x"})
    EXPECT_TRUE(error_of([&] { parse_distrust(text); })) << text;
}

profiler::Report counted(std::vector<int64_t> launches) {
  profiler::Report r;
  r.rules = "all";
  for (const int64_t n : launches)
    r.steps.push_back({.number = static_cast<int64_t>(r.steps.size()),
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
      "compare: --fail-on holds: incomplete; 3 records dropped; compare: --expect failed: "
      "launches==8; counted 9 (rules all)");
  view.expect.clear();
  EXPECT_FALSE(checked("distortion>5%,noise>2%", {.only = &lost, .distortion = 5.0, .noise = 2.0}));
  EXPECT_NE(checked("distortion>5%", {.only = &lost, .distortion = -7.2})
                ->message()
                .find("distortion>5%; it is -7.2 %"),
      std::string::npos);
  EXPECT_NE(checked("noise>2%", {.only = &lost})->message().find("it was not measured"),
      std::string::npos);
  EXPECT_FALSE(checked("throttle,roof", {.only = &lost}));
  profiler::Report card = counted({5}), eager = card;
  card.device = eager.device = Device{Device::Type::cuda, 0};
  EXPECT_NE(checked("throttle", {.only = &card})->message().find("the clock was not read"),
      std::string::npos);
  card.sm_mhz = 1500;
  card.sm_standard_mhz = eager.sm_standard_mhz = 2000;
  eager.sm_mhz = 1499;
  EXPECT_FALSE(checked("throttle", {.only = &card}));
  const auto slow = checked("throttle", {.only = &card, .eager = &eager});
  ASSERT_TRUE(slow);
  EXPECT_EQ(slow->kind(), Error::Kind::untrusted);
  EXPECT_NE(slow->message().find("throttle; the SM clock was 1499 of 2000 MHz"), std::string::npos)
      << slow->message();
}

const Words kOne{"compare", "--threads", "1", "--rounds", "1", "--steps", "1", "--warmup", "0"};

TEST(Expect, DecidesTheExitStatus) {
  const Program program;
  Result r = program.run(with(kOne, {"--expect",
                                        "launches==9,eager.launches==25,row:linear_act.launches==2,"
                                        "allocs==0,eager.row:linear.calls==3"}));
  EXPECT_EQ(r.status, 0) << r.err;
  r = program.run(with(kOne, {"--expect", "launches==8"}));
  EXPECT_EQ(r.status, 7);
  EXPECT_NE(
      r.err.find("compare: --expect failed: launches==8; counted 9 (rules all)"), std::string::npos)
      << r.err;
  EXPECT_NE(r.out.find("counted 9"), std::string::npos) << "the table is printed first";
  r = program.run(with(kOne, {"--expect", "launches==8,speedup>=1"}));
  EXPECT_EQ(r.status, 8);
  r = program.run(with(kOne, {"--fail-on", "noise>0%"}));  // of one pair of rounds nobody knows
  EXPECT_EQ(r.status, 8);
  EXPECT_NE(
      r.err.find("compare: --fail-on holds: noise>0%; it was not measured"), std::string::npos)
      << r.err;
  r = program.run(with(kOne, {"--sort", "self_cpu_time_totl"}));
  EXPECT_EQ(r.status, 2);
  EXPECT_NE(r.err.find("nearest is self_cpu_time_total"), std::string::npos) << r.err;
  EXPECT_EQ(program.run(with(kOne, {"--filter", "("})).status, 2);
  EXPECT_EQ(program.run(with(kOne, {"--expect", "launchs==8"})).status, 2);
}

TEST(ProfileTable, ASignalInTheWindowPrintsTheTableSoFar) {
  const Program program;
  const Words train{"train", "--limit", "200", "--epochs", "100000", "--hidden", "16", "--threads",
      "1", "--val", "0", "--profile", "--profile-steps", "0:0:100000", "--rows", "3"};
  const Result r = program.run(train, [&](pid_t child) {
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
  EXPECT_EQ(r.status, 130) << r.err;
  EXPECT_NE(r.out.find("CPU eager  step#0.."), std::string::npos) << r.out << r.err;
  EXPECT_NE(r.out.find(" of 100000 active"), std::string::npos) << r.out;
}

TEST(ProfileTable, FlagsOfATableNeedOne) {
  const Program program;
  const Result r = program.run({"train", "--limit", "100", "--expect", "launches==25"});
  EXPECT_EQ(r.status, 2);
  EXPECT_NE(r.err.find("usage: --expect needs --profile"), std::string::npos) << r.err;
}

TEST(ProfileTable, TrainChecksItsWindowAndGradesAGuess) {
  ASSERT_TRUE(std::freopen("/dev/null", "r", stdin));  // nobody answers
  const Program program;
  const Words train{"train", "--limit", "200", "--steps", "9", "--hidden", "16", "--threads", "1",
      "--val", "0", "--profile", "--profile-steps", "1:1:2:2"};
  Result r = program.run(with(train, {"--expect", "launches==17,row:linear.launches==2"}));
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_NE(r.out.find("(2 x 2 active, 1 warmup)"), std::string::npos) << r.out;
  r = program.run(with(train, {"--out", "b", "--guess", "--expect", "launches==16"}));
  EXPECT_EQ(r.status, 7);
  EXPECT_NE(r.out.find("how many launches has a step? you said nothing, it is 17: wrong"),
      std::string::npos)
      << r.out;
}

TEST(Expect, OnTheEmulatorSimtCountsAreExact) {
  const Program program;
  const Result r = program.run(
      {"compare", "--data", "synthetic", "--batch-size", "8", "--hidden", "24,16", "--device",
          "simt", "--expect", "launches==2,eager.launches==25,api_calls==2,memcpy==0,allocs==0"});
  EXPECT_EQ(r.status, 0) << r.err << r.out;
}

// Four steps an epoch, so that the window holds five evaluations and as many saves.
TEST(ProfileTable, EvaluationAndSavingAreNoPartOfAStep) {
  const Program program;
  const Words train{"train", "--data", "synthetic", "--limit", "256", "--batch-size", "64",
      "--hidden", "16", "--log-every", "3", "--threads", "1", "--epochs", "8",
      "--profile=table,json", "--expect", "launches==17"};
  const Result r = program.run(train);
  EXPECT_EQ(r.status, 0) << r.err;
  const auto profile =
      nlohmann::json::parse(Program::text(program.folder() / "runs/last/profile.json"));
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
    const Result r = program.run(
        {"train", "--data", "synthetic", "--device", device, "--limit", "64", "--batch-size", "8",
            "--hidden", "8", "--threads", "1", "--val", "0", "--steps", "6", "--profile=table,json",
            "--profile-steps", "1:1:3", "--out", device, "--expect", "launches==17,api_calls==17"});
    EXPECT_EQ(r.status, 0) << device << r.err;
    const auto profile =
        nlohmann::json::parse(Program::text(program.folder() / device / "profile.json"));
    int64_t gathers = 0;
    for (const auto& row : profile["rows"])
      gathers += row["kind"] == "data" ? row["launches"].get<int64_t>() : 0;
    EXPECT_EQ(gathers, 3) << device;
  }
}

}  // namespace
}  // namespace sinter::cli
