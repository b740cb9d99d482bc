// Samples of batch_norm2d, its form for evaluation and its backwards.
#include "ops/ops.h"
#include "tests/ops/samples/samples.h"

namespace sinter {
namespace {

Tensors batch_norm_operands(const Shape& shape) {
  const int64_t c = shape.rank() >= 2 ? shape[1] : 1;
  return {sample_tensor(shape, 1), sample_tensor({c}, 2), sample_tensor({c}, 3),
      sample_tensor({c}, 4), sample_tensor({c}, 5, 0.5, 2),
      Tensor::from(std::vector<int64_t>{7}, Shape{})};
}
Sample batch_norm_sample(const Shape& shape, const BatchNormAttrs& attrs = {}) {
  return {
      .in = batch_norm_operands(shape), .attrs = attrs, .what = shape.str(), .first_only = true};
}

std::vector<Sample> batch_norm_samples() {
  std::vector<Sample> all;
  for (const Shape& shape : {Shape{3, 2, 4, 3}, Shape{1, 3, 5, 2}, Shape{6, 4}, Shape{2, 3, 5},
           Shape{35, 2, 1, 1}, Shape{2, 1, 3, 7}, Shape{0, 2, 3, 3}})
    all.push_back(batch_norm_sample(shape));
  all.push_back(batch_norm_sample({3, 2, 2, 2}, {.momentum = 1, .eps = 0.5}));
  all.push_back(batch_norm_sample({4, 3, 5, 2}, {.momentum = 0.3, .eps = 0.25}));
  Sample turned = batch_norm_sample({2, 3, 4, 4});
  turned.in[0] = transpose(turned.in[0]);
  turned.what = "transposed";
  all.push_back(turned);
  const Tensors good = batch_norm_operands({3, 2, 4, 3});
  for (size_t i = 1; i < good.size(); ++i) {
    Tensors in = good;
    in[i] = i == 5 ? Tensor::zeros({1}, DType::i64) : sample_tensor({3}, 9);
    all.push_back(bad_sample(in, BatchNormAttrs{}, str("operand ", i, " of another shape")));
    in[i] = Tensor::zeros(good[i].shape(), DType::f32);
    all.push_back(bad_sample(in, BatchNormAttrs{}, str("operand ", i, " of another type")));
  }
  all.push_back(bad_sample(batch_norm_operands({1, 2, 1, 1}), BatchNormAttrs{}, "one value"));
  all.push_back(bad_sample(batch_norm_operands({3, 0, 2, 2}), BatchNormAttrs{}, "no channels"));
  all.push_back(bad_sample(batch_norm_operands({3}), BatchNormAttrs{}, "one dim"));
  return all;
}

// The same without the counter; the statistics have no gradient.
std::vector<Sample> batch_norm_eval_samples() {
  std::vector<Sample> all;
  for (Sample& sample : batch_norm_samples()) {
    if (sample.what.starts_with("operand 5") || sample.what == "one value") continue;
    sample.in.pop_back();
    sample.differentiable = false;
    all.push_back(std::move(sample));
  }
  return all;
}

// dy, x, [weight,] mean, rstd[, dweight, dbias].
Tensors batch_norm_gradient(const Shape& shape, bool of_x) {
  const int64_t c = shape[1];
  Tensors in{sample_tensor(shape, 1), sample_tensor(shape, 2)};
  if (of_x) in.push_back(sample_tensor({c}, 3));
  in.push_back(sample_tensor({c}, 4, -0.5, 0.5));
  in.push_back(sample_tensor({c}, 5, 0.5, 1.5));
  if (of_x) in.push_back(sample_tensor({c}, 6));
  if (of_x) in.push_back(sample_tensor({c}, 7));
  return in;
}
template <bool kOfX> std::vector<Sample> batch_norm_gradient_samples() {
  std::vector<Sample> all;
  for (const Shape& shape : {Shape{3, 2, 4, 3}, Shape{6, 4}, Shape{35, 2, 1, 1}, Shape{1, 3, 9, 7},
           Shape{2, 3, 5}, Shape{0, 2, 3, 3}}) {
    all.push_back(fixed_sample(batch_norm_gradient(shape, kOfX), {}, shape.str()));
  }
  const Tensors good = batch_norm_gradient({3, 2, 4, 3}, kOfX);
  for (size_t i = 0; i < good.size(); ++i) {
    Tensors in = good;
    in[i] = sample_tensor({5}, 9);
    all.push_back(bad_sample(std::move(in), {}, str("operand ", i, " of another shape")));
  }
  return all;
}

const Samples batch_norm2d_samples_of(kBatchNorm2dOp, batch_norm_samples);
const Samples batch_norm2d_eval_samples_of(kBatchNorm2dEvalOp, batch_norm_eval_samples);
const Samples batch_norm2d_backward_samples_of(
    kBatchNorm2dBackwardOp, batch_norm_gradient_samples<true>);
const Samples batch_norm2d_weight_grad_samples_of(
    kBatchNorm2dWeightGradOp, batch_norm_gradient_samples<false>);

}  // namespace
}  // namespace sinter
