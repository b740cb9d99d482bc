// batch_norm2d over the channels of x[N, C, ..] (Ioffe and Szegedy, arXiv 1502.03167), and its
// backwards. n values of each channel: those of all images and pixels. mean and rstd, one number
// for each channel, are saved for them.
// The formulas are those of ops/rows/row_formulas.h. Training changes the running mean, the running
// variance, of the sum of squares / (n - 1), and num_batches_tracked += 1. Of an empty batch the
// mean is 0, and the running ones stay. batch_norm2d_eval takes them in place of the batch's.
// The variance takes a second pass over x, so that nothing cancels. An image's values are summed in
// 16 lanes and pieces of 2048, images in f64: a sum is off by at most 150 2^-24 of that of its
// magnitudes, and the error d of the mean adds only d^2 to the variance.
#include "ops/kernels.h"
#include "ops/ops.h"
#include "ops/rows/row_cpu.h"

// N images, C channels
namespace sinter {
namespace {

template <const OpDef& op> void check(Operands in, const Attrs& attrs) {
  const auto& [momentum, eps] = attrs.as<BatchNormAttrs>();
  SINTER_CHECK(eps >= 0 && momentum >= 0 && momentum <= 1, usage,
      str(op.text(), ": eps is ", eps, ", at least 0; momentum is ", momentum, ", 0 to 1"));
  SINTER_CHECK(&op != &kBatchNorm2dOp || in[0].size(0) * numel_of_dims(in[0], 2) != 1, shape,
      str("batch_norm2d: one value per channel: x is ", in[0].describe(),
          "; a variance takes at least 2 values"),
      "train on batches of at least 2 images, or call eval() first");
}

// Of y alone: mean and rstd, which the public function does not give, have none. dx takes the sums
// that are the other two.
Tensors backward(const Saved& saved, Operands grads) {
  const Tensor &dy = grads[0], &x = saved.in[0], &mean = saved.out[1], &rstd = saved.out[2];
  const Tensors sums = apply(kBatchNorm2dWeightGradOp, {dy, x, mean, rstd}, {}, Role::wgrad);
  Tensors out(6);
  if (saved.wants(0)) {
    out[0] = apply1(kBatchNorm2dBackwardOp, {dy, x, saved.in[1], mean, rstd, sums[0], sums[1]}, {},
        Role::dgrad);
  }
  if (saved.wants(1)) out[1] = sums[0];
  if (saved.wants(2)) out[2] = sums[1];
  return out;
}

// With constant moments dx is dy scale, and the others are what they are in training.
Tensors eval_backward(const Saved& saved, Operands grads) {
  const Tensor &dy = grads[0], &x = saved.in[0];
  const auto as = [](const Tensor& t, DType dtype) {
    return t.dtype() == dtype ? t : cast(t, dtype);
  };
  const DType type = wide(x.dtype());
  const Tensor rstd = 1 / sqrt(as(saved.in[4], type) + saved.as<BatchNormAttrs>().eps);
  Tensors out(5);
  if (saved.wants(0)) {
    Shape column = x.shape();
    for (int d = 0; d < x.rank(); ++d) column[d] = d == 1 ? x.size(1) : 1;
    out[0] = dy * reshape(as(as(saved.in[1], type) * rstd, x.dtype()), column);
  }
  if (!saved.wants(1) && !saved.wants(2)) return out;
  const Tensors sums =
      apply(kBatchNorm2dWeightGradOp, {dy, x, as(saved.in[3], type), rstd}, {}, Role::wgrad);
  if (saved.wants(1)) out[1] = sums[0];
  if (saved.wants(2)) out[2] = sums[1];
  return out;
}

}  // namespace

const OpDef kBatchNorm2dOp = listed<kBatchNorm2dOp>(
    {.formula = "y = (x - mean) / sqrt(var + eps) weight + bias, by channels of this batch",
        .attrs = attr_type<BatchNormAttrs>(),
        .check = check<kBatchNorm2dOp>,
        .cost = cost_per_element<kBatchNorm2dOp, 7, 14>,
        .cpu = on_cpu::run_op<on_cpu::BatchNorm>,
        .backward = backward,
        .saves_in = 0b11,
        .saves_out = 0b110});
const OpDef kBatchNorm2dEvalOp = listed<kBatchNorm2dEvalOp>(
    {.formula = "y = x scale + shift, by the running mean and variance of a channel",
        .attrs = attr_type<BatchNormAttrs>(),
        .check = check<kBatchNorm2dEvalOp>,
        .cost = cost_per_element<2, 5>,
        .cpu = on_cpu::run_op<on_cpu::BatchNormEval>,
        .backward = eval_backward,
        .saves_in = 0b11011});
const OpDef kBatchNorm2dBackwardOp = listed<kBatchNorm2dBackwardOp>(
    {.formula = "dx = rstd weight (dy - mean(dy) - n mean(dy n)), n = (x - mean) rstd, by channels",
        .cost = cost_per_element<5, 0, 4>,
        .cpu = on_cpu::run_op<on_cpu::BatchNormBackward>});
const OpDef kBatchNorm2dWeightGradOp = listed<kBatchNorm2dWeightGradOp>(
    {.formula = "dweight = sum(dy (x - mean) rstd), dbias = sum(dy), by channels",
        .cost = cost_per_element<5>,
        .cpu = on_cpu::run_op<on_cpu::BatchNormWeightGrad>});

Tensor batch_norm2d(const Tensor& x, const Tensor& weight, const Tensor& bias,
    const Tensor& running_mean, const Tensor& running_var, const Tensor& num_batches_tracked,
    const BatchNormAttrs& attrs) {
  return apply(
      kBatchNorm2dOp, {x, weight, bias, running_mean, running_var, num_batches_tracked}, attrs)[0];
}

Tensor batch_norm2d_eval(const Tensor& x, const Tensor& weight, const Tensor& bias,
    const Tensor& running_mean, const Tensor& running_var, double eps) {
  return apply1(
      kBatchNorm2dEvalOp, {x, weight, bias, running_mean, running_var}, BatchNormAttrs{.eps = eps});
}

}  // namespace sinter
