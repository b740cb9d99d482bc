// mnist train: what a run remembers, and what it says when it does not do what was asked.
#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "tests/examples/program.h"

namespace sinter::test {
namespace {

using nlohmann::json;

const Words kTiny{"train", "--limit", "200", "--epochs", "1", "--hidden", "16", "--threads", "1"};

// The order in which the program's own hints bring a newcomer: train, then get other digits, then
// look at the run.
TEST(MnistRun, RemembersTheDataItWasTrainedOn) {
  Program program;
  program.run(0, kTiny);
  expect_facts(text_of(program.folder() / "runs/last/config.toml"), {"data = \"synthetic\"\n"});
  program.run(
      0, {"data", "make", "data/mnist", "--train", "600", "--test", "100", "--data-seed", "7"});
  Result r = program.run({"eval", "--json"});
  EXPECT_EQ(json::parse(r.out)["data"], "synthetic") << r.err;
  r = program.run({"predict", "--index", "3", "--no-art"});
  EXPECT_FALSE(has(r.err, "other data")) << r.err;
  r = program.run(0, {"train", "--resume", "--epochs", "2"});

  // Other data are used where they are asked for, and said to be others; a run does not go on with
  // them.
  r = program.run(0, {"eval", "--data", "data/mnist"});
  expect_facts(r.err, {"the model was trained on other data: synthetic with crc32 "});
  program.environment = {"SINTER_DATA=data/mnist"};
  r = program.run(4, {"train", "--resume", "--epochs", "3"});
  expect_facts(r.err, {"cannot resume with other data: ", "hint: without --data and SINTER_DATA"});

  // A place is known from any folder, and its content by its fingerprint.
  program.environment.clear();
  program.run(0, with(kTiny, {"--data", "data/mnist", "--out", "b"}));
  const std::string place = std::filesystem::canonical(program.folder() / "data/mnist");
  expect_facts(text_of(program.folder() / "b/config.toml"), {"data = \"" + place + "\"\n"});
  EXPECT_FALSE(has(program.run({"eval", "--from", "b"}).err, "other data"));
  std::filesystem::remove_all(program.folder() / "data/mnist");
  program.run(
      0, {"data", "make", "data/mnist", "--train", "600", "--test", "100", "--data-seed", "8"});
  expect_facts(
      program.run({"eval", "--from", "b"}).err, {"the model was trained on other data: " + place});
  r = program.run(4, {"train", "--resume", "b", "--epochs", "2"});
  expect_facts(r.err, {"the files have changed since"});
}

TEST(MnistRun, InitTakesNormalizationAndClassesFromTheFile) {
  const Program program;
  program.run(0, with(kTiny, {"--normalize", "mnist", "--classes", "12", "--out", "a"}));
  const Result r = program.run(0,
      {"train", "--init", "a", "--limit", "200", "--epochs", "1", "--threads", "1", "--out", "b"});
  expect_facts(r.err, {"normalize mnist", "mlp 784-16-12"});
  expect_facts(text_of(program.folder() / "b/config.toml"), {"normalize = \"mnist\"\n"});
  const Words compare{"compare", "--from", "a", "--threads", "1", "--measure", "off", "--rounds",
      "1", "--steps", "1", "--warmup", "0"};
  program.run(0, compare);
  const Result asked = program.run(
      with({"train", "--init", "a", "--dry-run", "--limit", "100"}, {"--normalize", "none"}));
  expect_facts(asked.err, {"normalize none"});
}

TEST(MnistRun, ADivergingLossIsSaid) {
  const Program program;
  const Words train = with(kTiny, {"--batch", "16", "--lr", "100000"});
  const Result r = program.run(6, train);
  expect_facts(r.err, {"training diverges; try --lr 0.001 (the default of adam)"});
  expect_facts(text_of(program.folder() / "runs/last/events.jsonl"), {"training diverges"});
  expect_facts(r.out, {"test    "});
  expect_facts(r.err, {"error: train: diverged: loss ", "are of no use",
                          "hint: --lr 0.001 (the default of adam) or --clip 1"});
  EXPECT_TRUE(has(r.err, "  saved\n") && !has(r.err, "best")) << r.err;
  EXPECT_FALSE(std::filesystem::exists(program.folder() / "runs/last/best.safetensors"));
}

// Its last step may do no worse than guessing.
TEST(MnistRun, ARunThatRanAwayAndOnlyGuessesIsNotTheBest) {
  const Result r = Program().run(6, {"train", "--limit", "3000", "--epochs", "1", "--batch", "16",
                                        "--hidden", "64", "--threads", "1", "--lr", "3"});
  expect_facts(
      r.err, {"warning: the loss of epoch 1 is ", "  saved\n", "error: train: diverged: loss "});
  EXPECT_FALSE(has(r.err, "best")) << r.err;
}

TEST(MnistRun, NextIsNotWhatWasDone) {
  const Result r = Program().run(0, with(kTiny, {"--mode", "fused"}));
  expect_facts(r.err, {"mnist compare, mnist inspect\n"});
  EXPECT_FALSE(has(r.err, "--mode fused")) << r.err;
}

TEST(MnistRun, AFullDiskIsFoundBeforeTraining) {
  Program program;
  program.launcher = {"unshare", "-rm", "sh", "-c",
      "mount -t tmpfs -o size=200k none . 2>/dev/null || exit 77; cd \"$PWD\"; "
      "\"$0\" \"$@\"; status=$?; ls -A runs | sed 's/^/left: /' >&2; exit $status"};
  const Result r = program.run(kTiny);
  if (r.status == 77 || r.status == 99) GTEST_SKIP() << "no file system can be mounted here";
  EXPECT_EQ(r.status, 4) << r.err;
  expect_facts(r.err, {"checkpoint: no room for the run: ", "its weights take up to ", " are free",
                          "--out DIR takes another place"});
  EXPECT_FALSE(has(r.err, "epoch 1") || has(r.err, "left: ")) << r.err;
}

// best.safetensors has 51 KiB, last.safetensors with Adam's averages three times as many.
TEST(MnistRun, ASaveThatFailsSaysWhatIsThere) {
  Program program;
  program.launcher = {"bash", "-c", "ulimit -f 80; exec \"$0\" \"$@\""};  // KiB of one file
  const Result r = program.run(4, with(kTiny, {"--out", "r"}));
  expect_facts(r.err, {"r/last.safetensors; File too large; no part of this file is left; r holds "
                       "config.toml ",
                          "best.safetensors 5"});
}

// A profile that cannot be written, as on a full disk, does not cost the result.
TEST(MnistRun, TheResultComesBeforeTheFilesOfAProfile) {
  const Program program;
  const Words train = with(kTiny, {"--out", "r", "--epochs", "3000", "--save-every", "0",
                                      "--profile=json", "--profile-steps", "0:0:3"});
  const Result r = program.run(4, train, [&](pid_t) {
    for (int i = 0; i < 20'000 && !exists(program.folder() / "r/events.jsonl"); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::filesystem::create_directories(program.folder() / "r/profile.json/in the way");
  });
  expect_facts(r.out, {"test    ", "time    "});
}

// Its evaluation within an epoch is one that an undisturbed run does not make.
TEST(MnistRun, GoingOnFromWithinAnEpochSaysWhatStays) {
  const Program program;
  program.run(0, {"train", "--limit", "200", "--batch", "20", "--steps", "14", "--hidden", "8",
                     "--threads", "1"});
  const Result r = program.run(0, {"train", "--resume", "--steps", "25"});
  expect_facts(r.err, {"the run had ended within epoch 2: "});
}

// Not at each of the epochs in which it does.
TEST(MnistRun, DivergingIsSaidOnce) {
  const Program program;
  const Result r =
      program.run(6, {"train", "--limit", "64", "--epochs", "12", "--hidden", "16", "--threads",
                         "1", "--optimizer", "sgd", "--lr", "1000", "--clip", "1", "--out", "r"});
  EXPECT_EQ(times_in(r.err, "training diverges"), 1) << r.err;
  EXPECT_EQ(times_in(text_of(program.folder() / "r/events.jsonl"), "\"warning\""), 1);
}

}  // namespace
}  // namespace sinter::test
