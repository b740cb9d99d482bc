// What the contest says of the saving that it expected. The numbers are made up.
#include "examples/cli/contest.h"

#include <gtest/gtest.h>

namespace sinter::cli {
namespace {

bool looks(const Saving& expected, double low, double high) {
  return estimate_text(expected, {(low + high) / 2, low, high, true}).ends_with("  LOOK");
}

TEST(Estimate, BytesInACacheMayCostNothing) {
  const Saving cached{.launches = 16, .launch_us = 0.5, .kilobytes = 3000, .copy_gbs = 100, .in_cache = true};
  EXPECT_EQ(estimate_text(cached, {18.2, 12, 25, true}),
            "estimate: -16 launches x 0.50us, and -3000.0 kB at 100 GB/s = 0 to 30.0us, as they fit the cache | "
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
            "estimate: -16 launches x 0.50us, and -3000.0 kB at 100 GB/s = 30.0us | expected 38.0us, saved 18.2 "
            "[12.0,25.0]  LOOK");
  EXPECT_FALSE(looks(memory, 30, 35));
  EXPECT_TRUE(looks(memory, 7, 9));
}

}  // namespace
}  // namespace sinter::cli
