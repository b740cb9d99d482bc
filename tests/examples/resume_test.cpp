// `mnist train --resume`: a run that was stopped, wherever, and went on ends with the bytes of one
// that was not.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <regex>
#include <thread>

#include "tests/examples/program.h"

namespace sinter::test {
namespace {

namespace fs = std::filesystem;

// 10 batches an epoch, the last of 12.
const Words kThreeEpochs{"train", "--limit", "300", "--batch", "32", "--hidden", "16", "--epochs",
    "3", "--threads", "1", "--log-every", "4", "--dropout", "0.2", "--out", "r"};

std::string content(const Program& program, const std::string& name) {
  return text_of(program.folder() / "r" / name);
}

int64_t epochs_in(const std::string& events) {
  int64_t n = 0;
  for (size_t at = 0; (at = events.find("\"epoch\":", at)) != events.npos; ++at) ++n;
  return n;
}

// What two runs must have in common, byte for byte; the log without the seconds of an epoch.
void expect_same(const Program& a, const Program& b) {
  for (const char* name :
      {"last.safetensors", "model.safetensors", "best.safetensors", "config.toml"})
    EXPECT_TRUE(content(a, name) == content(b, name) && !content(a, name).empty()) << name;
  const std::regex seconds("\"seconds\":[^}]*");  // the one time of a line
  const std::string events = std::regex_replace(content(a, "events.jsonl"), seconds, "");
  EXPECT_EQ(events, std::regex_replace(content(b, "events.jsonl"), seconds, ""));
  EXPECT_GT(epochs_in(events), 2);
}

struct Case {
  std::string mode, optimizer, dtype, augment{};
};
class MnistResume : public testing::TestWithParam<Case> {};

TEST_P(MnistResume, EndsWithTheBytesOfAnUndisturbedRun) {
  const auto& [mode, optimizer, dtype, augment] = GetParam();
  Words train = with(kThreeEpochs, {"--mode", mode, "--optimizer", optimizer, "--dtype", dtype,
                                       "--schedule", "onecycle", "--save-steps", "10"});
  if (!augment.empty()) train = with(train, {"--augment", augment});
  if (optimizer == "adam" || optimizer == "lion")
    train = with(train, {"--betas", "0.7123456789012345,0.93"});
  const StoppingProgram straight, stopped;
  straight.run(0, train);
  // After the first step; within an epoch; at the end of one, where the evaluation is dropped; at
  // the last step.
  Words words = train;
  for (const char* step : {"1", "5", "10", "30"}) {
    const Result r = stopped.run(130, with(words, {"--stop-after", step}));
    EXPECT_EQ(content(stopped, "model.safetensors"), "");
    words = {"train", "--resume"};
  }
  const Result r = stopped.run(0, words);
  expect_same(straight, stopped);
}

INSTANTIATE_TEST_SUITE_P(All, MnistResume,
    testing::Values(Case{"eager", "adam", "f32"}, Case{"eager", "adam", "bf16"},
        Case{"eager", "sgd", "f32"}, Case{"eager", "sgd", "bf16"}, Case{"fused", "adam", "f32"},
        Case{"fused", "adam", "bf16"}, Case{"fused", "sgd", "f32"}, Case{"fused", "sgd", "bf16"},
        Case{"eager", "rmsprop", "f32"}, Case{"fused", "lion", "bf16"},
        Case{"eager", "adam", "f32", "shift=2,rotate=10"},
        Case{"fused", "adam", "f32", "shift=2,rotate=10,scale=10"}),
    [](const auto& info) {
      return info.param.mode + "_" + info.param.optimizer + "_" + info.param.dtype +
             (info.param.augment.empty() ? "" : "_augmented");
    });

// Running statistics, dropout and augmented images go on where they were.
TEST(MnistResume, AConvolutionalNetEndsWithTheBytesOfAnUndisturbedRun) {
  for (const char* mode : {"eager", "fused"}) {
    const StoppingProgram straight, stopped;
    Words words{"train", "--limit", "300", "--batch", "32", "--epochs", "3", "--threads", "1",
        "--log-every", "4", "--out", "r", "--augment", "shift=2,rotate=10", "--mode", mode,
        "--model", "conv 4 5 stride 2; batchnorm; relu; pool 2; flatten; dropout 0.2; linear 10"};
    straight.run(0, words);
    for (const char* step : {"1", "14"}) {
      const Result r = stopped.run(130, with(words, {"--stop-after", step}));
      words = {"train", "--resume"};
    }
    stopped.run(0, words);
    expect_same(straight, stopped);
  }
}

TEST(MnistResume, ARealSignalIsNoMoreThanAPause) {
  const Program straight, stopped;
  const Words train = with(kThreeEpochs, {"--epochs", "60", "--mode", "fused"});
  straight.run(0, train);
  const auto rows = [&] { return epochs_in(content(stopped, "events.jsonl")); };
  Words words = train;
  for (const int signal : {SIGINT, SIGTERM}) {
    const auto before = rows();
    const Result r = stopped.run(130, words, [&](pid_t child) {
      for (int i = 0; i < 10000 && rows() < before + 3; ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      kill(child, signal);
    });
    expect_facts(r.out, {"time    "});
    words = {"train", "--resume"};
  }
  stopped.run(0, words);
  expect_same(straight, stopped);
}

TEST(MnistResume, MoreEpochsUnderAConstantRateAreAsIfPlanned) {
  const Program straight, longer;
  straight.run(0, with(kThreeEpochs, {"--val", "0"}));
  longer.run(0, with(kThreeEpochs, {"--val", "0", "--epochs", "2"}));
  const Result r = longer.run(0, {"train", "--resume", "r", "--epochs", "3"});
  EXPECT_FALSE(has(r.err, "the bits of an undisturbed one")) << r.err;
  expect_facts(r.err, {"resume  r after step 20 of 30 (epoch 3, batch 0)"});
  expect_facts(r.out, {" of training, 10 steps, 1 epoch now; in all 30 steps, 3 epochs in ",
                          " but for what stops cut off, "});
  EXPECT_EQ(content(straight, "model.safetensors"), content(longer, "model.safetensors"));

  // Of a run that ended within an epoch the rest of it comes first.
  const Program cut;
  Words steps = kThreeEpochs;
  std::replace(steps.begin(), steps.end(), std::string("--epochs"), std::string("--steps"));
  std::replace(steps.begin(), steps.end(), std::string("3"), std::string("14"));
  cut.run(0, with(steps, {"--val", "0"}));
  EXPECT_EQ(json_of(cut, {"train", "--resume", "--epochs", "3"})["epochs"].size(), 3U);
  EXPECT_EQ(epochs_in(content(cut, "events.jsonl")), 4) << "that within epoch 2 stays in the log";
}

TEST(MnistResume, SaysWhatIsFinishedAndWhatIsNotIdentical) {
  const StoppingProgram program;
  program.run(130, with(kThreeEpochs, {"--mode", "eager", "--stop-after", "12"}));
  program.run(0, {"train", "--resume", "r"});
  const Result finished = program.run(0, {"train", "--resume", "--json", "--profile"});
  expect_facts(finished.err, {"r is finished: 30 steps; a larger --epochs or --steps goes on"});
  EXPECT_EQ(nlohmann::json::parse(finished.out)["epochs"].size(), 3u);
  EXPECT_EQ(nlohmann::json::parse(finished.out)["steps"], 30);

  const Result differs =
      program.run(0, {"train", "--resume", "--epochs", "4", "--lr", "0.01", "--betas", "0.8,0.999",
                         "--mode", "fused", "--threads", "2"});
  expect_facts(differs.err,
      {"the bits of an undisturbed one: --lr was 0.001, now 0.01",
          "the bits of an undisturbed one: --betas was \"0.9,0.999\", now \"0.8,0.999\"",
          "the bits of an undisturbed one: --mode was \"eager\", now \"fused\"",
          "the bits of an undisturbed one: --threads was 1, now 2", ", 10 of 10 steps replayed"});

  std::filesystem::remove(program.folder() / "r/last.safetensors");
  expect_facts(program.run(4, {"train", "--resume", "r"}).err, {"weights only: ", "--init "});
}

TEST(MnistResume, OtherDataAndADamagedFileAreRefused) {
  const StoppingProgram program;
  program.run(130, with(kThreeEpochs, {"--stop-after", "2"}));
  std::string bytes = content(program, "last.safetensors");
  bytes.back() ^= 1;
  program.write("r/last.safetensors", bytes);
  expect_facts(program.run(4, {"train", "--resume", "r"}).err, {"checkpoint: damaged: "});
  bytes.back() ^= 1;
  const size_t at = bytes.find("data_crc");
  const size_t digit = bytes.find_first_of("123456789", at);
  bytes[digit] = bytes[digit] == '1' ? '2' : '1';
  program.write("r/last.safetensors", bytes);
  expect_facts(program.run(4, {"train", "--resume", "r"}).err, {"cannot resume with other data: "});
}

}  // namespace
}  // namespace sinter::test
