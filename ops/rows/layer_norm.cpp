// layer_norm over the last dim, of N columns (Ba, Kiros, Hinton, arXiv 1607.06450), and its
// backwards (formulas: ops/rows/row_formulas.h). mean and rstd, one number for each row, are saved
// for them. dweight = sum over the rows of dy n; dbias = sum_rows(dy).
#include "ops/kernels.h"
#include "ops/ops.h"
#include "ops/rows/row_cpu.h"

// N columns
namespace sinter {
namespace {

void check(Operands, const Attrs& attrs) {
  const double eps = attrs.as<LayerNormAttrs>().eps;
  SINTER_CHECK(eps >= 0, usage, str("layer_norm: eps is ", eps, "; it must be at least 0"));
}

Cost cost(Operands in, Operands out, const Attrs&) {
  return cost_of(8 * in[0].numel() + 5 * out[1].numel(), in, out);
}

void weight_grad_cpu(const Call& call) {
  weight_grad_of_norm(call, [&]<class V>(V) {
    const V *mean = call.in[2].data<V>(), *rstd = call.in[3].data<V>();
    return [=](V x, int64_t r) { return on_cpu::normalised(x, mean[r], rstd[r]); };
  });
}

// Of y alone: mean and rstd, which the public function does not give, have none.
Tensors backward(const Saved& saved, Operands grads) {
  const Tensor &dy = grads[0], &x = saved.in[0], &mean = saved.out[1], &rstd = saved.out[2];
  Tensors out(3);
  if (saved.wants(0))
    out[0] = apply1(kLayerNormBackwardOp, {dy, x, saved.in[1], mean, rstd}, {}, Role::dgrad);
  if (saved.wants(1)) out[1] = apply1(kLayerNormWeightGradOp, {dy, x, mean, rstd}, {}, Role::wgrad);
  if (saved.wants(2)) out[2] = sum_rows(dy, Role::bgrad);
  return out;
}

}  // namespace

const OpDef kLayerNormOp =
    listed<kLayerNormOp>({.formula = "y = (x - mean) / sqrt(var + eps) weight + bias, by rows",
        .attrs = attr_type<LayerNormAttrs>(),
        .check = check,
        .cost = cost,
        .cpu = on_cpu::run_op<on_cpu::LayerNorm>,
        .backward = backward,
        .saves_in = 0b011,
        .saves_out = 0b110});
const OpDef kLayerNormBackwardOp = listed<kLayerNormBackwardOp>(
    {.formula = "dx = rstd (g - mean(g) - n mean(g n)), g = dy weight, n = (x - mean) rstd",
        .cost = cost_per_element<11, 0, 0, 2>,
        .cpu = on_cpu::run_op<on_cpu::LayerNormBackward>});
const OpDef kLayerNormWeightGradOp =
    listed<kLayerNormWeightGradOp>({.formula = "dweight = sum over rows of dy (x - mean) rstd",
        .cost = cost_per_element<4>,
        .cpu = weight_grad_cpu});

Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps) {
  return apply(kLayerNormOp, {x, weight, bias}, LayerNormAttrs{eps})[0];
}

}  // namespace sinter
