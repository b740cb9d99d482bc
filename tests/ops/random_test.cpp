#include <gtest/gtest.h>

#include <cmath>

#include "core/context.h"
#include "ops/ops.h"
#include "tests/closeness.h"
#include "tests/test_util.h"

namespace sinter {
namespace {

TEST(Randn, HasTheMomentsOfANormalDistribution) {
  manual_seed(1);
  const int64_t n = 100'000;
  const std::vector<double> x = randn({n}, DType::f64).to_vector<double>();
  std::vector<double> moments(4), allowed;
  for (const double v : x) {
    ASSERT_TRUE(std::isfinite(v));
    for (int k = 0; k < 4; ++k) moments[k] += std::pow(v, k + 1) / double(n);
  }
  // The deviations of these means are sqrt(1/n), sqrt(2/n), sqrt(15/n), sqrt(96/n); five of each.
  for (const double variance : {1, 2, 15, 96})
    allowed.push_back(5 * std::sqrt(variance / double(n)));
  EXPECT_TRUE(test::close(moments, {0, 1, 0, 3}, {.each = allowed}));
}

TEST(Randn, IsAFunctionOfTheSeedAndTheNumberOfTheTensor) {
  manual_seed(7);
  const Tensor first = randn({3, 4}), second = randn({3, 4});
  EXPECT_NE(first.to_vector<float>(), second.to_vector<float>());
  manual_seed(7);
  const Device simt{Device::Type::simt, 0};
  const Tensor again = randn({3, 4}, DType::f32, simt);
  EXPECT_EQ(again.device(), simt);
  EXPECT_EQ(again.to_vector<float>(), first.to_vector<float>()) << "on every device";
  EXPECT_EQ(randn({12}).to_vector<float>(), second.to_vector<float>());
  manual_seed(8);
  EXPECT_NE(randn({3, 4}).to_vector<float>(), first.to_vector<float>());
  EXPECT_EQ(randn({0, 4}).numel(), 0);
  EXPECT_EQ(randn({}).rank(), 0);
}

TEST(Randn, RefusesIntegersAndCapturedSteps) {
  test::expect_error(Error::Kind::dtype, {"i32"}, [] { randn({2}, DType::i32); });
  Context::current().host_reads_forbidden = "a captured step";
  test::expect_error(Error::Kind::state, {"randn: ", "a captured step"}, [] { randn({2}); });
  Context::current().host_reads_forbidden = nullptr;
}

}  // namespace
}  // namespace sinter
