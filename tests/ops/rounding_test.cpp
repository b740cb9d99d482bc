// The bounds of measure/rounding.h are what the Note says. That every kernel keeps them on every
// sample: device_parity_test.cpp.
#include "measure/rounding.h"

#include <gtest/gtest.h>

#include <cmath>

#include "ops/fused/fused.h"
#include "ops/ops.h"
#include "ops/optim/update.h"
#include "tests/ops/ends.h"
#include "tests/test_util.h"

namespace sinter {
namespace {

TEST(Rounding, OfASumIsARandomWalkOfItsMagnitude) {
  const Tensor x = Tensor::from({1, -2, 3}, {1, 3}), w = Tensor::from({1, 1, 1}, {1, 3});
  const std::vector<ExactResult> exact = exact_results(kLinearOp, Tensors{x, w}, LinearAttrs{});
  EXPECT_EQ(exact[0].value.item(), 2);
  EXPECT_DOUBLE_EQ(exact[0].bound[0], 4 * std::sqrt(6) * 0x1p-24 * 6 + 2 * 0x1p-24 * 2);
  const LinearAttrs half{DType::bf16};
  const Tensors low{cast(x, DType::bf16), cast(w, DType::bf16)};
  EXPECT_DOUBLE_EQ(exact_results(kLinearOp, low, half)[0].bound[0],
      4 * std::sqrt(6) * 0x1p-24 * 6 + 2 * 0x1p-8 * 2);
}

TEST(Rounding, OfAReferenceGoesThroughItsOps) {
  const Tensor x = Tensor::from({3, 1, -1, 0}, {2, 2}), w = Tensor::from({2, 0, 1, -3}, {2, 2});
  // z is 6 and 0, -2 and -1: relu stops the errors of what is below 0, and has none of its own.
  const ProductChainAttrs attrs = ends::linear_act(Act::relu);
  const std::vector<ExactResult> exact = exact_results(kProductChainOp, Tensors{x, w}, attrs);
  const std::vector<double>& y = exact[0].bound;
  // linear: 8 u 6 + 2 u 6
  EXPECT_LE(y[0], 2 * 60 * 0x1p-24);
  EXPECT_GE(y[0], 60 * 0x1p-24);
  EXPECT_GT(y[1], 0x1p-24);
  EXPECT_EQ(y[2], 0x1p-126);
  // relu's gradient passes where z is above 0 in every run, and may where z is 0.
  const std::vector<double> dg = exact_results(kPointwiseChainOp,
      Tensors{Tensor::ones({1, 3}), Tensor::from({6, 0, -2}, {1, 3}), Tensor::ones({1, 3})},
      ends::glu_backward(Act::relu))[0]
                                     .bound;
  EXPECT_LT(dg[0], 1e-5);
  EXPECT_LT(dg[1], 1e-5);
  EXPECT_LT(dg[2], 1e-5) << "no move of y lets it pass";
}

TEST(Rounding, AWrongElementIsFound) {
  const Tensors in{Tensor::from({1, 2, 3, 4}, {2, 2}), Tensor::from({1, 0, 0, 1}, {2, 2})};
  const std::vector<ExactResult> exact = exact_results(kLinearOp, in, LinearAttrs{});
  const Tensor y = linear(in[0], in[1]);
  EXPECT_FALSE(worst_deviation({y}, exact).exceeds());
  y.data<float>()[2] += 1e-4f;
  EXPECT_TRUE(worst_deviation({y}, exact).exceeds());
  EXPECT_EQ(worst_deviation({y}, exact).at, 2);
  y.data<float>()[3] = NAN;
  EXPECT_EQ(worst_deviation({y}, exact).at, 3);
}

// Where the moves of two ops cancel in all runs, the kernel rounds its result all the same.
TEST(Rounding, NoBoundIsBelowTheLastRounding) {
  const Tensor x = cast(sample_tensor({16, 8}, 1), DType::bf16),
               w = cast(sample_tensor({128, 8}, 2), DType::bf16);
  const ProductChainAttrs attrs = ends::linear_act(Act::relu, false, DType::bf16);
  const std::vector<ExactResult> exact = exact_results(kProductChainOp, Tensors{x, w}, attrs);
  const std::vector<double> y = exact[0].value.to_vector<double>();
  for (size_t i = 0; i < y.size(); ++i) EXPECT_GE(exact[0].bound[i], 2 * 0x1p-8 * y[i]) << i;
}

// Lion's sign is that of 0.9 m + 0.1 g, which is 0 but for rounding in the first element.
TEST(Rounding, ASignMayTurnWhereItsSumCancels) {
  const Tensor state = make_step_state();
  host_step_state(state).lr = 0.01;
  const Tensors in{Tensor::from({1, 1}, {2}), Tensor::from({-0.9f, -0.8f}, {2}),
      Tensor::from({0.1f, 0.1f}, {2}), {}, {}, {}, state, {}, {}};
  const std::vector<ExactResult> exact = exact_results(kLionUpdateOp, in, UpdateAttrs{});
  ASSERT_EQ(exact.size(), 2u);
  const auto exceeds = [&](float first, float second) {
    return worst_deviation({Tensor::from({first, second}, {2}), exact[1].value}, exact).exceeds();
  };
  EXPECT_FALSE(exceeds(0.99f, 0.99f));
  EXPECT_FALSE(exceeds(1.01f, 0.99f)) << "the other side of 0";
  EXPECT_TRUE(exceeds(0.99f, 1.01f)) << "a sign that no rounding turns";
  EXPECT_TRUE(exceeds(1.02f, 0.99f)) << "farther than both signs";
  EXPECT_LT(exact[1].bound[0], 1e-6) << "of the average";
}

// An index is as good as the value it points to.
TEST(Rounding, AChoiceIsCheckedByItsValue) {
  const Tensor x = cast(Tensor::from({1, 1.0078125f, 0.5f, 0.25f}, {1, 1, 2, 2}), DType::bf16),
               w = cast(Tensor::from({1}, {1, 1, 1, 1}), DType::bf16);
  const std::vector<ExactResult> pooled =
      exact_results(kConvActPoolOp, Tensors{x, w}, Conv2dAttrs{});
  Tensors found;
  for (const ExactResult& result : pooled) found.push_back(copy(result.value));
  uint8_t& index = *found[1].data<uint8_t>();
  EXPECT_EQ(index, 1);
  const auto exceeds = [&](uint8_t at) {
    index = at;
    return worst_deviation(found, pooled).exceeds();
  };
  EXPECT_FALSE(exceeds(1));
  EXPECT_FALSE(exceeds(0)) << "the next number of bf16";
  EXPECT_TRUE(exceeds(2));
  EXPECT_TRUE(exceeds(4)) << "outside of the window";
}

TEST(Rounding, ANanOnBothSidesIsRight) {
  const Tensors in{Tensor::from({1, NAN, 3, 4}, {2, 2}), Tensor::from({1, 0, 0, 1}, {2, 2})};
  const std::vector<ExactResult> exact = exact_results(kLinearOp, in, LinearAttrs{});
  const Tensor y = linear(in[0], in[1]);
  EXPECT_FALSE(worst_deviation({y}, exact).exceeds());
  y.data<float>()[0] = 1;
  EXPECT_TRUE(worst_deviation({y}, exact).exceeds()) << "a number where there is none";
  y.data<float>()[0] = NAN;
  y.data<float>()[2] = NAN;
  EXPECT_TRUE(worst_deviation({y}, exact).exceeds());
}

// The operands are the caller's, also those that the op would change.
TEST(Rounding, OperandsStayAsTheyAre) {
  const Tensors in{Tensor::from({1, 2}, {2}), Tensor::from({3, 4}, {2})};
  const std::vector<ExactResult> exact = exact_results(kAccumulateOp, in, {});
  EXPECT_EQ(in[0].to_vector<float>(), (std::vector<float>{1, 2}));
  EXPECT_EQ(exact[0].value.to_vector<float>(), (std::vector<float>{4, 6}));
}

}  // namespace
}  // namespace sinter
