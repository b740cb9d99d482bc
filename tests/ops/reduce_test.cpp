#include <gtest/gtest.h>

#include <numeric>

#include "autograd/autograd.h"
#include "ops/fused/fused.h"
#include "ops/ops.h"
#include "tests/closeness.h"
#include "tests/ops/device_samples.h"
#include "tests/test_util.h"

namespace sinter {
namespace {

TEST(Cases, DuplicateDims) {
  const Tensor x = Tensor::ones({2, 3});
  for (const Dims& dims : {Dims{0, 0}, Dims{0, -2}, Dims{1, 0, -1}}) {
    for (const char* name : {"sum", "mean", "max", "max_backward"}) {
      test::expect_error(Error::Kind::shape, {std::string(name) + ": ", "twice", dims.str()}, [&] {
        const std::string_view op = name;
        if (op == "sum") sum(x, dims);
        if (op == "mean") mean(x, dims, true);
        if (op == "max") max(x, dims);
        if (op == "max_backward") apply(kMaxBackwardOp, {x, x, x}, ReduceAttrs{dims, true});
      });
    }
  }
}

// So many equal rows that an f32 sum which grew by one block after the other would be off by 2e-4.
TEST(Reduce, ManyRowsDoNotAddUpRoundings) {
  constexpr int64_t kRows = 1 << 21;
  const Tensor x = Tensor::full({kRows, 2}, 0.1f);
  const double exact = double(0.1f) * kRows;
  // Of a block 3 + 32 roundings, all of one direction, and the result's.
  const test::Within within{.of_each = 36 * 0x1p-24};
  EXPECT_TRUE(test::close(sum(x, 0), {exact, exact}, within));
  EXPECT_TRUE(test::close(sum_rows(x), {exact, exact}, within));
  EXPECT_TRUE(test::close(mean(x, 0), {double(0.1f), double(0.1f)}, within));
  EXPECT_TRUE(test::close(
      apply1(kConv2dBiasGradOp, {reshape(x, {kRows, 2, 1, 1})}), {exact, exact}, within));
}

// Where NaN is the maximum its gradient goes, as in PyTorch: derivatives.yaml gives maximum's to
// both operands; a pooling's goes to the last NaN of a window, that of max over dims to the first.
void check_gradients_of_nan(Device device) {
  const auto leaf = [&](const std::vector<double>& values, const Shape& shape) {
    return Tensor::from(values, shape).to(device).set_requires_grad(true);
  };
  const auto grad_of = [](const Tensor& t) { return t.grad().to_vector<double>(); };
  using Values = std::vector<double>;
  const Tensor a = leaf({NAN, 1, NAN, 2, 1, 3}, {6});
  const Tensor b = leaf({1, NAN, NAN, 1, 2, 3}, {6});
  backward(sum(maximum(a, b)));
  EXPECT_EQ(grad_of(a), (Values{1, 1, 1, 1, 0, 0.5}));
  EXPECT_EQ(grad_of(b), (Values{1, 1, 1, 0, 1, 0.5}));

  const Tensor r = leaf({NAN, 1, -1}, {3});
  backward(sum(relu(r)));
  EXPECT_EQ(grad_of(r), (Values{1, 1, 0}));

  const Tensor m = leaf({1, NAN, 5, NAN}, {4});
  backward(max(m));
  EXPECT_EQ(grad_of(m), (Values{0, 1, 0, 0}));

  const Tensor image = leaf({1, NAN, 5, 2}, {1, 1, 2, 2});
  backward(sum(max_pool2d(image)));
  EXPECT_EQ(grad_of(image), (Values{0, 1, 0, 0}));
}
TEST(GradientsOfNaN, GoToTheNaN) { check_gradients_of_nan(kCpu); }
TEST(GradientsOfNaNSimt, GoToTheNaN) { check_gradients_of_nan(kSimt); }

}  // namespace
}  // namespace sinter
