// What a program of a user's own (own_job.cpp) gets of the frame: no row of its batch is a picture,
// and none of its targets a class.
#include <gtest/gtest.h>

#include <regex>

#include "tests/examples/program.h"

namespace sinter {
namespace {

using namespace test;

struct OwnJob : Program {
  OwnJob() { name = "own_job"; }
};

// 7 batches an epoch, the last of 4.
const Words kThreeEpochs{"train", "--epochs", "3", "--threads", "1", "--out", "r"};

TEST(OwnJob, TrainsAndTheMetricIsItsOwn) {
  const OwnJob program;
  const Result r = program.run(0, kThreeEpochs + Words{"--optimizer", "sgd", "--lr", "0.01"});
  expect_facts(r.err, {"data    waves: 164 rows, of which 24 val, 40 test", "epoch 1/3  loss ",
                          "  saved, best", "  val 0."});
  expect_facts(r.out, {"test    error 0.", "  loss ", "time    ", " of training, 21 steps"});
  EXPECT_TRUE(std::filesystem::exists(program.folder() / "r/best.safetensors"));
  const std::string events = text_of(program.folder() / "r/events.jsonl");
  EXPECT_EQ(times_in(events, "\"val_error\":"), 3) << events;
  // The smaller, the better: of a rate that moves nothing no epoch is better than the first.
  const OwnJob still;
  const Words slow = kThreeEpochs + Words{"--epochs", "5", "--lr", "0", "--patience", "2"};
  expect_facts(still.run(0, slow).err, {"val error has not fallen for 2 epochs, best "});
}

TEST(OwnJob, ProfilesItsRunAndMeetsATarget) {
  const OwnJob program;
  const Result r =
      program.run(0, kThreeEpochs + Words{"--mode", "fused", "--profile=table,json",
                                        "--profile-steps", "1:1:4", "--target", "100"});
  expect_facts(r.out, {"weight_grad_update", "target 100: reached"});
  EXPECT_TRUE(std::filesystem::exists(program.folder() / "r/profile.json"));
  expect_facts(program.run(7, kThreeEpochs + Words{"--force", "--target", "1e-9"}).err,
      {"train: target missed: test error ", ", --target 1e-09"});
  const nlohmann::json json = json_of(program, {"train", "--resume", "r", "--epochs", "4"}, 7);
  EXPECT_EQ(json["test"]["rows"], 40);
  EXPECT_GT(json["test"]["error"], 0);
  EXPECT_EQ(json["epochs"].size(), 4U);
  EXPECT_EQ(json["data"]["train"], 100);
}

TEST(OwnJob, IsRefusedWithoutRowsToTestOn) {
  const Result r = OwnJob().run(3, kThreeEpochs + Words{"--test-rows", "0"});
  expect_facts(r.err, {"error: data: no rows to test on: the set has none"});
  expect_facts(OwnJob().run(3, kThreeEpochs + Words{"--test-rows", "1"}).err,
      {"data: set test is {f32[1, 12] cpu, f32[100, 2] cpu}; wanted {x, target} with as many rows",
          "hint: make_sets() of the job"});
}

TEST(OwnJob, AScoreThatIsNaNIsSaidAndNeverTheBest) {
  const OwnJob program;
  const Result r = program.run(6, kThreeEpochs + Words{"--nan-score", "--target", "100"});
  expect_facts(r.err, {"warning: val error is nan: such an epoch is never the best",
                          "error: train: error is nan on the test set"});
  expect_facts(r.out, {"target 100: missed"});
  EXPECT_FALSE(std::filesystem::exists(program.folder() / "r/best.safetensors"));
}

TEST(OwnJob, WithoutPresetsHasNoSpeedrun) {
  expect_facts(OwnJob().run(2, {"speedrun"}).err,
      {"usage: speedrun trains a preset: own_job has none", "hint: presets() of its job has some"});
}

// Whose it is, and not that it is damaged.
TEST(OwnJob, AndAnotherProgramRefuseEachOthersCheckpoints) {
  const OwnJob program;
  Program mnist;
  program.run(0, kThreeEpochs);
  const std::string run = (program.folder() / "r").string();
  for (const Words& words : {Words{"predict", "--index", "0", "--from", run},
           Words{"eval", "--from", run}, Words{"train", "--resume", run}})
    expect_facts(mnist.run(4, words).err,
        {"checkpoint: not one of mnist: ", "; its sinter.config is another program's, or damaged: ",
            "unknown key: length under [train]", "hint: the program that wrote it reads it"});
}

// The last batch of an epoch is smaller: its first two steps are recorded and captured, and no
// samples. 16 others are.
TEST(OwnJob, StepsThatAreRecordedAreNotInTheProfile) {
  const OwnJob program;
  const Words profile{"--profile=table,json,trace", "--profile-steps", "1:1:16"};
  const Result r = program.run(0, kThreeEpochs + profile);
  expect_facts(r.out, {"CPU fused  step#2..19 (16 active, 1 warmup)",
                          "note: 2 steps left out, in which a shape of batch was recorded or"});
  const auto json = nlohmann::json::parse(text_of(program.folder() / "r/profile.json"));
  ASSERT_EQ(json["steps"].size(), 16U);
  for (const auto& step : json["steps"]) {
    EXPECT_EQ(step["launches"], json["steps"][0]["launches"]) << step;
    EXPECT_NE(step["number"], 6);
    EXPECT_NE(step["number"], 13);
  }
  // Of a run of which nothing else is left.
  expect_facts(program
                   .run(0, {"train", "--steps", "7", "--threads", "1", "--out", "s", "--profile",
                               "--profile-steps", "3:3:4"})
                   .err,
      {"profile none: 1 step left out, in which a shape of batch was recorded or captured"});
  // Its own trace is none of PyTorch's.
  expect_facts(program.run(3, {"diff", "r/profile.trace.json.gz", "r/profile.json"}).err,
      {"profile: a trace of our own: ",
          "hint: a profile is the .json file that such a run writes"});
}

// ^C after the first step, within an epoch, at its end and at the last step; then to the bit.
TEST(OwnJob, GoesOnToTheBit) {
  for (const char* mode : {"eager", "fused"}) {
    const OwnJob straight, stopped;
    Words words = kThreeEpochs + Words{"--mode", mode, "--schedule", "cosine", "--save-steps", "5"};
    straight.run(0, words);
    for (const char* step : {"1", "4", "7", "21"}) {
      const Result r = stopped.run(130, words + Words{"--signal-in", step});
      expect_facts(
          r.err, {str("interrupted after step ", step), "own_job train --resume r goes on"});
      words = {"train", "--resume"};
    }
    stopped.run(0, words);
    for (const char* file : {"last.safetensors", "model.safetensors", "best.safetensors",
             "config.toml", "events.jsonl"}) {
      const std::regex seconds("\"seconds\":[^}]*");
      const auto untimed = [&](const Program& p) {
        const std::string text = text_of(p.folder() / "r" / file);
        EXPECT_FALSE(text.empty()) << file;
        return std::string_view(file) == "events.jsonl" ? std::regex_replace(text, seconds, "")
                                                        : text;
      };
      EXPECT_TRUE(untimed(straight) == untimed(stopped)) << mode << " " << file;
    }
  }
  // What it is trained on must be the same, the weight of a loss may be another.
  const OwnJob program;
  program.run(130, kThreeEpochs + Words{"--signal-in", "3"});
  expect_facts(program.run(4, {"train", "--resume", "r", "--length", "5"}).err,
      {"cannot resume with another --length: ", " has 12, asked 5"});
  expect_facts(program.run(0, {"train", "--resume", "r", "--second", "1"}).err,
      {"the bits of an undisturbed one: --second was 2, now 1"});
}

TEST(OwnJob, ComparesItsStepAndProfilesIt) {
  const OwnJob program;
  const Words small{"--threads", "1", "--steps", "2", "--rounds", "2", "--length", "7"};
  const Result r = program.run(0,
      Words{"compare", "--profile=table,json", "--expect", "row:weight_grad_update.launches==2"} +
          small);
  expect_facts(r.out, {"compare waves of 7 numbers   batch 16   f32   adam   cpu, 1 thread",
                          "CPU eager", "CPU fused", "parity   ", "weight_grad_update x2"});
  for (const char* file : {"waves_b16_f32_cpu_eager.json", "waves_b16_f32_cpu_fused.json"})
    expect_facts(program.run(0, {"diff", file, file}).out, {"waves of 7 numbers, adam"});
  const nlohmann::json json = json_of(program, Words{"compare", "--optimizer", "sgd"} + small);
  EXPECT_EQ(json["model"], "waves of 7 numbers");
  EXPECT_LE(json["parity"]["gradients"], 1e-5);
  expect_facts(program.run(0, Words{"compare", "--blame"} + small).out, {"none of "});
}

TEST(OwnJob, InspectsItsStep) {
  const OwnJob program;
  expect_facts(program.run(0, {"inspect", "--text", "--batch-size", "3", "--threads", "1"}).out,
      {"waves of 12 numbers   f32   batch 3   adam"});
  program.run(0, {"inspect", "--threads", "1"});
  EXPECT_TRUE(std::filesystem::exists(program.folder() / "step.html"));
  // Hints name the program that runs, and none that is not there.
  expect_facts(program.run(2, {"diff", "a"}).err, {"hint: own_job diff A.json B.json"});
  expect_facts(program.run(2, {"compare", "--lr", "x"}).err, {"usage: --lr is not a number: x"});
}

}  // namespace
}  // namespace sinter
