#include <gtest/gtest.h>

#include "autograd/autograd.h"
#include "ops/ops.h"
#include "ops/shape/dropout_mask.h"
#include "tests/test_util.h"

namespace sinter {
namespace {

TEST(Dropout, KeepsByThePhiloxWordOfTheElement) {
  manual_seed(42);
  rng_state().data<int64_t>()[1] = 3;
  const Tensor x = Tensor::ones({3, 67});
  const auto y =
      (next_random_op(), dropout(x, 0.3)).to_vector<float>();  // the second random op of the step
  for (uint64_t i = 0; i < y.size(); ++i) {
    const bool keep = uniform_from_bits(philox_word(42, (uint64_t{3} << 32) + 1, i)) >= 0.3;
    ASSERT_EQ(y[i], keep ? float(1 / 0.7) : 0.0f) << i;
    ASSERT_EQ(DropoutMask(rng_state().data<int64_t>(), 1, 0.3).kept_at(i), keep);
  }
}

TEST(Dropout, RateAndFreshMasks) {
  manual_seed(1);
  const Tensor x = Tensor::ones({200, 500});
  const auto a = dropout(x, 0.25).to_vector<float>(), b = dropout(x, 0.25).to_vector<float>();
  const auto dropped = double(std::count(a.begin(), a.end(), 0.0f));
  EXPECT_NEAR(dropped / 100000, 0.25, 6 * std::sqrt(0.25 * 0.75 / 100000));
  EXPECT_NE(a, b);
  manual_seed(1);
  EXPECT_EQ(dropout(x, 0.25).to_vector<float>(), a);
  EXPECT_EQ(dropout(x, 0).to_vector<float>(), x.to_vector<float>());
  EXPECT_EQ(sum(dropout(x, 1)).item(), 0);
}

TEST(Dropout, BackwardDrawsTheSameMaskAndRefusesAMovedCounter) {
  manual_seed(7);
  Tensor x = Tensor::ones({4, 33}).set_requires_grad(true);
  const Tensor y = dropout(x, 0.5);
  backward(y, {.gradient = Tensor::ones({4, 33})});
  EXPECT_EQ(x.grad().to_vector<float>(), y.to_vector<float>());

  const Tensor late = dropout(x, 0.5), p = Tensor::ones({1}), state = make_step_state();
  update_parameter({p, p}, state, {.optimizer = OptimizerKind::Sgd, .tail = true}, {}, rng_state());
  EXPECT_THROW(backward(late, {.gradient = Tensor::ones({4, 33})}), Error);
  clear_tape();

  const Tensor before = dropout(x, 0.5);
  manual_seed(8);
  test::expect_error(
      Error::Kind::state, {"dropout needs its input 1", "manual_seed changed it"}, [&] {
        backward(before, {.gradient = Tensor::ones({4, 33})});
      });
  clear_tape();
}

// Note [Masks of a part of the batch]: cut anywhere, also where no block of four words begins.
TEST(Dropout, PartsOfABatchHaveTheMaskOfTheWhole) {
  for (const Shape& row : {Shape{67}, Shape{2, 5}, Shape{128}}) {
    Shape shape{9};
    for (const int64_t size : row) shape.push_back(size);
    manual_seed(3);
    const Tensor x = Tensor::ones(shape);
    const Tensor whole = dropout(x, 0.4);
    for (const int64_t cut : {1, 4, 7}) {
      for (const auto& [begin, end] : {std::pair{int64_t{0}, cut}, {cut, int64_t{9}}}) {
        manual_seed(3);
        set_first_row(begin);
        const Tensor part = dropout(contiguous(slice(x, 0, begin, end)), 0.4);
        EXPECT_EQ(part.to_vector<float>(), slice(whole, 0, begin, end).to_vector<float>());
      }
    }
    set_first_row(0);
  }
}

TEST(Dropout, ProbabilityOutOfRange) {
  for (const double p : {-0.1, 1.1, std::nan("")})
    EXPECT_THROW(dropout(Tensor::ones({2}), p), Error);
}

}  // namespace
}  // namespace sinter
