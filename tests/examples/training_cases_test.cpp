// Runs of `mnist train` that once ended with a wrong figure, or without a word that was due.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <regex>

#include "distributed/mpi.h"
#include "tests/data/data_test_util.h"
#include "tests/examples/program.h"

namespace sinter::test {
namespace {

const Words kDrawn{"train", "--data", "synthetic", "--threads", "1", "--hidden", "16"};

std::vector<nlohmann::json> lines_with(const Program& program, const char* key) {
  std::vector<nlohmann::json> out;
  std::istringstream events(text_of(program.folder() / "r" / "events.jsonl"));
  for (std::string line; std::getline(events, line);) {
    if (const auto json = nlohmann::json::parse(line); json.contains(key)) out.push_back(json);
  }
  return out;
}

// At a rate of 1e-30 an epoch's loss is the same however its 1,001 rows are taken: 1,000 and 1, or
// 2 x 500 and 1; in the log, the object of --json and on the screen; of a run that was stopped
// within an epoch; and of several ranks.
TEST(Cases, AccumLossOfAnEpoch) {
  const Words still = kDrawn + Words{"--optimizer", "sgd", "--momentum", "0", "--lr", "1e-30",
                                   "--epochs", "2", "--val", "0", "--limit", "1001", "--seed", "3",
                                   "--log-every", "1", "--out", "r"};
  const auto losses = [&](const Words& more, bool stops, int ranks) {
    StoppingProgram program;
    if (ranks > 1) {
      program.launcher = {
          "mpirun", "--oversubscribe", "--bind-to", "none", "-np", std::to_string(ranks)};
      program.environment = {"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
          "OMPI_MCA_btl_vader_single_copy_mechanism=none"};
    }
    Words words = still + more;
    if (stops) {
      program.run(130, words + Words{"--stop-after", "1"});
      words = {"train", "--resume"};
    }
    const Result result = program.run(0, words + Words{"--json"});
    std::vector<double> all;
    const auto json = nlohmann::json::parse(result.out);
    for (const auto& row : json["epochs"]) all.push_back(row["loss"]);
    std::vector<double> logged;
    for (const auto& row : lines_with(program, "epoch")) logged.push_back(row["loss"]);
    EXPECT_EQ(all, logged);
    char shown[32];
    std::snprintf(shown, sizeof shown, "loss %.4f", all.back());
    expect_facts(result.err, {shown});
    return all;
  };
  const double truth = losses({"--batch-size", "1000"}, false, 1).back();
  EXPECT_NEAR(truth, 2.30, 0.1);
  for (const char* mode : {"eager", "fused"}) {
    for (const bool stops : {false, true}) {
      for (const Words& taken : {Words{"--batch-size", "1000"},
               {"--batch-size", "500", "--accum", "2"}, {"--batch-size", "150", "--accum", "3"}}) {
        for (const double loss : losses(taken + Words{"--mode", mode}, stops, 1))
          EXPECT_NEAR(loss, truth, 1e-6) << mode << taken[1] << stops;
      }
    }
  }
  const bool several = std::system(
                           "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "
                           "timeout 30 mpirun --oversubscribe --bind-to none -np 2 true "
                           ">/dev/null 2>&1") == 0;
  if (distributed::mpi_version().empty() || !several) return;
  for (const Words& accum : {Words{}, {"--accum", "2"}}) {
    for (const double loss : losses(Words{"--batch-size", "500"} + accum, false, 2))
      EXPECT_NEAR(loss, truth, 1e-6) << "two ranks";
  }
}

// The rate of a schedule that goes on over more epochs is another: both are told.
TEST(Cases, MoreEpochsAfterACosine) {
  for (const char* schedule : {"cosine", "onecycle"}) {
    const Program program;
    program.run(0, kDrawn + Words{"--limit", "600", "--schedule", schedule, "--epochs", "2",
                                "--out", "r", "--log-every", "1"});
    const std::string err = program.run(0, {"train", "--resume=r", "--epochs", "4", "-q"}).err;
    const auto rates = lines_with(program, "lr");
    double last = 0, next = 0;
    for (const auto& row : rates) {
      if (row.contains("epoch") || !row.contains("step")) continue;
      if (row["step"] == 10) last = row["lr"];
      if (row["step"] == 11) next = row["lr"];
    }
    EXPECT_GT(next, 10 * last) << "it jumps";
    char text[128];
    std::snprintf(text, sizeof text, "jumps: %.2g in step 10, %.2g in step 11", last, next);
    expect_facts(err, {"the learning rate " + std::string(text)});
  }
  // As planned, no rate jumps.
  const StoppingProgram program;
  program.run(130, kDrawn + Words{"--limit", "600", "--schedule", "cosine", "--out", "r",
                                "--epochs", "2", "--stop-after", "3"});
  EXPECT_FALSE(has(program.run(0, {"train", "--resume=r"}).err, "jumps"));
  const Program constant;
  constant.run(0, kDrawn + Words{"--limit", "600", "--epochs", "1", "--out", "r"});
  EXPECT_FALSE(has(constant.run(0, {"train", "--resume=r", "--epochs", "2"}).err, "jumps"));
}

// predict --raw takes the bytes of a PNG, whatever it says of its gamma.
TEST(Cases, PngGamma) {
  const Program program;
  program.run(0, kDrawn + Words{"--limit", "600", "--epochs", "1", "--out", "m"});
  Bytes pixels(28 * 28);
  for (int i = 9; i < 20; ++i) {
    for (int j = 9; j < 20; ++j) pixels[size_t(28 * i + j)] = uint8_t(40 + i * j);
  }
  const Bytes plain = png(28, 28, 1, pixels), body = big32(100000);
  const Bytes named = bytes_of("gAMA") + body, chunk = big32(4) + named + big32(crc32(named));
  Bytes gamma = plain;
  gamma.insert(gamma.begin() + 33, chunk.begin(), chunk.end());
  const auto logits = [&](const char* name, const Bytes& file) {
    program.write(name, std::string(file.begin(), file.end()));
    auto json = nlohmann::json::parse(
        program.run(0, {"predict", "--from", "m", name, "--raw", "--json"}).out);
    return std::regex_replace(json.dump(), std::regex(name), "");
  };
  EXPECT_EQ(logits("plain.png", plain), logits("gamma.png", gamma));
}

// Before the first step, with the flag that cures it, and nothing is written.
TEST(Cases, BatchNormAndALastBatchOfOneRowIsToldAtOnce) {
  const Program program;
  const Words words{"train", "--data", "synthetic", "--threads", "1", "--val", "0", "--limit", "65",
      "--out", "r", "--model", "conv 3 28; batchnorm; flatten; linear 10"};
  for (const Words& sizes : {Words{"--batch-size", "64"}, {"--batch-size", "32"},
           {"--batch-size", "16", "--accum", "2"}, {"--batch-size", "1"}}) {
    expect_facts(program.run(2, words + sizes).err,
        {"last batch of an epoch is of one row", "one value per channel", "hint: --batch-size"});
    EXPECT_FALSE(std::filesystem::exists(program.folder() / "r"));
  }
  expect_facts(program.run(2, words + Words{"--batch-size", "64"}).err, {"--batch-size 65 leaves"});
  program.run(0, words + Words{"--batch-size", "65", "--epochs", "1"});
}

TEST(Cases, ABatchOfMoreRowsThanThereAreIsTold) {
  const Program program;
  const Result result =
      program.run(0, {"inspect", "--data", "synthetic", "--limit", "40", "--batch", "1000000",
                         "--hidden", "8", "--threads", "1"});
  expect_facts(
      result.err + result.out, {"a batch of 1,000,000 rows was asked for; the set has 40"});
}

}  // namespace
}  // namespace sinter::test
