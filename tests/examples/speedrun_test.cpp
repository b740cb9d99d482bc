// mnist speedrun: its runs are those of `mnist train`, its intervals those of their numbers, and
// its verdict that of the intervals. No time is asserted.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "tests/examples/program.h"

namespace sinter::test {
namespace {

using nlohmann::json;

const Words kTinyRecipe{"--preset", "fast98", "--dtype", "f32", "--hidden", "16", "--limit", "300",
    "--batch", "32", "--threads", "1"};
const Words kTinySpeedrun =
    Words{"speedrun"} + kTinyRecipe + Words{"--target-acc", "0", "--target-seconds", "1e6"};

TEST(MnistSpeedrun, ItsRunsAreThoseOfTrainAndItsIntervalsTheirs) {
  const Program program;
  const json all = json_of(program, kTinySpeedrun + Words{"--seeds", "3", "--seed", "4"});
  ASSERT_EQ(all["runs"].size(), 3u);
  EXPECT_FALSE(std::filesystem::exists(program.folder() / "runs"));
  double sum = 0, squares = 0, worst = 100;
  for (int i = 0; i < 3; ++i) {
    const json& run = all["runs"][i];
    const std::string seed = std::to_string(4 + i);
    EXPECT_EQ(run["seed"], seed);
    const json alone =
        json_of(program, Words{"train"} + kTinyRecipe + Words{"--target-acc", "0", "--seed", seed});
    EXPECT_DOUBLE_EQ(run["accuracy"].get<double>(), 100 * alone["test"]["accuracy"].get<double>());
    EXPECT_EQ(run["loss"], alone["test"]["loss"]);
    EXPECT_GT(run["seconds"].get<double>(), 0);
    sum += run["accuracy"].get<double>();
    worst = std::min(worst, run["accuracy"].get<double>());
  }
  for (const json& run : all["runs"])
    squares += std::pow(run["accuracy"].get<double>() - sum / 3, 2);
  // Student's t of two degrees of freedom.
  const double half = 4.30265 * std::sqrt(squares / 2 / 3);
  EXPECT_DOUBLE_EQ(all["accuracy"]["value"].get<double>(), sum / 3);
  EXPECT_NEAR(all["accuracy"]["low"].get<double>(), std::max(0.0, sum / 3 - half), 1e-3 * half);
  EXPECT_NEAR(all["accuracy"]["high"].get<double>(), std::min(100.0, sum / 3 + half), 1e-3 * half);
  EXPECT_EQ(all["worst_accuracy"], worst);
  EXPECT_EQ(all["set"], "test");
  EXPECT_EQ(all["images"], 300);
  EXPECT_EQ(all["steps"], 20);
  EXPECT_EQ(all["holds"], true);
  expect_facts(all["machine"], {", 1 thread, "});
}

TEST(MnistSpeedrun, ChoosesByImagesHeldOut) {
  const json all = json_of(Program(), kTinySpeedrun + Words{"--seeds", "2", "--val", "20"});
  EXPECT_EQ(all["set"], "held-out");
  EXPECT_EQ(all["images"], 20);
  expect_facts(all["row"], {"held-out"});
}

TEST(MnistSpeedrun, SaysWhetherItsTargetHolds) {
  const Program program;
  const Result good = program.run(0, kTinySpeedrun + Words{"--seeds", "2"});
  expect_facts(
      good.out, {"seed 1  ", "seed 2  ", "accuracy ", " of 300 test images", "time    ", "machine ",
                    "target  0 % in 1000000 s: holds at 95 %", "row     | fast98 | "});
  for (const Words& missed : {Words{"--target-acc", "100"}, {"--target-seconds", "0"}}) {
    const Result r = program.run(7, kTinySpeedrun + missed + Words{"--seeds", "2"});
    expect_facts(r.out, {": does not hold at 95 %"});
    expect_facts(r.err, {"speedrun: the target does not hold at 95 %: accuracy "});
  }
  expect_facts(program.run({"speedrun", "--device", "simt"}).err, {"the device is simt"});
}

}  // namespace
}  // namespace sinter::test
