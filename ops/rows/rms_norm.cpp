// rms_norm over the last dim, of D columns (Zhang, Sennrich, arXiv 1910.07467), and its backwards
// (formulas: ops/rows/row_formulas.h). rstd, one number for each row, is saved for them. dweight =
// sum over the rows of dy n, n = x rstd.
#include "ops/kernels.h"
#include "ops/ops.h"
#include "ops/rows/row_cpu.h"

namespace sinter {
namespace {

void check(Operands, const Attrs& attrs) {
  const double eps = attrs.as<RmsNormAttrs>().eps;
  SINTER_CHECK(eps >= 0, usage, str("rms_norm: eps is ", eps, "; it must be at least 0"));
}

Cost cost(Operands in, Operands out, const Attrs&) {
  const bool weight = optional_input(in, 1).defined();
  return cost_of((weight ? 4 : 3) * in[0].numel() + 4 * out[1].numel(), in, out);
}
Cost backward_cost(Operands in, Operands out, const Attrs&) {
  const bool weight = optional_input(in, 3).defined();
  return cost_of((weight ? 8 : 6) * in[0].numel() + 2 * in[2].numel(), in, out);
}

void weight_grad_cpu(const Call& call) {
  weight_grad_of_norm(call, [&]<class V>(V) {
    const V* rstd = call.in[2].data<V>();
    return [=](V x, int64_t r) { return x * rstd[r]; };
  });
}

// Of y alone: rstd, which the public function does not give, has none.
Tensors backward(const Saved& saved, Operands grads) {
  const Tensor &dy = grads[0], &x = saved.in[0], &rstd = saved.out[1];
  Tensors out(saved.in.size());
  if (saved.wants(0))
    out[0] =
        apply1(kRmsNormBackwardOp, {dy, x, rstd, optional_input(saved.in, 1)}, {}, Role::dgrad);
  if (saved.wants(1)) out[1] = apply1(kRmsNormWeightGradOp, {dy, x, rstd}, {}, Role::wgrad);
  return out;
}

}  // namespace

const OpDef kRmsNormOp =
    listed<kRmsNormOp>({.formula = "y = x / sqrt(mean(x^2) + eps) weight, by rows",
        .attrs = attr_type<RmsNormAttrs>(),
        .check = check,
        .cost = cost,
        .cpu = on_cpu::run_op<on_cpu::RmsNorm>,
        .backward = backward,
        .saves_in = 0b11,
        .saves_out = 0b10});
const OpDef kRmsNormBackwardOp =
    listed<kRmsNormBackwardOp>({.formula = "dx = rstd (g - n mean(g n)), g = dy weight, n = x rstd",
        .cost = backward_cost,
        .cpu = on_cpu::run_op<on_cpu::RmsNormBackward>});
const OpDef kRmsNormWeightGradOp =
    listed<kRmsNormWeightGradOp>({.formula = "dweight = sum over rows of dy x rstd",
        .cost = cost_per_element<3>,
        .cpu = weight_grad_cpu});

Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps) {
  return apply(kRmsNormOp, {x, weight}, RmsNormAttrs{eps})[0];
}

}  // namespace sinter
