// linear: y[B, O] = x[B, I] W[O, I]^T + b[O], one GEMM with the bias inside.
// Backward: dW = dY^T x (wgrad), db = column sums of dY (bgrad), dX = dY W (dgrad).
//
// matmul: C[M, N] = op(A)[M, K] op(B)[K, N], op(X) = X or X^T. Also the products of linear's
// backward, told apart by their Role.
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

Tensors matmul_infer(Operands in, const Attrs& attrs) {
  const auto& [trans_a, trans_b, out] = attrs.as<MatmulAttrs>();
  const Tensor &a = in[0], &b = in[1];
  const int inner_a = trans_a ? 0 : 1, inner_b = trans_b ? 1 : 0;
  SINTER_CHECK(a.size(inner_a) == b.size(inner_b), shape,
      str("matmul: inner sizes differ: ", describe({{"a", &a}, {"b", &b}}),
          trans_a ? ", a transposed" : "", trans_b ? ", b transposed" : "", "; a.shape[", inner_a,
          "] is ", a.size(inner_a), ", b.shape[", inner_b, "] is ", b.size(inner_b)),
      a.size(inner_a) == b.size(1 - inner_b)
          ? str("matmul(a, b, ", trans_a ? "true, " : "false, ", trans_b ? "false)" : "true)")
          : "");
  return {Tensor::shape_only({a.size(1 - inner_a), b.size(1 - inner_b)}, out, a.device())};
}

Cost matmul_cost(Operands in, Operands out, const Attrs& attrs) {
  return cost_of(2 * out[0].numel() * in[0].size(attrs.as<MatmulAttrs>().trans_a ? 0 : 1), in, out);
}

void matmul_cpu(const Call& call) {
  const auto& attrs = call.as<MatmulAttrs>();
  const Tensor& c = call.out[0];
  multiply(MatrixView(call.in[0]), attrs.trans_a, MatrixView(call.in[1]), attrs.trans_b, Tensor(),
      c.dtype(), c.raw());
}

Tensors matmul_backward(const Saved& saved, Operands grads) {
  const auto& [ta, tb, out] = saved.as<MatmulAttrs>();
  const Tensor &a = saved.in[0], &b = saved.in[1];
  const DType type = a.dtype();
  const Tensor dc = grads[0].dtype() != type ? cast(grads[0], type) : grads[0];
  Tensors result(2);
  if (saved.wants(0))
    result[0] = ta ? matmul_as(b, dc, tb, true, type, Role::none)
                   : matmul_as(dc, b, false, !tb, type, Role::none);
  if (saved.wants(1))
    result[1] = tb ? matmul_as(dc, a, true, ta, type, Role::none)
                   : matmul_as(a, dc, !ta, false, type, Role::none);
  return result;
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

const OpDef kMatmulOp = listed<kMatmulOp>({.formula = "C = op(A) op(B), op(X) = X or X^T",
    .attrs = attr_type<MatmulAttrs>(),
    .infer = matmul_infer,
    .cost = matmul_cost,
    .cpu = matmul_cpu,
    .backward = matmul_backward,
    .saves_in = 0b11,
    .strided = 0b11});

Tensor matmul(const Tensor& a, const Tensor& b, bool trans_a, bool trans_b) {
  return matmul_as(a, b, trans_a, trans_b, a.defined() ? a.dtype() : DType::f32, Role::none);
}
Tensor matmul_as(
    const Tensor& a, const Tensor& b, bool trans_a, bool trans_b, DType out, Role role) {
  return apply1(kMatmulOp, {a, b}, MatmulAttrs{trans_a, trans_b, out}, role);
}

}  // namespace sinter
