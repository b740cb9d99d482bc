// Pooling by values that are known, and what is special to it; gradients, types and devices are in
// the loops over all ops.
#include <gtest/gtest.h>

#include <cmath>

#include "autograd/autograd.h"
#include "ops/ops.h"
#include "tests/closeness.h"
#include "tests/test_util.h"

namespace sinter {
namespace {

using PoolValues = std::vector<float>;
constexpr float kPoolNan = std::numeric_limits<float>::quiet_NaN(),
                kPoolInf = std::numeric_limits<float>::infinity();

Tensor one_plane(const PoolValues& values, int64_t height, int64_t width) {
  return Tensor::from(values, {1, 1, height, width});
}
PoolValues maximum_places(const Tensor& x, const Pool2dAttrs& attrs) {
  return apply(kMaxPool2dOp, {x}, MaxPool2dAttrs{attrs})[1].to_vector<float>();
}

TEST(Pool, KnownValues) {
  const Tensor x = one_plane({1, 5, 2, 0, 3, 4, 8, -1, -7, -2, 6, 6, -3, -9, 7, 5}, 4, 4);
  EXPECT_EQ(max_pool2d(x).to_vector<float>(), (PoolValues{5, 8, -2, 7}));
  EXPECT_EQ(maximum_places(x, {}), (PoolValues{1, 2, 1, 2}));
  EXPECT_EQ(avg_pool2d(x).to_vector<float>(), (PoolValues{3.25, 2.25, -5.25, 6}));
  const Pool2dAttrs wide{3, 3, 1, 1};
  EXPECT_EQ(max_pool2d(x, wide).to_vector<float>(), (PoolValues{8, 8, 8, 8}));
  EXPECT_EQ(maximum_places(x, wide), (PoolValues{5, 4, 2, 1}));
}

// Rows and columns that no whole window reaches are left out, and have no gradient.
TEST(Pool, OddSizesLeaveTheLastRowAndColumnOut) {
  Tensor x = one_plane({1, 2, 90, 4, 3, 91, 92, 93, 94}, 3, 3).set_requires_grad(true);
  const Tensor most = max_pool2d(x);
  EXPECT_EQ(most.to_vector<float>(), PoolValues{4});
  backward(most);
  EXPECT_EQ(x.grad().to_vector<float>(), (PoolValues{0, 0, 0, 1, 0, 0, 0, 0, 0}));
  x.autograd().grad = {};
  const Tensor mean = avg_pool2d(x);
  EXPECT_EQ(mean.to_vector<float>(), PoolValues{2.5});
  backward(mean);
  EXPECT_EQ(x.grad().to_vector<float>(), (PoolValues{.25, .25, 0, .25, .25, 0, 0, 0, 0}));
}

// As in PyTorch: of equal maxima the first, of several NaN the last; minus infinity is a value.
TEST(Pool, TiesAndNan) {
  const Tensor rows =
      one_plane({3, 3, 0, 7, -kPoolInf, -kPoolInf, 3, 3, 7, 0, -kPoolInf, -kPoolInf}, 2, 6);
  EXPECT_EQ(maximum_places(rows, {}), (PoolValues{0, 1, 0}));
  EXPECT_EQ(max_pool2d(rows).to_vector<float>(), (PoolValues{3, 7, -kPoolInf}));
  const Tensor nans = one_plane(
      {kPoolNan, 1, 9, 1, kPoolNan, kPoolNan, 2, 3, kPoolNan, 9, kPoolNan, kPoolNan}, 2, 6);
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
    const Tensor typed = cast(nans, dtype);
    for (const float v : max_pool2d(typed).to_vector<float>()) EXPECT_TRUE(std::isnan(v));
    EXPECT_EQ(maximum_places(typed, {}), (PoolValues{0, 2, 3}));
  }
}

TEST(Pool, PaddingNeverWinsAndCountsAsZeros) {
  const Tensor x = one_plane({-1, -2, -3, -4}, 2, 2);
  const Pool2dAttrs padded{2, 2, 2, 2, 1, 1};
  EXPECT_EQ(max_pool2d(x, padded).to_vector<float>(), (PoolValues{-1, -2, -3, -4}));
  EXPECT_EQ(maximum_places(x, padded), (PoolValues{3, 2, 1, 0}));
  EXPECT_EQ(avg_pool2d(x, padded).to_vector<float>(), (PoolValues{-.25, -.5, -.75, -1}));
}

// An element gets the gradient of every window that it wins: 9 in the middle wins all four.
TEST(Pool, OverlappingWindowsSum) {
  Tensor x = one_plane({1, 2, 3, 4, 9, 5, 6, 7, 8}, 3, 3).set_requires_grad(true);
  const Pool2dAttrs one_apart{2, 2, 1, 1};
  const Tensor dy = one_plane({1, 10, 100, 1000}, 2, 2);
  backward(max_pool2d(x, one_apart), {.gradient = dy});
  EXPECT_EQ(x.grad().to_vector<float>(), (PoolValues{0, 0, 0, 0, 1111, 0, 0, 0, 0}));
  x.autograd().grad = {};
  backward(avg_pool2d(x, one_apart), {.gradient = dy});
  EXPECT_EQ(x.grad().to_vector<float>(),
      (PoolValues{.25, 2.75, 2.5, 25.25, 277.75, 252.5, 25, 275, 250}));
}

// The rows of 16 lanes against the loop over windows, which f64 takes.
TEST(Pool, RowsOfAnyLengthAgreeWithTheLoop) {
  for (int64_t width = 2; width < 70; ++width) {
    const Tensor exact = sample_tensor({2, 2, 6, width}, uint64_t(width)),
                 single = cast(exact, DType::f32);
    Tensors got;
    for (const bool relu : {true, false}) {
      const MaxPool2dAttrs attrs{{}, relu};
      got = apply(kMaxPool2dOp, {single}, attrs);
      const Tensors wanted = apply(kMaxPool2dOp, {cast(single, DType::f64)}, attrs);
      EXPECT_EQ(got[0].to_vector<double>(), wanted[0].to_vector<double>()) << width;
      EXPECT_EQ(got[1].to_vector<float>(), wanted[1].to_vector<float>()) << width;
    }
    EXPECT_TRUE(test::close(avg_pool2d(single), avg_pool2d(cast(single, DType::f64)),
        {.absolute = 3 * 8 * 0x1p-24}));  // 3 roundings of at most 8
    for (const OpDef* op : {&kMaxPool2dBackwardOp, &kAvgPool2dBackwardOp}) {
      const Pool2dBackwardAttrs attrs{{}, 6, width};
      Tensors in{got[0]}, in_f64{cast(got[0], DType::f64)};
      if (op == &kMaxPool2dBackwardOp) {
        in.push_back(got[1]);
        in_f64.push_back(got[1]);
      }
      EXPECT_EQ(apply1(*op, in, attrs).to_vector<double>(),
          apply1(*op, in_f64, attrs).to_vector<double>())
          << op->text() << ", " << width;
    }
  }
}

// The index has no place where ReLU lets nothing pass: 0 and less; NaN passes. So pooling's
// gradient is that of ReLU and pooling, in either order and to the bit.
TEST(Pool, WithReluTheGradientNeedsTheIndexAlone) {
  const Tensor edges = one_plane({-1, -2, -0.f, 0, kPoolNan, -3, -4, -5, -6, 0, 1, -7}, 2, 6);
  const Tensors pooled = apply(kMaxPool2dOp, {edges}, MaxPool2dAttrs{{}, true});
  EXPECT_EQ(pooled[1].to_vector<float>(), (PoolValues{255, 255, 0}));
  EXPECT_EQ(pooled[0].to_vector<float>()[1], 0);
  EXPECT_TRUE(std::isnan(pooled[0].to_vector<float>()[2]));
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
    for (const Pool2dAttrs& window : {Pool2dAttrs{}, Pool2dAttrs{3, 3, 2, 1, 1, 1}}) {
      for (const bool relu_first : {true, false}) {
        Tensor x = cast(sample_tensor({3, 2, 9, 7}, 5), dtype).set_requires_grad(true);
        const Tensor y = relu_first ? max_pool2d(relu(x), window) : relu(max_pool2d(x, window));
        const Tensor dy = cast(sample_tensor(y.shape(), 6), dtype);
        backward(y, {.gradient = dy});
        const Tensors both = apply(kMaxPool2dOp, {detach(x)}, MaxPool2dAttrs{window, true});
        EXPECT_EQ(both[0].to_vector<double>(), y.to_vector<double>());
        const Tensor dx =
            apply1(kMaxPool2dBackwardOp, {dy, both[1]}, Pool2dBackwardAttrs{window, 9, 7});
        EXPECT_EQ(dx.to_vector<double>(), x.grad().to_vector<double>());
      }
    }
  }
}

