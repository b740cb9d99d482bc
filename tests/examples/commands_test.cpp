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

#include "data/idx.h"
#include "data/npy.h"
#include "nn/safetensors.h"
#include "ops/fused/fused.h"
#include "tests/data/data_test_util.h"
#include "tests/examples/program.h"

namespace sinter::test {
namespace {

using nlohmann::json;

const Words kSmall{"train", "--limit", "500", "--hidden", "16", "--threads", "1", "--batch", "32",
    "--lr", "0.005"};
json json_of(const Program& program, const Words& words, int status = 0) {
  const Result r = program.run(words + Words{"--json"});
  EXPECT_EQ(r.status, status) << r.err;
  return r.out.empty() ? json() : json::parse(r.out);
}

TEST(MnistExplain, SaysWordsOfTheGlossaryAndTheNearestOfOthers) {
  const Program program;
  const Result disp = program.run({"explain", "disp"});
  EXPECT_EQ(disp.status, 0);
  expect_facts(disp.out, {"Disp\nDispatch: the part of an op outside its kernel"});
  expect_facts(program.run({"explain", "Rest", "of", "step"}).out, {"outside all ops"});
  expect_facts(
      program.run({"explain"}).out, {"xpred\n", "\nsaving, expected saving\n", "HOT, MANY"});
  EXPECT_EQ(json_of(program, {"explain", "CPU total"})["words"][0], "CPU total");
  const Result slip = program.run({"explain", "xpre"});
  EXPECT_EQ(slip.status, 2);
  expect_facts(slip.err, {"unknown word: xpre; nearest is xpred"});
  for (const char* word : {"data-wait", "+-", "best", "train_step"})
    EXPECT_EQ(program.run({"explain", word}).status, 0) << word;
}

TEST(MnistExplain, KnowsOpsAndEveryRuleByName) {
  const Program program;
  expect_facts(program.run({"explain", "softmax_xent"}).out,
      {"softmax_xent\nA fused op: p = softmax(z), loss = -ln p[label]",
          "ops/fused/softmax_xent.cpp:", "stands for log_softmax, nll,", "--rules=-softmax_xent"});
  expect_facts(program.run({"explain", "matmul(wgrad)"}).out, {"matmul\nAn op: C = op(A) op(B)"});
  for (const OpDef* op : fused_ops()) {
    const Result r = program.run({"explain", std::string(op->text())});
    EXPECT_EQ(r.status, 0) << op->text();
    EXPECT_NE(r.out, "") << op->text();
  }
  expect_facts(program.run({"explain", "softmax_xnet"}).err, {"nearest is softmax_xent"});
}

TEST(MnistData, WhatIsMadeVerifiesAndTrains) {
  const Program program;
  const Result made = program.run({"data", "make", "digits", "--train", "900", "--test", "300"});
  ASSERT_EQ(made.status, 0) << made.err;
  expect_facts(
      made.out, {"wrote   digits/train-images-idx3-ubyte, train-labels-idx1-ubyte: 900 digits\n",
                    "t10k", ": 300 digits\n"});
  expect_facts(made.err, {"next    mnist train --data digits\n"});
  const Result again = program.run({"data", "make", "digits"});
  EXPECT_EQ(again.status, 2);
  expect_facts(again.err, {"folder is not empty", "digits"});

  const Result verified = program.run({"data", "verify", "digits"});
  EXPECT_EQ(verified.status, 0) << verified.err;
  expect_facts(verified.out,
      {"/digits\n", "train-images-idx3-ubyte  images 900 x 28 x 28  crc32 ",
          "train   900 images  pixels 0..255, mean ", "test    300 images",
          "labels  0: ", "class means are right for ", "shared  0 test images", "\nok\n"});
  const json report = json_of(program, {"data", "verify", "digits"});
  EXPECT_EQ(report["schema"], "sinter.data-verify/1");
  EXPECT_EQ(report["ok"], true);
  EXPECT_EQ(report["sets"][1]["images"], 300);

  // The digits that train draws itself: the same model comes of them.
  const Words train{
      "train", "--val", "0", "--limit", "300", "--steps", "20", "--hidden", "16", "--threads", "1"};
  EXPECT_EQ(json_of(program, train + Words{"--data", "digits"})["test"],
      json_of(program, train + Words{"--data", "synthetic"})["test"]);

  // Labels that belong to other images.
  FileArray labels =
      read_idx((program.folder() / "digits/train-labels-idx1-ubyte").string(), IdxKind::labels);
  std::rotate(labels.bytes.begin(), labels.bytes.begin() + 1, labels.bytes.end());
  write_idx(labels.name, labels.dims, labels.bytes);
  const Result spoilt = program.run({"data", "verify", "digits"});
  EXPECT_EQ(spoilt.status, 7);
  expect_facts(spoilt.err, {"error: data: labels do not belong to images: "});
  EXPECT_EQ(spoilt.out.find("\nok\n"), std::string::npos);
  std::filesystem::resize_file(labels.name, 20);
  EXPECT_EQ(program.run({"data", "verify", "digits"}).status, 3);
}

TEST(MnistData, WordsAndFlagsThatDoNotFit) {
  const Program program;
  const std::pair<Words, Words> all[] = {{{"data"}, {"allowed verify, make"}},
      {{"data", "verifi"}, {"unknown word: verifi", "nearest is verify"}},
      {{"data", "make"}, {"data make takes one folder, given 0", "mnist data make DIR"}},
      {{"data", "verify", "a", "b"}, {"data verify takes at most one data set, given 2"}},
      {{"data", "verify", "--train", "5"}, {"--train is a flag of data make", "data verify"}},
      {{"data", "make", "d", "--classes", "5"}, {"--classes is a flag of data verify"}},
      {{"doctor", "a", "b"}, {"doctor takes one file, given 2: a, b"}}};
  for (const auto& [words, facts] : all) {
    const Result r = program.run(words);
    EXPECT_EQ(r.status, 2) << r.err;
    EXPECT_EQ(r.out, "");
    expect_facts(r.err, facts);
  }
}

TEST(MnistDoctorSimt, SaysWhatIsReady) {
  const Program program;
  const Result r = program.run({"doctor", "--threads", "1"});
  EXPECT_EQ(r.status, 0) << r.out << r.err;
  expect_facts(r.out,
      {"ok      version   sinter ", "build  ", "bf16      ", "products  ", "ok      threads   ",
          "cuda   ", "ok      data      synthetic digits", "download_mnist",
          "ok      cpu       against f64 none of ", "ok      simt      against f64 none of ",
          " ops exceeds its bound; 20 steps", "\nready: cpu, simt"});
  EXPECT_FALSE(exists(program.folder() / "runs"));
  Program lost;
  lost.environment = {"SINTER_DATA=nowhere"};
  const Result bad = lost.run({"doctor", "--threads", "1"});
  EXPECT_EQ(bad.status, 7);
  expect_facts(bad.out,
      {"FAIL    data      data: no such folder: ", "nowhere", "\nfix first: data: --data DIR"});
}

TEST(MnistDoctor, LooksIntoACheckpoint) {
  const Program program;
  ASSERT_EQ(program.run(kSmall + Words{"--steps", "3", "--out", "a"}).status, 0);
  const Result r = program.run({"doctor", "a/model.safetensors"});
  EXPECT_EQ(r.status, 0) << r.err;
  expect_facts(r.out, {"ok      a/model.safetensors: 4 tensors, ", "crc32 agrees",
                          "model   mlp 784-16-10", "sinter.config, ", "0.weight", "f32[16, 784]"});
  const json o = json_of(program, {"doctor", "a/model.safetensors"});
  EXPECT_EQ(o["tensors"].size(), 4u);
  std::filesystem::resize_file(program.folder() / "a/model.safetensors", 20000);
  const Result cut = program.run({"doctor", "a/model.safetensors"});
  EXPECT_EQ(cut.status, 4);
  EXPECT_EQ(cut.out, "");
}

TEST(MnistModels, GegluTrainsSavesAndReads) {
  const Program program;
  const Words train{"train", "--model", "geglu", "--limit", "1000", "--hidden", "32", "--threads",
      "1", "--epochs", "2", "--batch", "32", "--lr", "0.005"};
  const json eager = json_of(program, train);
  EXPECT_GT(eager["test"]["accuracy"], 0.5);
  EXPECT_EQ(eager["model"]["name"], "geglu 784-32-10");
  const json read = json_of(program, {"eval", "--limit", "1000"});
  EXPECT_EQ(read["loss"], eager["test"]["loss"]);
  EXPECT_EQ(program.run({"predict", "--index", "0"}).status, 0);
  const json fused = json_of(program, train + Words{"--mode", "fused"});
  EXPECT_NEAR(
      fused["test"]["accuracy"].get<double>(), eager["test"]["accuracy"].get<double>(), 0.05);
  const Result wide = program.run({"train", "--model", "geglu", "--hidden", "32,16"});
  EXPECT_EQ(wide.status, 2);
  expect_facts(wide.err, {"--model geglu has one hidden width: --hidden has 2: 32,16"});
  EXPECT_EQ(program.run({"train", "--model", "geglu", "--dropout", "0.5"}).status, 2);
}

TEST(MnistTrain, AccumAddsUpToOneStep) {
  const Program program;
  for (const char* mode : {"eager", "fused"}) {
    const Words train{"train", "--limit", "500", "--hidden", "16", "--threads", "1", "--steps",
        "40", "--val", "0", "--mode", mode};
    const json whole = json_of(program, train + Words{"--batch", "96"});
    const json parts = json_of(program, train + Words{"--batch", "32", "--accum", "3"});
    EXPECT_EQ(parts["steps"], 40);
    EXPECT_NEAR(parts["test"]["loss"].get<double>(), whole["test"]["loss"].get<double>(), 1e-3)
        << mode;
    for (size_t e = 0; e < whole["epochs"].size(); ++e)
      EXPECT_NEAR(
          parts["epochs"][e]["loss"].get<double>(), whole["epochs"][e]["loss"].get<double>(), 0.1)
          << mode;
  }
}

TEST(MnistTrain, PatienceEndsTheRun) {
  const Program program;
  const Result r = program.run(kSmall + Words{"--epochs", "50", "--lr", "0", "--patience", "2"});
  EXPECT_EQ(r.status, 0) << r.err;
  expect_facts(r.err,
      {"epoch 3/50", "stop    by --patience: val accuracy has not risen for 2 epochs, best "});
  EXPECT_EQ(r.err.find("epoch 4/50"), std::string::npos);
  const Result none = program.run(kSmall + Words{"--patience", "2", "--val", "0"});
  EXPECT_EQ(none.status, 2);
  expect_facts(none.err, {"--patience needs a val set: --val is 0"});
}

// An evaluation within an epoch, where a run ended, counts: best.safetensors is of it.
TEST(MnistTrain, PatienceOfAResumedRunCountsWhereItHadEnded) {
  const Program program;
  const Words still = kSmall + Words{"--lr", "0", "--patience", "2", "--out", "r"};
  ASSERT_EQ(program.run(still + Words{"--steps", "1"}).status, 0);
  const Result r = program.run({"train", "--resume", "r", "--epochs", "50"});
  EXPECT_EQ(r.status, 0) << r.err;
  expect_facts(
      r.err, {"the run had ended within epoch 1: its evaluation there stays in the log, and "
              "counts for best and --patience (mnist explain patience)",
                 "epoch 2/50", "stop    by --patience: val accuracy has not risen for 2 epochs"});
  EXPECT_EQ(r.err.find("epoch 3/50"), std::string::npos) << "a run that was not ended stops there";
  expect_facts(program.run({"explain", "patience"}).out, {"resumed"});
}

TEST(MnistPredict, NumPyImagesAndNothingBeforeAnError) {
  const Program program;
  ASSERT_EQ(program.run(kSmall + Words{"--epochs", "2", "--out", "a"}).status, 0);
  ASSERT_EQ(program.run({"data", "make", "digits", "--train", "1", "--test", "4"}).status, 0);
  const FileArray images =
      read_idx((program.folder() / "digits/t10k-images-idx3-ubyte").string(), IdxKind::images);
  const FileArray labels =
      read_idx((program.folder() / "digits/t10k-labels-idx1-ubyte").string(), IdxKind::labels);
  const auto save = [&](const char* name, const Bytes& bytes) {
    program.write(name, std::string(bytes.begin(), bytes.end()));
  };
  save("x.npy", npy(npy_dict("|u1", "(4, 28, 28)"), images.bytes));
  save("y.npy", npy(npy_dict("|u1", "(4,)"), labels.bytes));
  const json read = json_of(program, {"predict", "--from", "a", "x.npy"});
  ASSERT_EQ(read["predictions"].size(), 4u);
  EXPECT_EQ(read["predictions"][3]["input"], "x.npy 3");
  for (int i = 0; i < 4; ++i) {
    const json one = json_of(program, {"predict", "--from", "a", "--index", std::to_string(i)});
    EXPECT_EQ(one["predictions"][0]["probabilities"], read["predictions"][i]["probabilities"]) << i;
  }
  const json e = json_of(program, {"eval", "--from", "a", "--data", "x.npy,y.npy"});
  EXPECT_EQ(e["images"], 4);

  const Result bad = program.run({"predict", "--from", "a", "x.npy", "none.npy"});
  EXPECT_EQ(bad.status, 3);
  EXPECT_EQ(bad.out, "");
  expect_facts(bad.err, {"cannot read", "none.npy"});

  // The same image as PNG, taken as it is.
  save("x.png", png(28, 28, 1, Bytes(images.bytes.begin(), images.bytes.begin() + 784)));
  const Result r = program.run({"predict", "--from", "a", "--raw", "--json", "x.png"});
  EXPECT_EQ(json::parse(r.out)["predictions"][0]["probabilities"],
      read["predictions"][0]["probabilities"]);
}

TEST(MnistConfig, EveryCommandPrintsAConfigThatComesBack) {
  const Program program;
  const std::pair<std::string, Words> all[] = {
      {"train", {"--seed", "3", "--mode", "fused", "--rules=-weight_grad_update", "--clip", "0.5"}},
      {"eval", {"--worst", "2", "--confusion"}}, {"predict", {"--top", "2"}},
      {"compare", {"--steps", "7", "--accum", "2"}},
      {"speedrun", {"--seeds", "3", "--betas", "0.7,0.9"}},
      {"bench", {"--batch", "1,8", "--hidden", "8,16"}}, {"data", {"--train", "77"}},
      {"doctor", {"--threads", "2"}}};
  for (const auto& [command, flags] : all) {
    const Result first = program.run(Words{command, "--print-config"} + flags);
    ASSERT_EQ(first.status, 0) << command << first.err;
    program.write("c.toml", first.out);
    const Result second = program.run({command, "--config", "c.toml", "--print-config"});
    EXPECT_EQ(second.out, first.out) << command << second.err;
    EXPECT_EQ(first.err, "");
  }
}

TEST(MnistRecipe, PresetIsBelowFileBelowCommandLine) {
  const Program program;
  program.write("c.toml", "[train]\nlr = 0.002\nepochs = 4\n");
  const Result r = program.run(
      {"train", "--preset", "fast98", "--config", "c.toml", "--epochs", "7", "--print-config"});
  ASSERT_EQ(r.status, 0) << r.err;
  expect_facts(r.out, {"epochs = 7\n", "lr = 0.002\n", "schedule = \"onecycle\"\n",
                          "mode = \"fused\"\n", "target-acc = 98\n"});
  const Result wrong = program.run({"train", "--preset", "fst98"});
  EXPECT_EQ(wrong.status, 2);
  expect_facts(
      wrong.err, {"unknown --preset: fst98; nearest is fast98; allowed fast98, fast99, best"});
}

// One step an epoch, so that each step has a row.
TEST(MnistRecipe, SchedulesHoldAtEveryStepInBothModes) {
  constexpr int kSteps = 20, kWarmup = 4;
  constexpr double kPeak = 0.05;
  const Program program;
  const auto run = [&](const std::string& schedule, const std::string& mode) {
    return json_of(
        program, {"train", "--limit", "32", "--batch", "32", "--epochs", std::to_string(kSteps),
                     "--val", "0", "--hidden", "8", "--threads", "1", "--optimizer", "sgd", "--lr",
                     "0.05", "--schedule", schedule, "--lr-warmup", std::to_string(kWarmup),
                     "--mode", mode, "--save-every", "0"})["epochs"];
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
    const Result r = program.run({"train", "--preset", "fast98", "--data",
        std::filesystem::absolute(mnist_folder()), "--seed", seed, "-q"});
    EXPECT_EQ(r.status, 0) << "seed " << seed << "\n" << r.out << r.err;
    expect_facts(r.out, {"target 98 %: reached"});
  }
}

TEST(MnistTrain, ALossThatDoesNotMoveIsSaid) {
  const Program program;
  nn::write_safetensors((program.folder() / "zero.safetensors").string(),
      {{"0.weight", Tensor::zeros({10, 784})}, {"0.bias", Tensor::zeros({10})}});
  const Result r = program.run({"train", "--init", "zero.safetensors", "--limit", "64", "--batch",
      "32", "--steps", "220", "--log-every", "20", "--lr", "0", "--threads", "1", "-q"});
  EXPECT_EQ(r.status, 0) << r.err;
  expect_facts(r.err, {"warning: loss has stayed at 2.303 = ln(10) for 200 steps; check lr, and "
                       "that labels belong to images"});
}

// The keys of each command's object, in order: what a reader of --json may count on.
TEST(MnistJson, EverySchemaHasItsKeys) {
  const Program program;
  const auto keys = [&](const Words& words) {
    const Result r = program.run(words + Words{"--json", "-q", "--threads", "1"});
    EXPECT_EQ(r.status, 0) << r.err;
    Words out;
    const auto object = nlohmann::ordered_json::parse(r.out);
    for (const auto& item : object.items()) out.push_back(item.key());
    EXPECT_EQ(out[0], "schema");
    return out;
  };
  const Words train =
      keys({"train", "--limit", "64", "--steps", "2", "--hidden", "8", "--out", "a"});
  for (const char* key : {"run", "interrupted", "test", "train_seconds", "data_wait_seconds",
           "steps", "data", "model", "optimizer", "seed", "device", "threads", "mode", "epochs"})
    EXPECT_EQ(std::count(train.begin(), train.end(), key), 1) << key;
  EXPECT_EQ(keys({"eval", "--from", "a", "--limit", "64"}),
      (Words{"schema", "model", "data", "set", "images", "accuracy", "accuracy_half_width", "loss",
          "classes", "confusion", "worst"}));
  EXPECT_EQ(
      keys({"predict", "--from", "a", "--index", "0"}), (Words{"schema", "model", "predictions"}));
  EXPECT_EQ(keys({"bench", "--device", "cpu", "--batch", "1", "--hidden", "8"}),
      (Words{"schema", "title", "rows"}));
  const Words compare = keys({"compare", "--batch", "8", "--hidden", "8", "--rounds", "1",
      "--steps", "1", "--warmup", "0"});
  for (const char* key : {"model", "batch", "device", "rules", "parity", "eager_us", "fused_us",
           "ratio", "launches", "bytes", "flops", "table"})
    EXPECT_EQ(std::count(compare.begin(), compare.end(), key), 1) << key;
  EXPECT_EQ(keys({"data", "make", "d", "--train", "30", "--test", "20"}),
      (Words{"schema", "folder", "train", "test", "data_seed"}));
  EXPECT_EQ(keys({"doctor"}), (Words{"schema", "ready", "devices", "checks"}));
  EXPECT_EQ(keys({"doctor", "a/model.safetensors"}),
      (Words{"schema", "file", "tensors", "bytes", "crc_checked", "model"}));
}

TEST(MnistStreams, PathsWithSpacesAndOtherLetters) {
  const Program program;
  const std::string run = "L\xc3\xa4ufe mit Raum/\xc3\xa9 1", data =
                                                                  "Zi\xc3\xa9"
                                                                  "fern";
  ASSERT_EQ(program.run({"data", "make", data, "--train", "300", "--test", "100"}).status, 0);
  const Result trained = program.run(kSmall + Words{"--data", data, "--steps", "5", "--out", run});
  ASSERT_EQ(trained.status, 0) << trained.err;
  expect_facts(trained.out, {"run " + run});
  for (const Words& more : {Words{}, {"--from", run}, {"--from", run + "/model.safetensors"}}) {
    const Result r = program.run(Words{"eval"} + more);  // the data comes from the checkpoint
    EXPECT_EQ(r.status, 0) << r.err;
    expect_facts(r.err, {data});
  }
  const Result again = program.run({"train", "--config", run + "/config.toml", "--print-config"});
  expect_facts(again.out,
      {"out = \"" + run + "\"\n", "data = \"" + (program.folder() / data).string() + "\"\n"});
}

TEST(MnistStreams, AFolderInUseNamesItsHolder) {
  const Program program;
  const Result first =
      program.run(kSmall + Words{"--epochs", "100000", "--out", "a"}, [&](pid_t child) {
        for (int i = 0; i < 1000 && !exists(program.folder() / "a/events.jsonl"); ++i)
          std::this_thread::sleep_for(std::chrono::milliseconds(20));
        const Result second = program.run(kSmall + Words{"--out", "a", "--force"});
        EXPECT_EQ(second.status, 2);
        EXPECT_EQ(second.out, "");
        expect_facts(second.err, {"run folder is in use: ",
                                     "/a; held by process " + std::to_string(child), "--out DIR"});
        kill(child, SIGINT);
      });
  EXPECT_EQ(first.status, 130);
  EXPECT_EQ(
      program.run({"doctor", "a/last.safetensors"}).status, 0);  // the second run did it no harm
}

TEST(MnistStreams, AFolderThatCannotBeWritten) {
  const Program program;
  const Result r = program.run(kSmall + Words{"--out", "/proc/sinter"});
  EXPECT_EQ(r.status, 4);
  EXPECT_EQ(r.out, "");
  expect_facts(r.err, {"cannot make the run folder: /proc/sinter; ", "--out DIR"});
  program.write("file", "mine");
  const Result file = program.run(kSmall + Words{"--out", "file"});
  EXPECT_EQ(file.status, 4);
  expect_facts(file.err, {"cannot make the run folder", "Not a directory"});
  if (geteuid() == 0) GTEST_SKIP() << "root may write anywhere: the read-only folder was not tried";
  std::filesystem::create_directory(program.folder() / "closed");
  std::filesystem::permissions(program.folder() / "closed",
      std::filesystem::perms::owner_read | std::filesystem::perms::owner_exec);
  const Result closed = program.run(kSmall + Words{"--out", "closed"});
  EXPECT_EQ(closed.status, 4);
  expect_facts(closed.err, {"cannot write", "Permission denied"});
}

TEST(MnistStreams, ProgressFitsANarrowTerminal) {
  if (!Program::has_terminals()) GTEST_SKIP() << "no /dev/pts here";
  Program program;
  program.terminal = true;
  program.columns = 40;
  program.environment = {"TERM=xterm"};
  program.call_at = "\repoch ";
  const Result r = program.run({"train", "--limit", "5000", "--epochs", "1000", "--batch", "1",
                                   "--hidden", "16", "--threads", "1", "--save-every", "0"},
      [](pid_t child) { kill(child, SIGINT); });
  EXPECT_EQ(r.status, 130);
  size_t seen = 0;
  for (size_t at = r.err.find("\repoch "); at != std::string::npos;
       at = r.err.find("\repoch ", at + 1), ++seen)
    EXPECT_LT(r.err.find_first_of("\r\n", at + 1) - at - 1, 40u) << r.err.substr(at, 100);
  EXPECT_GT(seen, 0u);
}

TEST(MnistStreams, WithoutStdoutNothingElseIsWrittenTo) {
  Program program;
  program.without_stdout = true;
  const Result r = program.run(kSmall + Words{"--steps", "5", "--out", "a"});
  EXPECT_EQ(r.status, 0) << r.err;
  program.without_stdout = false;
  EXPECT_EQ(program.run({"doctor", "a/model.safetensors"}).status, 0);
  EXPECT_TRUE(text_of(program.folder() / "a/events.jsonl").starts_with("{\"step\":"));
}

TEST(MnistStreams, HelpFitsEightyColumns) {
  const Program program;
  for (const Words& words : {Words{}, {"train"}, {"speedrun"}, {"eval"}, {"predict"}, {"compare"},
           {"bench"}, {"diff"}, {"calibrate"}, {"explain"}, {"data"}, {"doctor"}}) {
    const Result r = program.run(words + Words{"--help"});
    EXPECT_EQ(r.status, 0);
    std::istringstream lines(r.out);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80u) << line;
  }
}

}  // namespace
}  // namespace sinter::test
