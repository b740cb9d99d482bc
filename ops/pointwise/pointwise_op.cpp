// Shape rules, costs and the gradient of the pointwise ops, from the facts of their structs.
#include "ops/pointwise/pointwise_op.h"

namespace sinter::pointwise_detail {
namespace {

void check_operands(const OpFacts& op, Operands in) {
  const int first = op.has_condition ? 1 : 0;
  if (op.has_condition) check_dtype(op.name, "condition", in[0], DType::u8);
  check_floating(op.name, first ? "a" : "x", in[first]);
  for (int i = first + 1; i < op.arity; ++i) {
    SINTER_CHECK(in[i].defined(), shape, str(op.name, ": operand ", i, " is undefined"));
    check_same_dtype(op.name, "a", in[first], "b", in[i]);
  }
}

}  // namespace

Tensors infer_forward(const OpFacts& op, Operands in) {
  check_operands(op, in);
  Shape shape = in[0].shape();
  for (int i = 1; i < op.arity; ++i) shape = broadcast_shapes(op.name, shape, in[i].shape());
  return {Tensor::shape_only(shape, in[op.arity - 1].dtype(), in[0].device())};
}

Cost cost_forward(const OpFacts& op, Operands in, Operands out) {
  return cost_of(op.flops * out[0].numel(), in, out);
}

// Inputs: dy, then what the op saves, each of a shape that broadcasts to dy's. Outputs: one dense
// gradient of the full shape per differentiable input.
Tensors infer_backward(const OpFacts& op, Operands in) {
  const char* name = op.backward_name;
  const Tensor& dy = in[0];
  check_floating(name, "dy", dy);
  for (int i = 1; i <= op.saved_values; ++i) {
    const Tensor& saved = in[i];
    const bool bytes = op.has_condition && i == 1;
    check_dtype(name, "what was saved", saved, bytes ? DType::u8 : dy.dtype());
    SINTER_CHECK(broadcasts_to(saved.shape(), dy.shape()), shape,
        str(name, ": what was saved does not fit: ", describe({{"dy", &dy}, {"saved", &saved}}),
            "; it must broadcast to ", dy.shape().str()));
  }
  return Tensors(size_t(op.grads), Tensor::shape_only(dy.shape(), dy.dtype(), dy.device()));
}

Cost cost_backward(const OpFacts& op, Operands in, Operands out) {
  return cost_of(op.backward_flops * out[0].numel(), in, out);
}

Tensors backward(const OpFacts& op, const OpDef& backward_op, const Saved& saved, Operands grads) {
  Tensors full;
  if (op.backward_flops == 0) {
    full.assign(size_t(op.grads), grads[0]);
  } else if (&op == &kFacts<pointwise::Mul>) {  // its derivatives are products again: only
                                                // the wanted ones
    full = {saved.wants(0) ? mul(grads[0], saved.in[1]) : Tensor{},
        saved.wants(1) ? mul(grads[0], saved.in[0]) : Tensor{}};
  } else if (&op == &kFacts<pointwise::Where> && saved.wants(1) != saved.wants(2)) {
    // By the condition alone: so a mask's gradient does not wait for the value that it hides, as a
    // fused loss, which makes both at once, could not give it that.
    const Tensor zero = constant_like(grads[0], 0);
    full = {saved.wants(1) ? where(saved.in[0], grads[0], zero) : Tensor{},
        saved.wants(2) ? where(saved.in[0], zero, grads[0]) : Tensor{}};
  } else {
    Tensors in{grads[0]};
    if (op.saves == Saves::inputs) in.insert(in.end(), saved.in.begin(), saved.in.end());
    if (op.saves == Saves::output) in.push_back(saved.out[0]);
    full = apply(backward_op, in, saved.attrs);
  }
  const int first = op.arity - op.grads;
  Tensors out(size_t(op.arity));
  for (int i = first; i < op.arity; ++i) {
    if (saved.wants(i)) out[i] = sum_to(full[i - first], saved.in[i].shape());
  }
  return out;
}

}  // namespace sinter::pointwise_detail
