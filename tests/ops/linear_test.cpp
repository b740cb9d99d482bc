#include <gtest/gtest.h>

#include "autograd/autograd.h"
#include "core/context.h"
#include "core/parallel.h"
#include "ops/ops.h"
#include "tests/closeness.h"
#include "tests/test_util.h"

namespace sinter {
namespace {

using test::message_of;

TEST(Linear, KnownValues) {
  const Tensor x = Tensor::from({1, 2, 3, 4}, {2, 2}),
               w = Tensor::from({1, 0, 0, 1, 1, -1}, {3, 2}), b = Tensor::from({10, 20, 30}, {3});
  EXPECT_EQ(linear(x, w, b).to_vector<float>(), (std::vector<float>{11, 22, 29, 13, 24, 29}));
  EXPECT_EQ(linear(x, w).to_vector<float>(), (std::vector<float>{1, 2, -1, 3, 4, -1}));
}

TEST(Linear, MoreAndFewerDimsAreFlattened) {
  const Tensor w = sample_tensor({4, 3}, 1), b = sample_tensor({4}, 2);
  for (const Shape& shape : {Shape{2, 5, 3}, Shape{3}, Shape{2, 0, 3}, Shape{1, 2, 2, 3}}) {
    const Tensor x = sample_tensor(shape, 3), y = linear(x, w, b);
    Shape wanted = shape;
    wanted[-1] = 4;
    EXPECT_EQ(y.shape(), wanted);
    EXPECT_EQ(y.to_vector<double>(),
        linear(reshape(x, {shape.numel() / 3, 3}), w, b).to_vector<double>());
  }
}

TEST(Gradients, OnlyWantedOnesAreMadeAndHaveRoles) {
  struct Names : Recorder {
    std::string text;
    Names() { Context::current().recorders.push_back(this); }
    ~Names() override { std::erase(Context::current().recorders, this); }
    void record(const Call& call) override {
      text += call.op.view ? "" : str(call.op.text(), "(", name_of(call.role), ") ");
    }
  };
  // `wanted`: an 'x' for each operand whose gradient is.
  const auto made = [](const auto& f, Tensors in, const std::string& wanted) {
    for (size_t i = 0; i < in.size(); ++i) in[i].set_requires_grad(wanted[i] == 'x');
    const Tensor y = f(in);
    const Names names;
    backward(y, {.gradient = sample_tensor(y.shape(), 4)});
    return names.text;
  };
  const auto line = [&](const std::string& wanted) {
    return made([](const Tensors& t) { return linear(t[0], t[1], t[2]); },
        {sample_tensor({3, 4}, 1), sample_tensor({2, 4}, 2), sample_tensor({2}, 3)}, wanted);
  };
  EXPECT_EQ(line("x.."), "matmul(dgrad) ");
  EXPECT_EQ(line(".xx"), "matmul(wgrad) sum_rows(bgrad) ");
  EXPECT_EQ(line("xxx"), "matmul(wgrad) sum_rows(bgrad) matmul(dgrad) ");
  EXPECT_EQ(
      made([](const Tensors& t) { return conv2d(t[0], t[1], t[2]); },
          {sample_tensor({2, 1, 4, 4}, 1), sample_tensor({3, 1, 2, 2}, 2), sample_tensor({3}, 3)},
          ".xx"),
      "conv2d_weight_grad(wgrad) conv2d_bias_grad(bgrad) ");
  EXPECT_EQ(made([](const Tensors& t) { return layer_norm(t[0], t[1], t[2]); },
                {sample_tensor({4, 5}, 1), sample_tensor({5}, 2), sample_tensor({5}, 3)}, ".x."),
      "layer_norm_weight_grad(wgrad) ");
  const Tensor mean = Tensor::zeros({2}, DType::f64), var = Tensor::ones({2}, DType::f64),
               batches = Tensor::zeros({}, DType::i64);
  EXPECT_EQ(
      made([&](const Tensors& t) { return batch_norm2d(t[0], t[1], t[2], mean, var, batches); },
          {sample_tensor({2, 2, 1, 2}, 1), sample_tensor({2}, 2), sample_tensor({2}, 3)}, ".x."),
      "batch_norm2d_weight_grad(wgrad) ");
}

// bf16 operands, f32 logits: the master weight's gradient is f32 and within bf16's rounding of the
// exact one.
TEST(Linear, LowPrecisionOperandsWithF32Logits) {
  Tensor weight = cast(sample_tensor({5, 24}, 1), DType::f32),
         bias = cast(sample_tensor({5}, 2), DType::f32);
  weight.autograd().bf16_copy = cast(weight, DType::bf16);
  weight.set_requires_grad(true);
  bias.set_requires_grad(true);
  const Tensor x = cast(sample_tensor({9, 24}, 3), DType::bf16), labels = sample_labels(9, 5, 4);
  const Tensor logits = linear_to(x, low_precision(weight), bias, DType::f32);
  EXPECT_EQ(logits.dtype(), DType::f32);
  backward(cross_entropy(logits, labels));
  ASSERT_EQ(weight.grad().dtype(), DType::f32);

  Tensor exact = cast(weight.autograd().bf16_copy, DType::f64).set_requires_grad(true),
         exact_bias = cast(detach(bias), DType::f64).set_requires_grad(true);
  backward(cross_entropy(linear(cast(x, DType::f64), exact, exact_bias), labels));
  // dz, at most 1/9 a row, is rounded to bf16: 9 * 2 * 2^-9 / 9
  EXPECT_TRUE(test::close(weight.grad(), exact.grad(), {.absolute = 0x1p-8}));
  EXPECT_TRUE(test::close(bias.grad(), exact_bias.grad(), {.absolute = 1e-5}));
}

TEST(Matmul, TransposedViewsOfAnyLeadingDimension) {
  const Tensor big = sample_tensor({9, 11}, 1), other = sample_tensor({4, 6}, 2);
  const Tensor a = slice(slice(big, 0, 2, 5), 1, 3, 7);  // [3, 4] with rows 11 apart
  const auto wanted = matmul(copy(a), other).to_vector<double>();
  EXPECT_EQ(matmul(a, other).to_vector<double>(), wanted);
  EXPECT_EQ(matmul(transpose(a), other, true).to_vector<double>(), wanted);
  EXPECT_EQ(matmul(a, transpose(other), false, true).to_vector<double>(), wanted);
  EXPECT_EQ(message_of([&] { matmul(a, other, false, true); }),
      "matmul: inner sizes differ: a is f64[3, 4] cpu, b is f64[4, 6] cpu, b transposed; "
      "a.shape[1] is 4, b.shape[1] is 6\n    hint: "
      "matmul(a, b, false, false)");
}

TEST(Apply, OneInputThatIsUndefinedIsNotARangeOfInputs) {
  test::expect_error(Error::Kind::shape, {"relu: input 0 is undefined; it must be a tensor"},
      [] { relu(Tensor()); });
}

TEST(SumRows, ErrorStaysWithinTheSquareRootOfTheRows) {
  for (const int64_t rows : {5, 128, 1000, 4099}) {
    const Tensor x = cast(sample_tensor({rows, 37}, 1), DType::f32);
    const Tensor magnitude = sum_rows(abs(cast(x, DType::f64)));
    const auto bounds = scale(magnitude, 4 * std::sqrt(rows) * 0x1p-24).to_vector<double>();
    EXPECT_TRUE(test::close(sum_rows(x), sum_rows(cast(x, DType::f64)), {.each = bounds}));
  }
}

TEST(SumRows, TheSameForAnyNumberOfThreads) {
  const Tensor x = cast(sample_tensor({700, 900}, 1), DType::f32);
  const test::Scoped threads(num_threads, set_num_threads, 1);
  const auto one = sum_rows(x).to_vector<float>();
  const auto norm = squared_norm(x).item();
  set_num_threads(3);
  EXPECT_EQ(sum_rows(x).to_vector<float>(), one);
  EXPECT_EQ(squared_norm(x).item(), norm);
}

}  // namespace
}  // namespace sinter
