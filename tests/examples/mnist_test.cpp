// The `mnist` program as a whole, run as a subprocess on few synthetic images: what goes to stdout
// and what to stderr, one case per exit status, and that train, eval and predict agree.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "nn/safetensors.h"
#include "ops/ops.h"
#include "tests/examples/program.h"

namespace sinter::test {
namespace {

using nlohmann::json;

const Words kQuick{"train", "--limit", "2000", "--epochs", "1", "--hidden", "32", "--threads", "1",
    "--batch", "32", "--lr", "0.005"};

TEST(Mnist, TrainsAndSaysSo) {
  const Program program;
  const Result r = program.run(0, kQuick);
  EXPECT_EQ(r.out.find("test    "), 0u) << r.out;
  expect_facts(r.out, {"confused most: ", "\ntime    ", "63 steps, ", "\nrun     runs/"});
  expect_facts(r.err, {"data    synthetic digits", "model   mlp 784-32-10 relu, 25,450 parameters",
                          "device  cpu (auto", "epoch 1/1  loss ", "saved, best",
                          "next    mnist predict --index 0, mnist compare, mnist inspect\n"});
  EXPECT_GT(std::stod(r.out.substr(8)), 60) << r.out;  // it learns: guessing gives 10 %
  // Neither stream has escapes or carriage returns off a terminal, and all of it is ASCII.
  for (const char c : r.out + r.err) ASSERT_TRUE(c == '\n' || (c >= ' ' && c <= '~')) << int(c);
  for (const char* file : {"model.safetensors", "best.safetensors", "config.toml"})
    EXPECT_TRUE(exists(program.folder() / "runs/last" / file)) << file;
  EXPECT_TRUE(has(
      text_of(program.folder() / "runs/last/events.jsonl"), "{\"step\":63,\"epoch\":1,\"loss\":"));
}

TEST(Mnist, JsonIsOneObjectAndTheOnlyOutput) {
  const Program program;
  const Result r = program.run(
      0, with(kQuick, {"--json", "-q", "--seed", "18446744073709551615", "--val", "0"}));
  EXPECT_EQ(r.err, "");
  EXPECT_EQ(r.out.find("{\n  \"schema\": \"sinter.train/1\""), 0u);
  const json o = json::parse(r.out);
  EXPECT_EQ(o["seed"], "18446744073709551615");
  EXPECT_EQ(o["steps"], 63);
  EXPECT_EQ(o["test"]["images"], 2000);
  EXPECT_GT(o["train_seconds"], 0);
  EXPECT_TRUE(o["epochs"][0]["val_accuracy"].is_null());
  EXPECT_FALSE(exists(program.folder() / "runs/last/best.safetensors"));
}

TEST(Mnist, EvalAndPredictAgreeWithTrain) {
  const Program program;
  const json test = json_of(
      program, with(kQuick, {"--normalize", "mnist", "--act", "gelu", "--dropout", "0.1"}))["test"];
  const json e = json_of(program, {"eval", "--limit", "2000", "--confusion"});
  EXPECT_EQ(e["accuracy"], test["accuracy"]);
  EXPECT_EQ(e["loss"], test["loss"]);
  EXPECT_EQ(e["confusion"], test["confusion"]);
  EXPECT_EQ(e["worst"].size(), 5u);

  // The item read worst, predicted alone, is read as the same digit; the same by file, by folder,
  // by the best model's name.
  const json worst = e["worst"][0];
  const std::string index = std::to_string(worst["item"].get<int>());
  const json prediction = json_of(program,
      {"predict", "--index", index, "--from", "runs/last/model.safetensors"})["predictions"][0];
  EXPECT_EQ(prediction["digit"], worst["read_as"]);
  EXPECT_EQ(prediction["label"], worst["label"]);
  double sum = 0;
  for (const double probability : prediction["probabilities"]) sum += probability;
  EXPECT_NEAR(sum, 1, 1e-6);

  const Result shown = program.run(0, {"predict", "--index", "0"});
  EXPECT_EQ(std::count(shown.out.begin(), shown.out.end(), '\n'),
      15);  // a picture of 14 lines, then the result
  expect_facts(shown.out, {"   then ", "test image 0, label "});
  const Result bare = program.run({"predict", "--index", "0", "--no-art", "--top", "1"});
  EXPECT_EQ(std::count(bare.out.begin(), bare.out.end(), '\n'), 1) << bare.out;
}

TEST(Mnist, InitTakesWeightsAndSizesFromTheFile) {
  const Program program;
  program.run(0, with(kQuick, {"--out", "a"}));
  const Result r = program.run(0, {"train", "--limit", "500", "--steps", "1", "--lr", "0",
                                      "--threads", "1", "--init", "a/model.safetensors"});
  expect_facts(r.err, {"mlp 784-32-10"});
  EXPECT_GT(std::stod(r.out.substr(8)), 60) << r.out;
}

TEST(Mnist, ALossThatIsNotANumberEndsTheRun) {
  const Program program;
  nn::write_safetensors(program.folder() / "nan.safetensors",
      {{"0.weight", Tensor::full({10, 784}, NAN)}, {"0.bias", Tensor::zeros({10})}});
  const Words train{"train", "--limit", "2000", "--steps", "20", "--hidden", "64,32", "--threads",
      "1", "--optimizer", "sgd", "--lr", "1e6"};
  const Result r = program.run(6, with(train, {"--log-every", "5"}));
  EXPECT_EQ(r.out, "");
  expect_facts(r.err, {"train: loss is ", "(epoch 1, batch ", "last good ", "lr 1e+06",
                          "hint: --lr 0.1 (the default of sgd) or --clip 1"});
  expect_facts(
      program.run(6, with(train, {"--mode", "eager", "--check-nan"})).err, {": the result is "});
  // Where the first step is the bad one, there was no good one.
  expect_facts(
      program
          .run(6, {"train", "--model", "linear", "--limit", "100", "--steps", "3", "--threads", "1",
                      "--label-smoothing", "0.9", "--init", "nan.safetensors"})
          .err,
      {"train: loss is nan: step 1 (epoch 1, batch 1); no step before it, lr 0.001"});
}

TEST(Mnist, ATargetMissedIsStatus7AfterTheResult) {
  const Program program;
  const Result r = program.run(7, {"train", "--limit", "200", "--steps", "1", "--threads", "1",
                                      "--hidden", "8", "--target-acc", "99.5"});
  expect_facts(r.out, {"target 99.5 %: missed"});
  expect_facts(r.err, {"error: train: target missed: test accuracy ", "--target-acc 99.5"});
  program.run(7, {"train", "--limit", "200", "--overfit-batch", "--lr", "0", "--threads", "1",
                     "--hidden", "8"});
  for (const char* mode : {"eager", "fused"})
    program.run(0, {"train", "--limit", "200", "--overfit-batch", "--threads", "1", "--hidden",
                       "32", "--mode", mode});
}

TEST(Mnist, ARunFolderIsStartedOverOnlyByForce) {
  const Program program;
  const Words train = with(kQuick, {"--out", "a"});
  program.run(0, train);
  const Result r = program.run(2, train);
  expect_facts(r.err, {"run folder is not empty: ", "/a; holds a run at step 63"});
  // Of a run of two ranks, before.
  for (const char* name : {"a/profile.rank0.trace.json.gz", "a/profile.rank1.trace.json.gz"})
    program.write(name, "old");
  program.run(0, with(train, {"--force"}));
  EXPECT_FALSE(exists(program.folder() / "a/profile.rank0.trace.json.gz"));
  EXPECT_FALSE(exists(program.folder() / "a/profile.rank1.trace.json.gz"));
  program.run(0, {"eval", "--limit", "50"});  // runs/last names it
}

TEST(Mnist, AClosedStdoutEndsTheReportNotTheTraining) {
  Program program;
  program.close_stdout = true;
  const Result r = program.run(0, kQuick);
  EXPECT_TRUE(exists(program.folder() / "runs/last/model.safetensors"));
}

TEST(Mnist, ColourIsOnlyWhereItIsWanted) {
  Program program;
  program.environment = {"NO_COLOR=1", "TERM=xterm"};
  EXPECT_FALSE(has(program.run({"tarin"}).err, "\x1b"));
  EXPECT_FALSE(
      has(program.run({"train", "--dry-run", "--limit", "100", "--threads", "1"}).err, "\x1b"));
  expect_facts(
      program.run({"train", "--dry-run", "--limit", "100", "--threads", "1", "--color", "always"})
          .err,
      {"\x1b[1mdata"});
}

TEST(Mnist, OnATerminalProgressIsOneLineWrittenAnew) {
  if (!Program::has_terminals()) GTEST_SKIP() << "no /dev/pts here";
  Program program;
  program.terminal = true;
  program.environment = {"TERM=xterm", "NO_COLOR=1"};
  program.call_at = " ETA ";
  const Result r = program.run(130,
      {"train", "--limit", "5000", "--epochs", "1000", "--batch", "1", "--hidden", "16",
          "--threads", "1", "--save-every", "0"},
      [](pid_t child) { kill(child, SIGINT); });
  const size_t line = r.err.find("\repoch ");
  ASSERT_NE(line, std::string::npos) << r.err.substr(0, 2000);
  for (const char* part : {"/1000 [", "] ", " %  loss ", " img/s  data-wait ", "ETA "})
    EXPECT_LT(r.err.find(part, line), r.err.find('\n', line)) << part;
  EXPECT_FALSE(has(r.err, "\x1b"));
}

TEST(Mnist, ADumbTerminalGetsWholeLines) {
  if (!Program::has_terminals()) GTEST_SKIP() << "no /dev/pts here";
  Program program;
  program.terminal = true;
  program.environment = {"TERM=dumb"};
  std::string text = program.run(with(kQuick, {"--epochs", "8"})).err;
  for (size_t at = text.find("\r\n"); at != std::string::npos; at = text.find("\r\n"))
    text.erase(at, 1);  // the terminal's own
  expect_facts(text, {"epoch 8/8  loss "});
  EXPECT_FALSE(has(text, "\r"));
  EXPECT_FALSE(has(text, "\x1b"));
}

TEST(Mnist, ProfilePrintsItsTable) {
  const Program program;
  const Result r =
      program.run(0, with(kQuick, {"--mode", "eager", "--profile", "--profile-steps", "1:1:3"}));
  // A row of little time is folded into "small rows": which ones are is the machine's to say.
  expect_facts(r.out, {"CPU eager", "small rows", "launches 17", "train_step"});
  EXPECT_EQ(r.out.find("test    "), 0u);
  expect_facts(r.out, {text_of(program.folder() / "runs/last/profile.txt")});
}

TEST(Mnist, ASignalSavesAndEndsWith130) {
  for (const int signal : {SIGINT, SIGTERM}) {
    const Program program;
    const Words train{"train", "--limit", "2000", "--epochs", "100000", "--hidden", "16",
        "--threads", "1", "--val", "0"};
    const Words quiet = signal == SIGTERM ? Words{"-q"} : Words{};  // which hides notes, not this
    const Result r = program.run(130, train + quiet, [&](pid_t child) {
      for (int i = 0; i < 1000 && !exists(program.folder() / "runs"); ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      for (int i = 0; i < 1000; ++i) {  // until the first epoch is saved
        bool saved = false;
        for (const auto& entry :
            std::filesystem::recursive_directory_iterator(program.folder() / "runs"))
          saved |= entry.path().filename() == "events.jsonl";
        if (saved) break;
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      }
      kill(child, signal);
    });
    expect_facts(r.err, {"stop    interrupted after step "});
    expect_facts(r.out, {"time    "});
    program.run(0, {"eval", "--limit", "50"});  // the model is there
  }
}

}  // namespace
}  // namespace sinter::test
