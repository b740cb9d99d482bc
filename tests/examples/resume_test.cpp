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
  return Program::text(program.folder() / "r" / name);
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
  const Program straight, stopped;
  ASSERT_EQ(straight.run(train).status, 0);
  // After the first step; within an epoch; at the end of one, where the evaluation is dropped; at
  // the last step.
  Words words = train;
  for (const char* step : {"1", "5", "10", "30"}) {
    const Result r = stopped.run(with(words, {"--stop-after", step}));
    ASSERT_EQ(r.status, 130) << step << r.err;
    EXPECT_EQ(content(stopped, "model.safetensors"), "");
    words = {"train", "--resume"};
  }
  const Result r = stopped.run(words);
  ASSERT_EQ(r.status, 0) << r.err;
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
    const Program straight, stopped;
    Words words{"train", "--limit", "300", "--batch", "32", "--epochs", "3", "--threads", "1",
        "--log-every", "4", "--out", "r", "--augment", "shift=2,rotate=10", "--mode", mode,
        "--model", "conv 4 5 stride 2; batchnorm; relu; pool 2; flatten; dropout 0.2; linear 10"};
    ASSERT_EQ(straight.run(words).status, 0);
    for (const char* step : {"1", "14"}) {
      const Result r = stopped.run(with(words, {"--stop-after", step}));
      ASSERT_EQ(r.status, 130) << step << r.err;
      words = {"train", "--resume"};
    }
    ASSERT_EQ(stopped.run(words).status, 0);
    expect_same(straight, stopped);
  }
}

