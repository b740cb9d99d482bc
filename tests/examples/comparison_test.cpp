// What the comparison of two modes decides before it runs.
#include "cli/comparison.h"

#include <gtest/gtest.h>

#include "profiler/thresholds.h"

namespace sinter::cli {
namespace {

// "rounds x (warm-up + steps)" where `steps` of a mode fit the time.
std::string fitted(double steps, int64_t fewest = profiler::kMinPairs) {
  ComparisonFlags comparison;
  comparison.steps = 0;
  FusionFlags fusion;
  Flags flags;
  add_comparison_flags(flags, fusion, comparison);
  fit_rounds(comparison, flags, steps, fewest);
  return str(comparison.rounds, " x (", comparison.warmup, " + ", comparison.steps, ")");
}

TEST(Comparison, ASlowMachineGetsPairsEnoughForAFactor) {
  EXPECT_EQ(fitted(1e9), "9 x (3 + 20)");
  EXPECT_EQ(fitted(9 * 12), "9 x (3 + 9)");
  EXPECT_EQ(fitted(20), "9 x (0 + 2)");
  EXPECT_EQ(fitted(7), "7 x (0 + 1)");
  EXPECT_EQ(fitted(2.9), "6 x (0 + 1)");  // 1.7 s a step, of which 20 s hold 12
  EXPECT_EQ(fitted(0), "6 x (0 + 1)");
  EXPECT_EQ(fitted(2, 3), "3 x (0 + 1)");
}

TEST(Comparison, WhatIsGivenStays) {
  ComparisonFlags comparison;
  comparison.steps = 0;
  FusionFlags fusion;
  Flags flags;
  add_comparison_flags(flags, fusion, comparison);
  Flags::set(*flags.find("rounds"), "2", Source::command_line);
  Flags::set(*flags.find("warmup"), "5", Source::command_line);
  fit_rounds(comparison, flags, 100, 6);
  EXPECT_EQ(comparison.rounds, 2);
  EXPECT_EQ(comparison.warmup, 5);
  EXPECT_EQ(comparison.steps, 20);
}

}  // namespace
}  // namespace sinter::cli
