// softmax and log_softmax over the last dim, and their backwards (formulas:
// ops/rows/row_formulas.h).
#include "ops/kernels.h"
#include "ops/ops.h"
#include "ops/rows/row_cpu.h"

// B rows, C classes
namespace sinter {
namespace {

Cost forward_cost(Operands in, Operands out, const Attrs&) {
  const int64_t n = in[0].numel();
  return cost_of(5 * n + (n ? n / in[0].size(-1) : 0), in, out);
}

template <const OpDef& op> void check(Operands in, const Attrs& attrs) {
  SINTER_CHECK(!attrs.as<SoftmaxAttrs>().causal || in[0].rank() >= 2, shape,
      str(op.text(), ": causal wants two dims: x is ", in[0].describe(),
          "; row r of x[.., S, C] has the columns 0..r"));
}

template <const OpDef& def> Tensors backward(const Saved& saved, Operands grads) {
  return {apply1(def, {grads[0], saved.out[0]}, saved.attrs)};
}

}  // namespace

const OpDef kSoftmaxOp =
    listed<kSoftmaxOp>({.formula = "y = e^(x - max) / sum of e^(x - max), by rows",
        .attrs = attr_type<SoftmaxAttrs>(),
        .check = check<kSoftmaxOp>,
        .cost = forward_cost,
        .cpu = on_cpu::run_softmax<on_cpu::Softmax>,
        .backward = backward<kSoftmaxBackwardOp>,
        .saves_out = 1});
const OpDef kSoftmaxBackwardOp =
    listed<kSoftmaxBackwardOp>({.formula = "dx = y (dy - sum(dy y)), by rows",
        .attrs = attr_type<SoftmaxAttrs>(),
        .check = check<kSoftmaxBackwardOp>,
        .cost = cost_per_element<4>,
        .cpu = on_cpu::run_softmax<on_cpu::SoftmaxBackward>});
const OpDef kLogSoftmaxOp =
    listed<kLogSoftmaxOp>({.formula = "y = (x - max) - ln(sum of e^(x - max)), by rows",
        .attrs = attr_type<SoftmaxAttrs>(),
        .check = check<kLogSoftmaxOp>,
        .cost = forward_cost,
        .cpu = on_cpu::run_softmax<on_cpu::LogSoftmax>,
        .backward = backward<kLogSoftmaxBackwardOp>,
        .saves_out = 1});
const OpDef kLogSoftmaxBackwardOp =
    listed<kLogSoftmaxBackwardOp>({.formula = "dx = dy - e^y sum(dy), by rows",
        .attrs = attr_type<SoftmaxAttrs>(),
        .check = check<kLogSoftmaxBackwardOp>,
        .cost = cost_per_element<4>,
        .cpu = on_cpu::run_softmax<on_cpu::LogSoftmaxBackward>});

namespace {
// The op over the last dim, or over `dim`, which is moved there and back.
Tensor over_dim(const OpDef& op, const Tensor& x, int64_t dim, bool causal) {
  const SoftmaxAttrs attrs{causal};
  if (dim == -1 || !x.defined() || normalize_dim(op.name.c_str(), dim, x.rank()) == x.rank() - 1)
    return apply1(op, {x}, attrs);
  SINTER_CHECK(!causal, usage,
      str(op.text(), ": causal is of the last dim: dim ", dim, " of ", x.describe()));
  return transpose(apply1(op, {transpose(x, dim, -1)}, attrs), dim, -1);
}
}  // namespace

Tensor softmax(const Tensor& x, int64_t dim, bool causal) {
  return over_dim(kSoftmaxOp, x, dim, causal);
}
Tensor log_softmax(const Tensor& x, int64_t dim, bool causal) {
  return over_dim(kLogSoftmaxOp, x, dim, causal);
}

}  // namespace sinter