TEST(MnistResume, ARealSignalIsNoMoreThanAPause) {
  const Program straight, stopped;
  const Words train = with(kThreeEpochs, {"--epochs", "60", "--mode", "fused"});
  ASSERT_EQ(straight.run(train).status, 0);
  const auto rows = [&] { return epochs_in(content(stopped, "events.jsonl")); };
  Words words = train;
  for (const int signal : {SIGINT, SIGTERM}) {
    const auto before = rows();
    const Result r = stopped.run(words, [&](pid_t child) {
      for (int i = 0; i < 10000 && rows() < before + 3; ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      kill(child, signal);
    });
    ASSERT_EQ(r.status, 130) << r.err;
    EXPECT_TRUE(has(r.out, "time    ")) << r.out;
    words = {"train", "--resume"};
  }
  ASSERT_EQ(stopped.run(words).status, 0);
  expect_same(straight, stopped);
}

TEST(MnistResume, MoreEpochsUnderAConstantRateAreAsIfPlanned) {
  const Program straight, longer;
  ASSERT_EQ(straight.run(with(kThreeEpochs, {"--val", "0"})).status, 0);
  ASSERT_EQ(longer.run(with(kThreeEpochs, {"--val", "0", "--epochs", "2"})).status, 0);
  const Result r = longer.run({"train", "--resume", "r", "--epochs", "3"});
  ASSERT_EQ(r.status, 0) << r.err;
  EXPECT_FALSE(has(r.err, "the bits of an undisturbed one")) << r.err;
  EXPECT_TRUE(has(r.err, "resume  r after step 20 of 30 (epoch 3, batch 0)")) << r.err;
  EXPECT_TRUE(has(r.out, " of training, 10 steps, 1 epoch now; in all 30 steps, 3 epochs in "))
      << r.out;
  EXPECT_EQ(content(straight, "model.safetensors"), content(longer, "model.safetensors"));

  // Of a run that ended within an epoch the rest of it comes first.
  const Program cut;
  Words steps = kThreeEpochs;
  std::replace(steps.begin(), steps.end(), std::string("--epochs"), std::string("--steps"));
  std::replace(steps.begin(), steps.end(), std::string("3"), std::string("14"));
  ASSERT_EQ(cut.run(with(steps, {"--val", "0"})).status, 0);
  const Result rest = cut.run({"train", "--resume", "--epochs", "3", "--json"});
  ASSERT_EQ(rest.status, 0) << rest.err;
  EXPECT_EQ(nlohmann::json::parse(rest.out)["epochs"].size(), 3U);
  EXPECT_EQ(epochs_in(content(cut, "events.jsonl")), 4) << "that within epoch 2 stays in the log";
}

TEST(MnistResume, SaysWhatIsFinishedWhatMustMatchAndWhatIsNotIdentical) {
  const Program program;
  ASSERT_EQ(program.run(with(kThreeEpochs, {"--stop-after", "12"})).status, 130);
  struct Refusal {
    Words words;
    int status;
    Words facts;
  };
  for (const Refusal& c : std::vector<Refusal>{{{"--batch-size", "64"}, 4,
                                                   {"cannot resume with another --batch-size: ",
                                                       "r/last.safetensors has 32, asked 64"}},
           {{"--model", "linear"}, 4, {"another --model"}},
           {{"--hidden", "8"}, 4, {"another --hidden", "has \"16\", asked \"8\""}},
           {{"--dtype", "bf16"}, 4, {"another --dtype"}}, {{"--seed", "2"}, 4, {"another --seed"}},
           {{"--limit", "200"}, 4, {"another --limit"}},
           {{"--augment", "shift=1"}, 4, {"another --augment"}},
           {{"--out", "s"}, 2, {"--resume and --out exclude each other"}},
           {{"--init", "r"}, 2, {"--resume and --init exclude each other"}},
           {{"--force"}, 2, {"--resume and --force exclude each other"}},
           {{"--optimizer", "adma"}, 2, {"nearest is adam"}}}) {
    const Result r = program.run(with({"train", "--resume", "r"}, c.words));
    EXPECT_EQ(r.status, c.status) << r.err;
    EXPECT_EQ(r.out, "");
    for (const std::string& fact : c.facts) EXPECT_TRUE(has(r.err, fact)) << fact << "\n" << r.err;
  }
  EXPECT_EQ(program.run({"train", "--resume", "none"}).status, 4);

  ASSERT_EQ(program.run({"train", "--resume", "r"}).status, 0);
  const Result finished = program.run({"train", "--resume", "--json"});
  EXPECT_EQ(finished.status, 0) << finished.err;
  EXPECT_TRUE(has(finished.err, "r is finished: 30 steps; a larger --epochs or --steps goes on"))
      << finished.err;
  EXPECT_EQ(nlohmann::json::parse(finished.out)["epochs"].size(), 3u);
  EXPECT_EQ(nlohmann::json::parse(finished.out)["steps"], 30);

  const Result differs = program.run({"train", "--resume", "--epochs", "4", "--lr", "0.01",
      "--betas", "0.8,0.999", "--mode", "fused", "--threads", "2"});
  EXPECT_EQ(differs.status, 0) << differs.err;
  for (const char* note : {"the bits of an undisturbed one: --lr was 0.001, now 0.01",
           "the bits of an undisturbed one: --betas was \"0.9,0.999\", now \"0.8,0.999\"",
           "the bits of an undisturbed one: --mode was \"eager\", now \"fused\"",
           "the bits of an undisturbed one: --threads was 1, now 2"})
    EXPECT_TRUE(has(differs.err, note)) << note << "\n" << differs.err;

  std::filesystem::remove(program.folder() / "r/last.safetensors");
  const Result weights = program.run({"train", "--resume", "r"});
  EXPECT_EQ(weights.status, 4);
  EXPECT_TRUE(has(weights.err, "weights only: ")) << weights.err;
  EXPECT_TRUE(has(weights.err, "--init ")) << weights.err;
}

TEST(MnistResume, OtherDataAndADamagedFileAreRefused) {
  const Program program;
  ASSERT_EQ(program.run(with(kThreeEpochs, {"--stop-after", "2"})).status, 130);
  std::string bytes = content(program, "last.safetensors");
  bytes.back() ^= 1;
  program.write("r/last.safetensors", bytes);
  const Result damaged = program.run({"train", "--resume", "r"});
  EXPECT_EQ(damaged.status, 4);
  EXPECT_TRUE(has(damaged.err, "checkpoint: damaged: ")) << damaged.err;
  bytes.back() ^= 1;
  const size_t at = bytes.find("data_crc");
  const size_t digit = bytes.find_first_of("123456789", at);
  bytes[digit] = bytes[digit] == '1' ? '2' : '1';
  program.write("r/last.safetensors", bytes);
  const Result other = program.run({"train", "--resume", "r"});
  EXPECT_EQ(other.status, 4);
  EXPECT_TRUE(has(other.err, "cannot resume with other data: ")) << other.err;
}

}  // namespace
}  // namespace sinter::test
