// The types of gradients. What an op computed gets a gradient of its own type, whichever operand of
// the next op it is: its backward reads nothing else. A parameter, and its bf16 copy, keep what the
// op gives, which for weights and biases in bf16 is f32.
#include <gtest/gtest.h>

#include "tests/closeness.h"
#include "tests/ops/device_samples.h"

namespace sinter {
namespace {

bool is_differentiated(const OpDef& op, const Tensor& t, size_t i, size_t n) {
  return t.defined() && is_float(t.dtype()) && !op.writes_input(i, n);
}

// Hands its operand on. Its backward takes no other type than the operand's.
Tensor computed(const Tensor& t) { return div(t, constant(1, t.dtype(), t.device())); }

// Operand i computed by an op, then also read by another one; the rest are leaves.
void check_operand(const OpDef& op, const Sample& sample, DType dtype, size_t i) {
  const Tensors leaves = with_dtype(op, sample.in, dtype);
  Tensors in = leaves;
  for (size_t k = 0; k < in.size(); ++k) {
    if (is_differentiated(op, in[k], k, in.size())) in[k].set_requires_grad(true);
  }
  clear_tape();
  in[i] = computed(leaves[i]);
  // A view hands a gradient on to what made the value.
  if (in[i].rank() > 0) in[i] = reshape(in[i], in[i].shape());
  retain_grad(in[i]);
  const Tensor out = apply(op, in, with_dtype(sample.attrs, dtype))[0], own = sum(computed(in[i]));
  backward(cast(sum(out), DType::f64) + cast(own, DType::f64));
  ASSERT_TRUE(in[i].grad().defined());
  EXPECT_EQ(in[i].grad().dtype(), in[i].dtype()) << "operand " << i;
  EXPECT_EQ(leaves[i].grad().dtype(), leaves[i].dtype()) << "operand " << i;
}

TEST(GradientTypes, OfWhatAnOpComputedItIsTheValues) {
  int operands = 0;
  for (const OpDef* op : all_ops()) {
    if (!op->backward) continue;
    for (const Sample& sample : samples_of(*op)) {
      if (sample.bad || !sample.differentiable) continue;
      for (const DType dtype : {DType::bf16, DType::f32, DType::f64}) {
        if (!takes(*op, dtype)) continue;
        for (size_t i = 0; i < sample.in.size(); ++i) {
          if (!is_differentiated(*op, sample.in[i], i, sample.in.size())) continue;
          SCOPED_TRACE(str(op->text(), ", ", sample.what, ", ", name_of(dtype), ", operand ", i));
          ASSERT_NO_THROW(check_operand(*op, sample, dtype, i));
          operands += i > 0;
        }
      }
    }
  }
  EXPECT_GT(operands, 200);
}

TEST(GradientTypes, OfAParameterAndItsViewsItIsTheOps) {
  const auto bf16_leaf = [](const Shape& shape, uint64_t seed) {
    return cast(sample_tensor(shape, seed), DType::bf16).set_requires_grad(true);
  };
  const Tensor x = bf16_leaf({3, 4}, 1), w = bf16_leaf({4, 4}, 2), b = bf16_leaf({4}, 3);
  backward(sum(linear(x, transpose(reshape(w, {4, 4})), b)));
  EXPECT_EQ(x.grad().dtype(), DType::bf16);
  EXPECT_EQ(w.grad().dtype(), DType::f32);
  EXPECT_EQ(b.grad().dtype(), DType::f32);

  Tensor master = cast(sample_tensor({4, 4}, 2), DType::f32).set_requires_grad(true);
  master.autograd().bf16_copy = cast(detach(master), DType::bf16);
  backward(sum(linear(detach(x), transpose(low_precision(master)))));
  EXPECT_EQ(master.grad().dtype(), DType::f32);
}

// One op gives an f32 part of its gradient, the other a bf16 one: their sum is as one alone.
TEST(GradientTypes, PartsOfTwoTypesAddUp) {
  const Tensor x = cast(sample_tensor({3, 4}, 1), DType::bf16);
  Tensor w = Tensor::full({4, 4}, 0.5, DType::bf16).set_requires_grad(true);
  backward(sum(linear(x, w)));
  std::vector<double> both = w.grad().to_vector<double>();
  for (double& v : both) v += 1;
  for (const bool product_first : {false, true}) {
    w.autograd().grad = {};
    const Tensor first = product_first ? sum(linear(x, w)) : sum(relu(w)),
                 second = product_first ? sum(relu(w)) : sum(linear(x, w));
    backward(first + second);
    EXPECT_EQ(w.grad().dtype(), DType::f32);
    EXPECT_TRUE(test::close(w.grad(), both, {.absolute = 1e-6}));
  }
}

// linear(q, relu(k)), as matmul(q, relu(k)^T).
TEST(Cases, Bf16SecondOperand) {
  const Tensor x = Tensor::full({3, 4}, .25, DType::bf16);
  std::vector<float> grads[2];
  for (const bool as_matmul : {false, true}) {
    Tensor w = Tensor::full({4, 4}, .5, DType::bf16).set_requires_grad(true);
    const Tensor k = relu(linear(x, w));
    ASSERT_NO_THROW(backward(mean(as_matmul ? matmul(x, k, false, true) : linear(x, k))));
    grads[as_matmul] = w.grad().to_vector<float>();
  }
  EXPECT_EQ(grads[0], grads[1]);
}

}  // namespace
}  // namespace sinter
