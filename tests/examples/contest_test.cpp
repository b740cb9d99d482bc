// What the contest of two modes decides before it runs, and what it says of the saving that it
// expected.
#include "examples/cli/contest.h"

#include <gtest/gtest.h>

#include "profiler/thresholds.h"

namespace sinter::cli {
namespace {

bool looks(const Saving& expected, double low, double high) {
  return estimate_text(expected, {(low + high) / 2, low, high, true}).ends_with("  LOOK");
}

TEST(Estimate, BytesInACacheMayCostNothing) {
  const Saving cached{
      .launches = 16, .launch_us = 0.5, .kilobytes = 3000, .copy_gbs = 100, .in_cache = true};
  EXPECT_EQ(estimate_text(cached, {18.2, 12, 25, true}),
      "estimate: -16 launches x 0.50us, and -3000.0 kB at 100 GB/s = 0 to 30.0us, as they fit the "
      "cache | "
      "expected 8.0 to 38.0us, saved 18.2 [12.0,25.0]");
  EXPECT_FALSE(looks(cached, 7, 9)) << "the launches alone";
  EXPECT_FALSE(looks(cached, 36, 44)) << "all of it";
  EXPECT_FALSE(looks(cached, -10, 8)) << "not shown, but possible";
  EXPECT_TRUE(looks(cached, 60, 70));
  EXPECT_TRUE(looks(cached, -10, 2));
}

TEST(Estimate, BytesFromMemoryCostWhatCopyingCosts) {
  const Saving memory{.launches = 16, .launch_us = 0.5, .kilobytes = 3000, .copy_gbs = 100};
  EXPECT_EQ(estimate_text(memory, {18.2, 12, 25, true}),
      "estimate: -16 launches x 0.50us, and -3000.0 kB at 100 GB/s = 30.0us | expected 38.0us, "
      "saved 18.2 "
      "[12.0,25.0]  LOOK");
  EXPECT_FALSE(looks(memory, 30, 35));
  EXPECT_TRUE(looks(memory, 7, 9));
}

// "rounds x (warm-up + steps)" where `steps` of a mode fit the time.
std::string fitted(double steps, int64_t fewest = profiler::kMinPairs) {
  ContestFlags contest{.steps = 0};
  Flags flags;
  add_contest_flags(flags, contest);
  fit_rounds(contest, flags, steps, fewest);
  return cat(contest.rounds, " x (", contest.warmup, " + ", contest.steps, ")");
}

TEST(Contest, ASlowMachineGetsPairsEnoughForAFactor) {
  EXPECT_EQ(fitted(1e9), "9 x (3 + 20)");
  EXPECT_EQ(fitted(9 * 12), "9 x (3 + 9)");
  EXPECT_EQ(fitted(20), "9 x (0 + 2)");
  EXPECT_EQ(fitted(7), "7 x (0 + 1)");
  EXPECT_EQ(fitted(2.9), "6 x (0 + 1)");  // 1.7 s a step, of which 20 s hold 12
  EXPECT_EQ(fitted(0), "6 x (0 + 1)");
  EXPECT_EQ(fitted(2, 3), "3 x (0 + 1)");
}

TEST(Contest, WhatIsGivenStays) {
  ContestFlags contest{.steps = 0};
  Flags flags;
  add_contest_flags(flags, contest);
  Flags::set(*flags.find("rounds"), "2", Source::command_line);
  Flags::set(*flags.find("warmup"), "5", Source::command_line);
  fit_rounds(contest, flags, 100, 6);
  EXPECT_EQ(contest.rounds, 2);
  EXPECT_EQ(contest.warmup, 5);
  EXPECT_EQ(contest.steps, 20);
}

}  // namespace
}  // namespace sinter::cli
