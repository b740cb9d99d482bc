// linear: y[B, O] = x[B, I] W[O, I]^T + b[O], one GEMM with the bias inside.
// Backward: dW = dY^T x (wgrad), db = column sums of dY (bgrad), dX = dY W (dgrad).
#include "ops/kernels.h"
#include "ops/ops.h"
#include "ops/product/matrix_view.h"

// B batch, I in, O out
namespace sinter {
namespace {

// Any rank is linear_to()'s to flatten.
void check(Operands in, const Attrs&) { check_rank("linear", "x", in[0], 2); }

Cost cost(Operands in, Operands out, const Attrs&) {
  const int64_t bias = optional_input(in, 2).defined() ? out[0].numel() : 0;
  return cost_of(2 * out[0].numel() * in[1].size(1) + bias, in, out);
}

void cpu(const Call& call) {
  const Tensor& y = call.out[0];
  multiply(MatrixView(call.in[0]), false, MatrixView(call.in[1]), true, optional_input(call.in, 2),
      y.dtype(), y.raw());
}

Tensors backward(const Saved& saved, Operands grads) {
  const Tensor &x = saved.in[0], &weight = saved.in[1];
  const Tensor dy = grads[0];
  // f32 logits of bf16 operands: the products want one operand type, the bias gradient keeps the
  // better one.
  const Tensor dz =
      dy.dtype() != x.dtype() && (saved.wants(0) || saved.wants(1)) ? cast(dy, x.dtype()) : dy;
  Tensors out(saved.in.size());
  if (saved.wants(1)) out[1] = matmul_as(dz, x, true, false, wide(x.dtype()), Role::wgrad);
  if (saved.wants(2)) out[2] = sum_rows(dy, Role::bgrad);
  if (saved.wants(0)) out[0] = matmul_as(dz, weight, false, false, x.dtype(), Role::dgrad);
  return out;
}

}  // namespace

const OpDef kLinearOp = listed<kLinearOp>({.formula = "y = x W^T + b",
    .attrs = attr_type<LinearAttrs>(),
    .check = check,
    .cost = cost,
    .cpu = cpu,
    .backward = backward,
    .saves_in = 0b11,
    .strided = 0b11});

Tensor linear_to(const Tensor& x, const Tensor& weight, const Tensor& bias, DType out) {
  Tensors in{x, weight};
  if (bias.defined()) in.push_back(bias);
  const bool flat = x.defined() && weight.defined() && x.rank() != 2 && x.rank() > 0 &&
                    weight.rank() == 2 && x.size(-1) == weight.size(1);
  if (!flat) return apply1(kLinearOp, std::move(in), LinearAttrs{out});
  Shape shape = x.shape();
  shape[-1] = 1;
  in[0] = reshape(x, {shape.numel(), x.size(-1)});
  shape[-1] = weight.size(0);
  return reshape(apply1(kLinearOp, std::move(in), LinearAttrs{out}), shape);
}

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  return linear_to(x, weight, bias, x.defined() ? x.dtype() : DType::f32);
}

}  // namespace sinter
