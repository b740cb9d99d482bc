// Shape rules, costs and the gradient of the pointwise ops, from the facts of their structs.
#include "ops/pointwise/pointwise_op.h"

namespace sinter::pointwise_detail {
namespace {

void check_operands(const Facts& op, Operands in) {
  const int first = op.has_condition ? 1 : 0;
  if (op.has_condition) check_dtype(op.name, "condition", in[0], DType::u8);
  check_floating(op.name, first ? "a" : "x", in[first]);
  for (int i = first + 1; i < op.arity; ++i) {
    SINTER_CHECK(in[i].defined(), shape, cat(op.name, ": operand ", i, " is undefined"));
    check_same_dtype(op.name, "a", in[first], "b", in[i]);
  }
}

}  // namespace

Tensors infer_forward(const Facts& op, Operands in, bool mask) {
  check_operands(op, in);
  Shape shape = in[0].shape();
  for (int i = 1; i < op.arity; ++i) shape = broadcast_shapes(op.name, shape, in[i].shape());
  Tensors out{Tensor::shape_only(shape, in[op.arity - 1].dtype(), in[0].device())};
  if (mask) {
    SINTER_CHECK(shape.rank() >= 1, shape,
        cat(op.name, ": a scalar has no rows: x is ", in[0].describe()), "reshape(x, {1})");
    out.push_back(Tensor::shape_only(relu_mask_shape(shape), DType::u8, in[0].device()));
  }
  return out;
}

Cost cost_forward(const Facts& op, Operands in, Operands out) {
  Cost c = cost_of(op.flops * out[0].numel(), in, out.first(1));
  if (out.size() > 1) c.bytes_written += (out[0].numel() + 7) / 8;
  return c;
}

// Inputs: dy, then what the op saves, each of a shape that broadcasts to dy's (a mask has rows of
// its own). Outputs: one dense gradient of the full shape per differentiable input.
Tensors infer_backward(const Facts& op, Operands in) {
  const char* name = op.backward_name;
  const Tensor& dy = in[0];
  check_floating(name, "dy", dy);
  const bool mask = op.saves == Saves::mask;
  for (int i = 1; i <= op.saved_values; ++i) {
    const Tensor& saved = in[i];
    const bool bytes = mask || (op.has_condition && i == 1);
    check_dtype(name, "what was saved", saved, bytes ? DType::u8 : dy.dtype());
    const bool fits = mask ? dy.rank() > 0 && saved.shape() == relu_mask_shape(dy.shape())
                           : broadcasts_to(saved.shape(), dy.shape());
    SINTER_CHECK(fits, shape,
        cat(name, ": what was saved does not fit: ", describe({{"dy", &dy}, {"saved", &saved}}),
            mask && dy.rank() > 0 ? "; it must be " + relu_mask_shape(dy.shape()).str()
            : mask                ? "; a scalar has no rows"
                                  : "; it must broadcast to " + dy.shape().str()));
  }
  return Tensors(size_t(op.grads), Tensor::shape_only(dy.shape(), dy.dtype(), dy.device()));
}

Cost cost_backward(const Facts& op, Operands in, Operands out) {
  const bool mask = op.saves == Saves::mask;
  Cost c = cost_of(op.backward_flops * out[0].numel(), mask ? in.first(1) : in, out);
  if (mask) c.bytes_read += (out[0].numel() + 7) / 8;
  return c;
}

Tensors backward(const Facts& op, const OpDef& backward_op, const Saved& saved, Operands grads) {
  Tensors full;
  if (op.backward_flops == 0) {
    full.assign(size_t(op.grads), grads[0]);
  } else if (&op == &kFacts<pointwise::Mul>) {  // its derivatives are products again: only
                                                // the wanted ones
    full = {saved.wants(0) ? mul(grads[0], saved.in[1]) : Tensor{},
        saved.wants(1) ? mul(grads[0], saved.in[0]) : Tensor{}};
  } else {
    Tensors in{grads[0]};
    if (op.saves == Saves::inputs) in.insert(in.end(), saved.in.begin(), saved.in.end());
    if (op.saves == Saves::output) in.push_back(saved.out[0]);
    if (op.saves == Saves::mask) {
      SINTER_ASSERT(saved.out.size() == 2, op.name, " ran without its mask");
      in.push_back(saved.out[1]);
    }
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
