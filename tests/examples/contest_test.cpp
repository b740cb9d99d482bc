// What the contest of two modes decides before it runs.
#include "examples/cli/contest.h"

#include <gtest/gtest.h>

#include "profiler/thresholds.h"

namespace sinter::cli {
namespace {

// "rounds x (warm-up + steps)" where `steps` of a mode fit the time.
std::string fitted(double steps, int64_t fewest = profiler::kMinPairs) {
  ContestFlags contest;
  contest.steps = 0;
  FusionFlags fusion;
  Flags flags;
  add_contest_flags(flags, fusion, contest);
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
  ContestFlags contest;
  contest.steps = 0;
  FusionFlags fusion;
  Flags flags;
  add_contest_flags(flags, fusion, contest);
  Flags::set(*flags.find("rounds"), "2", Source::command_line);
  Flags::set(*flags.find("warmup"), "5", Source::command_line);
  fit_rounds(contest, flags, 100, 6);
  EXPECT_EQ(contest.rounds, 2);
  EXPECT_EQ(contest.warmup, 5);
  EXPECT_EQ(contest.steps, 20);
}

}  // namespace
}  // namespace sinter::cli
