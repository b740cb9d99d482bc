// Commands and flags of `mnist` beyond the plain run, as a subprocess: data, doctor, geglu, accum,
// patience, NumPy files, presets, schedules in both modes, and odd surroundings: paths, folders in
// use, narrow terminals, closed streams.
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numbers>
#include <thread>

#include "capture/rules.h"
#include "data/idx.h"
#include "data/npy.h"
#include "nn/safetensors.h"
#include "tests/data/data_test_util.h"
#include "tests/examples/program.h"

namespace sinter::test {
namespace {

using nlohmann::json;

const Words kSmall{"train", "--limit", "500", "--hidden", "16", "--threads", "1", "--batch", "32",
    "--lr", "0.005"};

TEST(MnistExplain, KnowsEveryFusedOpByName) {
  const Program program;
  for (const capture::Rule& rule : capture::rules())
    EXPECT_NE(program.run({"explain", rule.name()}).out, "") << rule.name();
}

// The digits that train draws itself: the same model comes of them.
TEST(MnistData, WhatIsMadeTrains) {
  const Program program;
  program.run(0, {"data", "make", "digits", "--train", "900", "--test", "300"});
  const Words train{
      "train", "--val", "0", "--limit", "300", "--steps", "20", "--hidden", "16", "--threads", "1"};
  EXPECT_EQ(json_of(program, train + Words{"--data", "digits"})["test"],
      json_of(program, train + Words{"--data", "synthetic"})["test"]);
}

TEST(MnistDoctorSimt, SaysWhatIsReady) {
  const Program program;
  expect_facts(program.run(0, {"doctor", "--threads", "1"}).out,
      {"ok      version   sinter ", "build  ", "products  ", "ranks  ", "nccl  ", "roofs     cpu, ",
          "cuda   ", "ok      cpu       one step, against f64 none of ",
          "ok      simt      one step, against f64 none of ", "\nready: cpu, simt"});
  EXPECT_FALSE(exists(program.folder() / "runs"));
}

TEST(MnistDoctor, LooksIntoACheckpoint) {
  const Program program;
  program.run(0, kSmall + Words{"--steps", "3", "--out", "a"});
  const Result r = program.run(0, {"doctor", "a/model.safetensors"});
  expect_facts(r.out, {"ok      a/model.safetensors: 4 tensors, ", "crc32 agrees",
                          "model   mlp 784-16-10", "sinter.config, ", "0.weight", "f32[16, 784]"});
  EXPECT_EQ(json_of(program, {"doctor", "a/model.safetensors"})["tensors"].size(), 4u);
  std::filesystem::resize_file(program.folder() / "a/model.safetensors", 20000);
  EXPECT_EQ(program.run(4, {"doctor", "a/model.safetensors"}).out, "");
}

TEST(MnistModels, GegluTrainsSavesAndReads) {
  const Program program;
  const Words train{"train", "--model", "geglu", "--limit", "1000", "--hidden", "32", "--threads",
      "1", "--epochs", "2", "--batch", "32", "--lr", "0.005"};
  const json eager = json_of(program, train);
  EXPECT_GT(eager["test"]["accuracy"], 0.5);
  EXPECT_EQ(eager["model"]["name"], "geglu 784-32-10");
  EXPECT_EQ(json_of(program, {"eval", "--limit", "1000", "--threads", "1"})["loss"],
      eager["test"]["loss"]);
  program.run(0, {"predict", "--index", "0"});
  const json fused = json_of(program, train + Words{"--mode", "fused"});
  EXPECT_NEAR(
      fused["test"]["accuracy"].get<double>(), eager["test"]["accuracy"].get<double>(), 0.05);
}

TEST(MnistTrain, AccumAddsUpToOneStep) {
  const Program program;
  for (const char* mode : {"eager", "fused"}) {
    // By SGD, which goes by the size of a gradient; Adam is blind to it.
    const Words train{"train", "--limit", "500", "--hidden", "16", "--threads", "1", "--steps",
        "40", "--val", "0", "--mode", mode, "--optimizer", "sgd", "--lr", "0.1"};
    const json whole = json_of(program, train + Words{"--batch", "96"});
    const json parts = json_of(program, train + Words{"--batch", "32", "--accum", "3"});
    EXPECT_EQ(parts["steps"], 40);
    EXPECT_NEAR(parts["test"]["loss"].get<double>(), whole["test"]["loss"].get<double>(), 1e-5)
        << mode;
    for (size_t e = 0; e < whole["epochs"].size(); ++e)
      EXPECT_NEAR(
          parts["epochs"][e]["loss"].get<double>(), whole["epochs"][e]["loss"].get<double>(), 0.1)
          << mode;
  }
}

TEST(MnistTrain, PatienceEndsTheRun) {
  const Result r =
      Program().run(0, kSmall + Words{"--epochs", "50", "--lr", "0", "--patience", "2"});
  expect_facts(r.err,
      {"epoch 3/50", "stop    by --patience: val accuracy has not risen for 2 epochs, best "});
  EXPECT_EQ(r.err.find("epoch 4/50"), std::string::npos);
}

// An evaluation within an epoch, where a run ended, counts: best.safetensors is of it.
TEST(MnistTrain, PatienceOfAResumedRunCountsWhereItHadEnded) {
  const Program program;
  const Words still = kSmall + Words{"--lr", "0", "--patience", "2", "--out", "r"};
  program.run(0, still + Words{"--steps", "1"});
  const Result r = program.run(0, {"train", "--resume", "r", "--epochs", "50"});
  expect_facts(
      r.err, {"the run had ended within epoch 1: its evaluation there stays in the log, and "
              "counts for best and --patience (mnist explain patience)",
                 "epoch 2/50", "stop    by --patience: val accuracy has not risen for 2 epochs"});
  EXPECT_EQ(r.err.find("epoch 3/50"), std::string::npos) << "a run that was not ended stops there";
}

TEST(MnistPredict, NumPyImagesAndNothingBeforeAnError) {
  const Program program;
  program.run(0, kSmall + Words{"--epochs", "2", "--out", "a"});
  program.run(0, {"data", "make", "digits", "--train", "1", "--test", "4"});
  const FileArray images =
      read_idx((program.folder() / "digits/t10k-images-idx3-ubyte").string(), IdxKind::images);
  const FileArray labels =
      read_idx((program.folder() / "digits/t10k-labels-idx1-ubyte").string(), IdxKind::labels);
  const auto save = [&](const char* name, const Bytes& bytes) {
    program.write(name, std::string(bytes.begin(), bytes.end()));
  };
  save("x.npy", npy("|u1", "(4, 28, 28)", images.bytes));
  save("y.npy", npy("|u1", "(4,)", labels.bytes));
  const json read = json_of(program, {"predict", "--from", "a", "x.npy"});
  ASSERT_EQ(read["predictions"].size(), 4u);
  EXPECT_EQ(read["predictions"][3]["input"], "x.npy 3");
  for (int i = 0; i < 4; ++i) {
    const json one = json_of(program, {"predict", "--from", "a", "--index", std::to_string(i)});
    EXPECT_EQ(one["predictions"][0]["probabilities"], read["predictions"][i]["probabilities"]) << i;
  }
  EXPECT_EQ(json_of(program, {"eval", "--from", "a", "--data", "x.npy,y.npy"})["images"], 4);

  const Result bad = program.run(3, {"predict", "--from", "a", "x.npy", "none.npy"});
  EXPECT_EQ(bad.out, "");
  expect_facts(bad.err, {"cannot read", "none.npy"});

  // The same image as PNG, taken as it is.
  save("x.png", png(28, 28, 1, Bytes(images.bytes.begin(), images.bytes.begin() + 784)));
  const Result r = program.run({"predict", "--from", "a", "--raw", "--json", "x.png"});
  EXPECT_EQ(json::parse(r.out)["predictions"][0]["probabilities"],
      read["predictions"][0]["probabilities"]);
}

// One step an epoch, so that each step has a row.
TEST(MnistRecipe, SchedulesHoldAtEveryStepInBothModes) {
  constexpr int kSteps = 20, kWarmup = 4;
  constexpr double kPeak = 0.05;
  const auto run = [&](const std::string& schedule, const std::string& mode) {
    return json_of(
        Program(), {"train", "--limit", "32", "--batch", "32", "--epochs", std::to_string(kSteps),
                       "--val", "0", "--hidden", "8", "--threads", "1", "--optimizer", "sgd",
                       "--lr", "0.05", "--schedule", schedule, "--lr-warmup",
                       std::to_string(kWarmup), "--mode", mode, "--save-every", "0"})["epochs"];
  };
  const json constant = run("constant", "eager");
  for (const std::string schedule : {"constant", "cosine", "step", "onecycle"}) {
    const json eager = run(schedule, "eager"), fused = run(schedule, "fused");
    ASSERT_EQ(eager.size(), size_t{kSteps});
    for (int s = 0; s < kSteps; ++s) {
      const double pi = std::numbers::pi,
                   fall = kPeak * (1 + std::cos(pi * (s - kWarmup) / (kSteps - kWarmup))) / 2;
      double lr = schedule == "constant" ? kPeak
                  : schedule == "step"   ? kPeak * (s < 12      ? 1
                                                       : s < 16 ? 0.1
                                                                : 0.01)
                                         : fall;
      if (s < kWarmup)
        lr = schedule == "onecycle" ? kPeak * (1 + 12 * (1 - std::cos(pi * s / kWarmup))) / 25
                                    : kPeak * (s + 1) / kWarmup;
      EXPECT_NEAR(eager[s]["lr"].get<double>(), lr, 1e-12) << schedule << " " << s;
      EXPECT_EQ(fused[s]["lr"], eager[s]["lr"]);
      // The rate that the replayed steps took is the same: so are the losses.
      EXPECT_NEAR(fused[s]["loss"].get<double>(), eager[s]["loss"].get<double>(), 1e-4)
          << schedule << " " << s;
    }
    EXPECT_EQ(eager.back()["loss"] == constant.back()["loss"], schedule == "constant");
  }
}

TEST(MnistRecipeSlow, Fast98ReachesItsTargetForFiveSeeds) {
  SKIP_WITHOUT_MNIST();
  const Program program;
  for (const char* seed : {"1", "2", "3", "4", "5"}) {
    const Result r =
        program.run(0, {"train", "--preset", "fast98", "--data",
                           std::filesystem::absolute(mnist_folder()), "--seed", seed, "-q"});
    expect_facts(r.out, {"target 98 %: reached"});
  }
}

TEST(MnistTrain, ALossThatDoesNotMoveIsSaid) {
  const Program program;
  nn::write_safetensors((program.folder() / "zero.safetensors").string(),
      {{"0.weight", Tensor::zeros({10, 784})}, {"0.bias", Tensor::zeros({10})}});
  const Result r = program.run(
      0, {"train", "--init", "zero.safetensors", "--limit", "64", "--batch", "32", "--steps", "220",
             "--log-every", "20", "--lr", "0", "--threads", "1", "-q"});
  expect_facts(r.err, {"warning: loss has stayed at 2.303 = ln(10) for 200 steps; check lr, and "
                       "that labels belong to images"});
}

TEST(MnistStreams, PathsWithSpacesAndOtherLetters) {
  const Program program;
  const std::string run = "L\xc3\xa4ufe mit Raum/\xc3\xa9 1", data =
                                                                  "Zi\xc3\xa9"
                                                                  "fern";
  program.run(0, {"data", "make", data, "--train", "300", "--test", "100"});
  expect_facts(program.run(0, kSmall + Words{"--data", data, "--steps", "5", "--out", run}).out,
      {"\nrun     " + run + "\n"});
  for (const Words& more : {Words{}, {"--from", run}, {"--from", run + "/model.safetensors"}}) {
    const Result r = program.run(Words{"eval"} + more);  // the data comes from the checkpoint
    EXPECT_EQ(r.status, 0) << r.err;
    expect_facts(r.err, {data});
  }
  expect_facts(program.run({"train", "--config", run + "/config.toml", "--print-config"}).out,
      {"out = \"" + run + "\"\n", "data = \"" + (program.folder() / data).string() + "\"\n"});
}

TEST(MnistStreams, AFolderInUseNamesItsHolder) {
  const Program program;
  const Result first =
      program.run(kSmall + Words{"--epochs", "100000", "--out", "a"}, [&](pid_t child) {
        for (int i = 0; i < 1000 && !exists(program.folder() / "a/events.jsonl"); ++i)
          std::this_thread::sleep_for(std::chrono::milliseconds(20));
        const Result second = program.run(2, kSmall + Words{"--out", "a", "--force"});
        EXPECT_EQ(second.out, "");
        expect_facts(second.err, {"run folder is in use: ",
                                     "/a; held by process " + std::to_string(child), "--out DIR"});
        kill(child, SIGINT);
      });
  EXPECT_EQ(first.status, 130);
  program.run(0, {"doctor", "a/last.safetensors"});  // the second run did it no harm
}

TEST(MnistStreams, AFolderThatCannotBeWritten) {
  const Program program;
  const Result r = program.run(4, kSmall + Words{"--out", "/proc/sinter"});
  EXPECT_EQ(r.out, "");
  expect_facts(r.err, {"cannot make the run folder: /proc/sinter; ", "--out DIR"});
  if (geteuid() == 0) GTEST_SKIP() << "root may write anywhere: the read-only folder was not tried";
  std::filesystem::create_directory(program.folder() / "closed");
  std::filesystem::permissions(program.folder() / "closed",
      std::filesystem::perms::owner_read | std::filesystem::perms::owner_exec);
  const Result closed = program.run(4, kSmall + Words{"--out", "closed"});
  expect_facts(closed.err, {"cannot write", "Permission denied"});
}

TEST(MnistStreams, ProgressFitsANarrowTerminal) {
  if (!Program::has_terminals()) GTEST_SKIP() << "no /dev/pts here";
  Program program;
  program.terminal = true;
  program.columns = 40;
  program.environment = {"TERM=xterm"};
  program.call_at = "\repoch ";
  const Result r = program.run(130,
      {"train", "--limit", "5000", "--epochs", "1000", "--batch", "1", "--hidden", "16",
          "--threads", "1", "--save-every", "0"},
      [](pid_t child) { kill(child, SIGINT); });
  size_t seen = 0;
  for (size_t at = r.err.find("\repoch "); at != std::string::npos;
       at = r.err.find("\repoch ", at + 1), ++seen)
    EXPECT_LT(r.err.find_first_of("\r\n", at + 1) - at - 1, 40u) << r.err.substr(at, 100);
  EXPECT_GT(seen, 0u);
}

TEST(MnistStreams, WithoutStdoutNothingElseIsWrittenTo) {
  Program program;
  program.without_stdout = true;
  const Result r = program.run(0, kSmall + Words{"--steps", "5", "--out", "a"});
  program.without_stdout = false;
  program.run(0, {"doctor", "a/model.safetensors"});
  EXPECT_TRUE(text_of(program.folder() / "a/events.jsonl").starts_with("{\"step\":"));
}

}  // namespace
}  // namespace sinter::test
