// batch_norm2d by values that are known, its running statistics, and what is special to it;
// gradients, types and devices are in the loops over all ops.
#include <gtest/gtest.h>

#include <cmath>

#include "autograd/autograd.h"
#include "core/context.h"
#include "ops/ops.h"
#include "tests/closeness.h"
#include "tests/test_util.h"

namespace sinter {
namespace {

struct RunningStatistics {
  Tensor mean = Tensor::zeros({2}), var = Tensor::ones({2}),
         batches = Tensor::zeros({}, DType::i64);
};
Tensor batch_normalised(
    const Tensor& x, const RunningStatistics& s, const BatchNormAttrs& attrs = {}) {
  return batch_norm2d(
      x, Tensor::from({2, 1}, {2}), Tensor::from({0, 10}, {2}), s.mean, s.var, s.batches, attrs);
}

// Channel 0: 1 3 5 7, mean 4, variance 5; channel 1: 2 2 2 6, mean 3, variance 3.
const Tensor kFourPixels = Tensor::from({1, 3, 2, 2, 5, 7, 2, 6}, {2, 2, 1, 2});

TEST(BatchNorm, KnownValues) {
  const RunningStatistics s;
  const Tensor y = batch_normalised(kFourPixels, s, {.momentum = 0.25, .eps = 0});
  const double r = 1 / std::sqrt(5.0), q = 1 / std::sqrt(3.0);
  EXPECT_TRUE(test::close(
      y, {-6 * r, -2 * r, 10 - q, 10 - q, 2 * r, 6 * r, 10 - q, 10 + 3 * q}, {.absolute = 1e-6}));
  // The running variance is over n - 1 = 3: 20 / 3 and 12 / 3.
  EXPECT_EQ(s.mean.to_vector<float>(), (std::vector<float>{1, 0.75}));
  EXPECT_TRUE(test::close(s.var, {0.75 + 0.25 * 20 / 3, 1.75}, {.each = {3e-7, 0}}));
  EXPECT_EQ(s.batches.item(), 1);
}

TEST(BatchNorm, EvaluationTakesTheRunningStatistics) {
  const Tensor weight = Tensor::from({2, 1}, {2}), bias = Tensor::from({0, 10}, {2}),
               mean = Tensor::from({1, 2}, {2}), var = Tensor::from({4, 0.25}, {2});
  const auto y = batch_norm2d_eval(kFourPixels, weight, bias, mean, var, 0).to_vector<float>();
  EXPECT_EQ(y, (std::vector<float>{0, 2, 10, 10, 4, 6, 10, 18}));
}

TEST(BatchNorm, EvaluationHasGradientsButForTheStatistics) {
  const Tensor mean = sample_tensor({3}, 4), var = sample_tensor({3}, 5, 0.5, 2);
  const Tensors in{sample_tensor({2, 3, 2, 2}, 1), sample_tensor({3}, 2), sample_tensor({3}, 3)};
  for (Tensor t : in) t.set_requires_grad(true);
  const GradcheckResult result = gradcheck(
      [&](const Tensors& t) { return Tensors{batch_norm2d_eval(t[0], t[1], t[2], mean, var)}; },
      in);
  EXPECT_TRUE(result.ok) << result.message;
}

// Values far from zero: the mean's sums round by up to 68 2^-24 1e4 = 0.04, and the deviation is
// 1.15. Squares would lose all: 1e8 2^-24 = 6.
TEST(BatchNorm, NothingCancels) {
  const Tensor x = cast(sample_tensor({3, 2, 10, 10}, 1, 1e4 - 2, 1e4 + 2), DType::f32);
  const RunningStatistics s, exact;
  const auto in_f64 = [](const Tensor& t) { return cast(t, DType::f64); };
  const Tensor wanted = batch_norm2d(in_f64(x), in_f64(Tensor::from({2, 1}, {2})),
      in_f64(Tensor::from({0, 10}, {2})), in_f64(exact.mean), in_f64(exact.var), exact.batches);
  EXPECT_TRUE(test::close(batch_normalised(x, s), wanted, {.absolute = 0.08}));
}

TEST(BatchNorm, OneValuePerChannelIsRefusedAndNothingCounts) {
  const RunningStatistics s;
  test::expect_error(Error::Kind::shape,
      {"batch_norm2d: one value per channel: x is f32[1, 2, 1, 1] cpu", "at least 2 values",
          "hint: train on batches of at least 2 images, or call eval() first"},
      [&] {
        batch_normalised(Tensor::ones({1, 2, 1, 1}), s);
      });
  EXPECT_EQ(s.batches.item(), 0);
}

TEST(BatchNorm, AnEmptyBatchLeavesTheStatistics) {
  const RunningStatistics s;
  EXPECT_EQ(batch_normalised(Tensor::ones({0, 2, 3, 3}), s).numel(), 0);
  EXPECT_EQ(s.mean.to_vector<float>(), (std::vector<float>{0, 0}));
  EXPECT_EQ(s.var.to_vector<float>(), (std::vector<float>{1, 1}));
}

// The statistics change in place beside what is differentiated; backward does not read them.
TEST(BatchNorm, TheTapeAllowsTheStatisticsToChange) {
  const RunningStatistics s;
  Tensor x = copy(kFourPixels).set_requires_grad(true);
  const Tensor y = sum(batch_normalised(batch_normalised(x, s), s));
  EXPECT_EQ(s.batches.item(), 2);
  EXPECT_NO_THROW(backward(y));
  EXPECT_TRUE(x.grad().defined());

  Tensor learned = Tensor::zeros({2}).set_requires_grad(true);
  test::expect_error(Error::Kind::state,
      {"batch_norm2d: an operand that requires grad in an op that works in place: f32[2]"},
      [&] { batch_normalised(x, {.mean = learned}); });
  clear_tape();
}

}  // namespace
}  // namespace sinter
