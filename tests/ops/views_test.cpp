// Views, copies, casts, rows and reductions with values worked out by hand.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "autograd/autograd.h"
#include "ops/ops.h"
#include "tests/closeness.h"
#include "tests/test_util.h"

namespace sinter {
namespace {

using Floats = std::vector<float>;
Tensor counting(const Shape& shape) {
  Tensor t = Tensor::empty(shape);
  for (int64_t i = 0; i < t.numel(); ++i) t.data<float>()[i] = float(i);
  return t;
}

TEST(Views, ShareStorageAndLaunchNothing) {
  const Tensor x = counting({2, 3});
  for (const Tensor& v : {reshape(x, {3, -1}), transpose(x), slice(x, 1, -2, 3),
           broadcast_to(x, {4, 2, 3}), detach(x)})
    EXPECT_EQ(v.storage(), x.storage());
  EXPECT_EQ(reshape(x, {3, -1}).shape(), (Shape{3, 2}));
  EXPECT_EQ(transpose(x).to_vector<float>(), (Floats{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(slice(x, 1, -2, 3).to_vector<float>(), (Floats{1, 2, 4, 5}));
  EXPECT_EQ(slice(slice(x, 1, 1, 3), 0, 1, 2).to_vector<float>(), (Floats{4, 5}));
  EXPECT_EQ(broadcast_to(slice(x, 0, 1, 2), {2, 3}).to_vector<float>(), (Floats{3, 4, 5, 3, 4, 5}));
  EXPECT_EQ(flatten(counting({2, 3, 4})).shape(), (Shape{2, 12}));
  EXPECT_TRUE(contiguous(x).is_same(x));
}

TEST(Views, ADimThatIsNotThereIsAnErrorOfEachOp) {
  const Tensor x = Tensor::ones({2, 3});
  const std::vector<std::pair<std::string, std::function<void(int64_t)>>> ops{
      {"sum", [&](int64_t d) { sum(x, d); }}, {"mean", [&](int64_t d) { mean(x, d); }},
      {"max", [&](int64_t d) { max(x, d); }}, {"argmax", [&](int64_t d) { argmax(x, d); }},
      {"softmax", [&](int64_t d) { softmax(x, d); }},
      {"log_softmax", [&](int64_t d) { log_softmax(x, d); }},
      {"transpose", [&](int64_t d) { transpose(x, d, 0); }},
      {"transpose", [&](int64_t d) { transpose(x, 0, d); }},
      {"slice", [&](int64_t d) { slice(x, d, 0, 1); }},
      {"cat",
          [&](int64_t d) {
            cat({x, x}, d);
          }},
      {"flatten", [&](int64_t d) { flatten(x, d); }}};
  for (const int64_t d : {int64_t{-1000}, int64_t{-3}, int64_t{2}, int64_t{1000}, INT64_MIN,
           INT64_MAX, int64_t{1} << 32}) {
    for (const auto& [op, f] : ops) {
      test::expect_error(Error::Kind::shape,
          {str(op, ": no such dim: ", d, " of a tensor of rank 2; allowed -2..1")}, [&] { f(d); });
    }
    if (d < -3 || d > 2) {
      test::expect_error(Error::Kind::shape, {"stack: no such dim", "allowed -3..2"}, [&] {
        stack({x, x}, d);
      });
    }
    if (d < -3 || d > 3) {
      test::expect_error(
          Error::Kind::shape, {"slice: out of range", "which has 3"}, [&] { slice(x, 1, d, d); });
    }
  }
}

// Against the definition, for every order of up to four dims.
TEST(Views, PermutePutsEachDimWhereItIsAskedFor) {
  const Tensor x = counting({2, 3, 4, 5});
  std::vector<int64_t> order{0, 1, 2, 3};
  do {
    const Tensor y = permute(x, Dims(std::span<const int64_t>(order)));
    EXPECT_EQ(y.storage(), x.storage());
    for (int d = 0; d < 4; ++d) {
      EXPECT_EQ(y.size(d), x.size(int(order[size_t(d)])));
      EXPECT_EQ(y.strides()[d], x.strides()[int(order[size_t(d)])]);
    }
  } while (std::ranges::next_permutation(order).found);
  EXPECT_EQ(permute(x, {-1, 0, -2, 1}).shape(), (Shape{5, 2, 4, 3}));
  EXPECT_TRUE(permute(x, {0, 1, 2, 3}).is_same(x));
  test::expect_error(
      Error::Kind::shape, {"permute: wrong number of dims: [1, 0]", "it has 4"}, [&] {
        permute(x, {1, 0});
      });
  test::expect_error(Error::Kind::shape, {"permute: a dim stands twice: [0, 1, 1, -1]"}, [&] {
    permute(x, {0, 1, 1, -1});
  });
  Tensor leaf = counting({2, 3, 4}).set_requires_grad(true);
  backward(permute(leaf, {2, 0, 1}), {.gradient = reshape(counting({24}), {4, 2, 3})});
  EXPECT_EQ(leaf.grad().to_vector<float>(),
      contiguous(permute(reshape(counting({24}), {4, 2, 3}), {1, 2, 0})).to_vector<float>());
}

TEST(MaskedFill, TakesTheValueWhereTheMaskIsNotZero) {
  Tensor x = counting({2, 3}).set_requires_grad(true);
  const Tensor mask = Tensor::from({1, 0, 1}, {3});
  const Tensor y = masked_fill(x, mask, -INFINITY);
  EXPECT_EQ(y.to_vector<float>(), (Floats{-INFINITY, 1, -INFINITY, -INFINITY, 4, -INFINITY}));
  backward(y, {.gradient = counting({2, 3})});
  EXPECT_EQ(x.grad().to_vector<float>(), (Floats{0, 1, 0, 0, 4, 0}));
}

TEST(MaskedFill, InPlaceWritesToXAndIsRefusedWhereBackwardWouldReadIt) {
  const Tensor mask = Tensor::from({1, 0, 1}, {3});
  const Tensor x = counting({2, 3});
  masked_fill_(x, mask, 7);
  EXPECT_EQ(x.to_vector<float>(), (Floats{7, 1, 7, 7, 4, 7}));
  Tensor leaf = counting({2, 3}).set_requires_grad(true);
  const auto refused = [&](const Tensor& t) {
    test::expect_error(Error::Kind::state,
        {"masked_fill_: an operand that requires grad in an op that works in place", "NoGrad"},
        [&] { masked_fill_(t, mask, 7); });
  };
  refused(leaf);
  const Tensor saved = exp(leaf);
  refused(saved);
  {
    const NoGrad no_grad;
    masked_fill_(saved, mask, 7);
  }
  test::expect_error(Error::Kind::state,
      {"exp needs its output", "masked_fill_ changed it in place"}, [&] { backward(sum(saved)); });
}

TEST(Views, ReshapeOfAStridedTensorCopiesFirst) {
  const Tensor t = transpose(counting({2, 3}));
  EXPECT_EQ(reshape(t, {6}).to_vector<float>(), (Floats{0, 3, 1, 4, 2, 5}));
  EXPECT_THROW(apply(kReshapeOp, {t}, ShapeAttrs{{6}}), Error);
}

TEST(Views, GradientsGoBackToTheirPlaces) {
  Tensor x = counting({2, 4}).set_requires_grad(true);
  const Tensor middle = slice(x, 1, 1, 3);
  backward(middle, {.gradient = Tensor::from({1, 2, 3, 4}, {2, 2})});
  EXPECT_EQ(x.grad().to_vector<float>(), (Floats{0, 1, 2, 0, 0, 3, 4, 0}));
  Tensor b = counting({1, 2}).set_requires_grad(true);
  backward(broadcast_to(b, {3, 2}), {.gradient = Tensor::from({1, 2, 3, 4, 5, 6}, {3, 2})});
  EXPECT_EQ(b.grad().to_vector<float>(), (Floats{9, 12}));
}

TEST(Views, LowPrecisionWantsACopy) {
  test::expect_error(Error::Kind::state, {}, [] { low_precision(Tensor::ones({2})); });
}

TEST(Copy, MakesDenseWhateverTheStrides) {
  const Tensor x = counting({2, 3, 2});
  const Tensor t = copy(transpose(x, 0, 2));
  EXPECT_TRUE(t.is_contiguous());
  EXPECT_EQ(t.to_vector<float>(), (Floats{0, 6, 2, 8, 4, 10, 1, 7, 3, 9, 5, 11}));
  EXPECT_EQ(
      copy(broadcast_to(counting({1, 2}), {3, 2})).to_vector<float>(), (Floats{0, 1, 0, 1, 0, 1}));
  const Tensor labels = Tensor::from<int32_t>({1, 2, 3, 4}, {2, 2});
  EXPECT_EQ(copy(transpose(labels)).to_vector<int32_t>(), (std::vector<int32_t>{1, 3, 2, 4}));
}

TEST(Cast, RoundsAndSaturates) {
  const Tensor x = Tensor::from({-1.5f, 3.9f, 300, 3e9f, NAN, -3e9f}, {6});
  EXPECT_EQ(cast(x, DType::i32).to_vector<int64_t>(),
      (std::vector<int64_t>{-1, 3, 300, 2147483647, 0, -2147483648}));
  EXPECT_EQ(cast(x, DType::u8).to_vector<int64_t>(), (std::vector<int64_t>{0, 3, 255, 255, 0, 0}));
  EXPECT_EQ(
      cast(Tensor::from({1 + 0x1p-9f, 3}, {2}), DType::bf16).to_vector<float>(), (Floats{1, 3}));
  EXPECT_EQ(
      cast(Tensor::from<uint8_t>({0, 255}, {2}), DType::f32).to_vector<float>(), (Floats{0, 255}));
}

TEST(Cast, IntegersSaturateToo) {
  const Tensor x = Tensor::from<int64_t>({-1, 300, (int64_t{1} << 32) + 3, 7}, {4});
  EXPECT_EQ(
      cast(x, DType::i32).to_vector<int64_t>(), (std::vector<int64_t>{-1, 300, 2147483647, 7}));
  EXPECT_EQ(cast(x, DType::u8).to_vector<int64_t>(), (std::vector<int64_t>{0, 255, 255, 7}));
}

TEST(Reductions, TakeOneDimAsANumber) {
  const Tensor x = counting({2, 3});
  EXPECT_EQ(sum(x, 1).to_vector<float>(), (Floats{3, 12}));
  EXPECT_EQ(sum(x, -2).to_vector<float>(), (Floats{3, 5, 7}));
  EXPECT_EQ(mean(x, 0, true).shape(), (Shape{1, 3}));
  EXPECT_EQ(max(x, 1).to_vector<float>(), (Floats{2, 5}));
  EXPECT_EQ(Tensor::zeros(4).shape(), (Shape{4}));
  EXPECT_THROW(sum(x, 2), Error);
}

TEST(Reduce, KnownValues) {
  const Tensor x = counting({2, 3, 2});
  EXPECT_EQ(sum(x).item(), 66);
  EXPECT_EQ(sum(x, {1}).to_vector<float>(), (Floats{6, 9, 24, 27}));
  EXPECT_EQ(sum(x, {0, 2}, true).shape(), (Shape{1, 3, 1}));
  EXPECT_EQ(sum(x, {0, 2}).to_vector<float>(), (Floats{14, 22, 30}));
  EXPECT_EQ(mean(x, {-1}).to_vector<float>(), (Floats{0.5, 2.5, 4.5, 6.5, 8.5, 10.5}));
  EXPECT_EQ(max(x, {0, 1}).to_vector<float>(), (Floats{10, 11}));
  EXPECT_EQ(argmax(x, 1).to_vector<int>(), (std::vector<int>{2, 2, 2, 2}));
  EXPECT_EQ(sum(Tensor::zeros({0, 3}), {0}).to_vector<float>(), (Floats{0, 0, 0}));
  EXPECT_TRUE(std::isnan(mean(Tensor::zeros({0}), {0}).item()));
  EXPECT_EQ(sum_to(x, {3, 1}).to_vector<float>(), (Floats{14, 22, 30}));
  EXPECT_THROW(sum_to(x, {2, 2}), Error);
}

TEST(Reduce, MaxAtTiesAndNan) {
  Tensor x = Tensor::from({1, 5, 5, NAN, 2, 3}, {2, 3}).set_requires_grad(true);
  const Tensor m = max(x, {1});
  EXPECT_EQ(m.to_vector<float>()[0], 5);
  EXPECT_TRUE(std::isnan(m.to_vector<float>()[1]));
  backward(m, {.gradient = Tensor::ones({2})});
  EXPECT_EQ(x.grad().to_vector<float>(), (Floats{0, 1, 0, 1, 0, 0}));
  EXPECT_EQ(argmax(detach(x)).to_vector<int>(), (std::vector<int>{1, 0}));
}

TEST(Reduce, LongSumsAreAccurate) {
  const Tensor x = cast(sample_tensor({3, 100003}, 1), DType::f32);
  EXPECT_TRUE(test::close(sum(x, {1}), sum(cast(x, DType::f64), {1}),
      {.absolute = 4 * std::sqrt(100003.) * 0x1p-24 * 100003}));
}

TEST(Abs, OfMinusZeroIsZero) {
  const auto got = sinter::abs(Tensor::from({-0.f, 0, -1.5f, 2}, {4})).to_vector<float>();
  EXPECT_EQ(got, (Floats{0, 0, 1.5f, 2}));
  for (const float v : got) EXPECT_FALSE(std::signbit(v));
}

TEST(Relu, OfAScalarHasAGradient) {
  for (const float value : {3.f, -3.f}) {
    Tensor x = Tensor::from({value}, {}).set_requires_grad(true);
    const Tensor y = relu(x);
    EXPECT_EQ(y.shape(), Shape{});
    backward(y);
    EXPECT_EQ(x.grad().shape(), Shape{});
    EXPECT_EQ(x.grad().item(), value > 0 ? 1 : 0);
  }
}

}  // namespace
}  // namespace sinter
