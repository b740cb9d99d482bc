#include "core/device/denormal.h"

#include <gtest/gtest.h>

#include <limits>
#include <thread>

namespace sinter {
namespace {

float half_of(float x) {
  const volatile float operand = x;
  return operand * 0.5f;
}
constexpr float kLeast = std::numeric_limits<float>::min(),
                kDenormal = std::numeric_limits<float>::denorm_min();

TEST(Denormal, IsZeroWhereItIsFlushedAndInThreadsBegunThen) {
  EXPECT_GT(half_of(kLeast), 0.0f);
  if (!set_flush_denormal(true)) GTEST_SKIP() << "not on this processor";
  float result = -1, operand = -1, in_thread = -1;
  result = half_of(kLeast);
  operand = half_of(64 * kDenormal);
  std::thread([&] { in_thread = half_of(kLeast); }).join();
  EXPECT_EQ(half_of(4 * kLeast), 2 * kLeast);  // as ever
  set_flush_denormal(false);
  EXPECT_EQ(result, 0.0f);
  EXPECT_EQ(operand, 0.0f);
  EXPECT_EQ(in_thread, 0.0f);
  EXPECT_GT(half_of(kLeast), 0.0f);
}

}  // namespace
}  // namespace sinter
