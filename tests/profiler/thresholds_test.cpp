// The numbers at which the profiler speaks up, as GLOSSARY and its texts promise them: the other
// tests name them by their symbols, and would follow a change.
#include "profiler/thresholds.h"

#include <gtest/gtest.h>

namespace sinter::profiler {
namespace {

TEST(Thresholds, AreTheNumbersThatArePromised) {
  EXPECT_EQ(kHotShare, 0.40);
  EXPECT_EQ(kManyCalls, 5);
  EXPECT_EQ(kDrillFactor, 2);
  EXPECT_EQ(kSurprise, 3);
  EXPECT_EQ(kSmallRow, 0.05);
  EXPECT_EQ(kSlowStep, 2);
  EXPECT_EQ(kBusySpread, 0.25);
  EXPECT_EQ(kBusyDistortion, 25);
  EXPECT_EQ(kSlowThreads, 2);
  EXPECT_EQ(kFlopRateFrom, 4);
  EXPECT_EQ(kNoisy, 0.20);
  EXPECT_EQ(kMinPairs, 6);
  EXPECT_EQ(kResamples, 10'000);
  EXPECT_EQ(kLoad, 0.15);
  EXPECT_EQ(kThrottled, 0.75);
  EXPECT_EQ(kAboveRoof, 1.05);
  EXPECT_EQ(kNearRoof, 0.60);
  EXPECT_EQ(kFarFromRoof, 0.30);
  EXPECT_EQ(kInputShare, 0.20);
  EXPECT_EQ(kHostShare, 0.25);
  EXPECT_EQ(kClassShare, 0.50);
}

}  // namespace
}  // namespace sinter::profiler
