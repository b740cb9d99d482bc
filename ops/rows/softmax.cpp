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

template <const OpDef& def> Tensors backward(const Saved& saved, Operands grads) {
  return {apply1(def, {grads[0], saved.out[0]})};
}

}  // namespace

const OpDef kSoftmaxOp =
    listed<kSoftmaxOp>({.formula = "y = e^(x - max) / sum of e^(x - max), by rows",
        .cost = forward_cost,
        .cpu = on_cpu::run_softmax<on_cpu::Softmax>,
        .backward = backward<kSoftmaxBackwardOp>,
        .saves_out = 1});
const OpDef kSoftmaxBackwardOp =
    listed<kSoftmaxBackwardOp>({.formula = "dx = y (dy - sum(dy y)), by rows",
        .cost = cost_per_element<4>,
        .cpu = on_cpu::run_softmax<on_cpu::SoftmaxBackward>});
const OpDef kLogSoftmaxOp =
    listed<kLogSoftmaxOp>({.formula = "y = (x - max) - ln(sum of e^(x - max)), by rows",
        .cost = forward_cost,
        .cpu = on_cpu::run_softmax<on_cpu::LogSoftmax>,
        .backward = backward<kLogSoftmaxBackwardOp>,
        .saves_out = 1});
const OpDef kLogSoftmaxBackwardOp =
    listed<kLogSoftmaxBackwardOp>({.formula = "dx = dy - e^y sum(dy), by rows",
        .cost = cost_per_element<4>,
        .cpu = on_cpu::run_softmax<on_cpu::LogSoftmaxBackward>});

namespace {
// The op over the last dim, or over `dim`, which is moved there and back.
Tensor over_dim(const OpDef& op, const Tensor& x, int64_t dim) {
  if (dim == -1 || !x.defined() || normalize_dim(op.name.c_str(), dim, x.rank()) == x.rank() - 1)
    return apply1(op, {x});
  return transpose(apply1(op, {transpose(x, dim, -1)}), dim, -1);
}
}  // namespace

Tensor softmax(const Tensor& x, int64_t dim) { return over_dim(kSoftmaxOp, x, dim); }
Tensor log_softmax(const Tensor& x, int64_t dim) { return over_dim(kLogSoftmaxOp, x, dim); }

}  // namespace sinter