// An index that max_pool2d did not make reaches no other memory.
TEST(Pool, PlacesOutsideOfTheWindowArePassedOver) {
  const Tensor dy = one_plane({1, 2, 3, 4}, 2, 2);
  for (const Shape& shape : {Shape{4, 4}, Shape{5, 5}}) {
    const Tensor index = Tensor::full({1, 1, 2, 2}, 255, DType::u8);
    const Tensor dx =
        apply1(kMaxPool2dBackwardOp, {dy, index}, Pool2dBackwardAttrs{{}, shape[0], shape[1]});
    for (const float v : dx.to_vector<float>()) EXPECT_EQ(v, 0);
  }
}

TEST(Pool, AWindowHasAtMost255Elements) {
  test::expect_error(Error::Kind::shape, {"16 x 16", "at most 255 elements"}, [] {
    max_pool2d(Tensor::zeros({1, 1, 16, 16}), {16, 16, 1, 1});
  });
  EXPECT_EQ(avg_pool2d(Tensor::ones({1, 1, 16, 16}), {16, 16, 1, 1}).item(), 1);
  for (const int64_t large : {int64_t{1} << 31, INT64_MAX}) {
    test::expect_error(Error::Kind::shape, {"the window is too large", "at most 16777216"}, [&] {
      avg_pool2d(Tensor::zeros({1, 1, 1, 1}), {1, large, 1, 1, 0, large / 2});
    });
  }
}

}  // namespace
}  // namespace sinter
