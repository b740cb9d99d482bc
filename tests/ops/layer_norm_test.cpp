// layer_norm by values that are known, and what is special to it; gradients, types and devices are
// in the loops over all ops.
#include <gtest/gtest.h>

#include "autograd/autograd.h"
#include "core/context.h"
#include "ops/ops.h"
#include "tests/closeness.h"

namespace sinter {
namespace {

TEST(LayerNorm, KnownValues) {
  const Tensor x = Tensor::from({1, 3, 5, 7, 2, 2, 2, 2}, {2, 4});
  const Tensors out = apply(kLayerNormOp,
      {x, Tensor::from({1, 2, 1, 2}, {4}), Tensor::from({0, 0, 1, 1}, {4})}, LayerNormAttrs{0});
  const double r = 1 / std::sqrt(5.0);  // mean 4, variance 5
  EXPECT_TRUE(
      test::close(slice(out[0], 0, 0, 1), {-3 * r, -2 * r, 1 + r, 1 + 6 * r}, {.absolute = 4e-7}));
  EXPECT_EQ(out[1].to_vector<float>(), (std::vector<float>{4, 2}));
  EXPECT_TRUE(test::close(slice(out[2], 0, 0, 1), {r}, {.absolute = 1e-7}));
}

// A row of equal values has no deviation: eps alone is under the root.
TEST(LayerNorm, EqualValuesGiveTheBias) {
  const Tensor weight = Tensor::full({7}, 3), bias = Tensor::full({7}, -2);
  const auto y = layer_norm(Tensor::full({3, 7}, 0.5), weight, bias).to_vector<float>();
  for (const float v : y) EXPECT_EQ(v, -2);
}

// A NaN or an infinity spoils its own row only.
TEST(LayerNorm, RowsAreApart) {
  const float inf = std::numeric_limits<float>::infinity();
  const Tensor y = layer_norm(
      Tensor::from({NAN, 1, 1, -1, inf, 1}, {3, 2}), Tensor::ones({2}), Tensor::zeros({2}));
  EXPECT_TRUE(test::close(y, {NAN, NAN, 1, -1, NAN, NAN}, {.absolute = 1e-5, .same_nan = true}));
}

// Values far from zero: the mean's sums, 42 terms deep, round by up to 42 2^-24 1e4 = 0.025, and
// the deviation is 1.15. Squares would lose all: 1e8 2^-24 = 6.
TEST(LayerNorm, NothingCancels) {
  const Tensor x = cast(sample_tensor({3, 300}, 1, 1e4 - 2, 1e4 + 2), DType::f32);
  const Tensor ones = Tensor::ones({300}), zeros = Tensor::zeros({300});
  const Tensor exact =
      layer_norm(cast(x, DType::f64), cast(ones, DType::f64), cast(zeros, DType::f64));
  EXPECT_TRUE(test::close(layer_norm(x, ones, zeros), exact, {.absolute = 0.03}));
}

}  // namespace
}  // namespace sinter
