// Initial values: bounds and moments of each scheme, and that they depend on (seed, number of the
// parameter) alone.
#include "nn/init.h"

#include <gtest/gtest.h>

#include <cmath>

#include "nn/activations.h"
#include "nn/linear.h"
#include "nn/sequential.h"
#include "tests/closeness.h"

namespace sinter::nn {
namespace {

struct Moments {
  double mean = 0, deviation = 0, low = 0, high = 0;
};
Moments moments(const Tensor& t) {
  Moments m{0, 0, INFINITY, -INFINITY};
  const std::vector<double> values = t.to_vector<double>();
  const double n = double(values.size());
  for (const double v : values) {
    m.mean += v / n;
    m.low = std::min(m.low, v);
    m.high = std::max(m.high, v);
  }
  for (const double v : values) m.deviation += (v - m.mean) * (v - m.mean) / n;
  m.deviation = std::sqrt(m.deviation);
  return m;
}

// [200, 300]: 60,000 draws; the deviation of a sample mean is 1/245 of the distribution's.
TEST(Init, DistributionsHaveTheirBoundsAndMoments) {
  const Tensor t = Tensor::empty({200, 300});
  init::Stream stream{7};
  const auto expect_uniform = [&](double bound) {
    const Moments m = moments(t);
    EXPECT_LE(std::max(-m.low, m.high), bound * (1 + 1e-6));
    EXPECT_GT(std::min(-m.low, m.high), bound * 0.999);
    EXPECT_NEAR(m.mean, 0, bound * 0.02);
    EXPECT_NEAR(m.deviation, bound / std::sqrt(3.0), bound * 0.02);
  };
  const auto expect_normal = [&](double mean, double deviation) {
    const Moments m = moments(t);
    EXPECT_NEAR(m.mean, mean, deviation * 0.02);
    EXPECT_NEAR(m.deviation, deviation, deviation * 0.02);
    EXPECT_GT(m.high - mean, 3.5 * deviation);
    EXPECT_LT(m.high - mean, 6 * deviation);
  };
  init::linear_default(t, 300, stream);
  expect_uniform(1 / std::sqrt(300.0));
  init::normal(t, 3, 0.5, stream);
  expect_normal(3, 0.5);
  init::zeros(t);
  EXPECT_EQ(moments(t).high - moments(t).low, 0);
  EXPECT_EQ(stream.index, 2u);
}

TEST(Init, IsAPureFunctionOfSeedAndParameter) {
  const auto make = [] { return Sequential{Linear(5, 4), Relu(), Linear(4, 4)}; };
  Sequential a = make(), b = make();
  a.init_parameters(3);
  init::manual_seed(3);
  Sequential c = make();
  b.init_parameters(4);
  b.init_parameters(3);
  for (size_t i = 0; i < 4; ++i) {
    const auto values = a.parameters()[i].to_vector<float>();
    EXPECT_EQ(values, b.parameters()[i].to_vector<float>());
    EXPECT_EQ(values, c.parameters()[i].to_vector<float>());
  }
  EXPECT_NE(a.parameters()[2].to_vector<float>()[0], a.parameters()[0].to_vector<float>()[0]);
  b.init_parameters(4);
  EXPECT_NE(a.parameters()[0].to_vector<float>(), b.parameters()[0].to_vector<float>());
  // In f64 the same numbers, unrounded.
  b.init_parameters(3);
  b.to(DType::f64);
  b.init_parameters(3);
  EXPECT_TRUE(test::close(b.parameters()[0], a.parameters()[0], {.of_each = 4 * 0x1p-24}));
}

}  // namespace
}  // namespace sinter::nn
