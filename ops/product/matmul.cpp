// matmul: C[M, N] = op(A)[M, K] op(B)[K, N], op(X) = X or X^T. Also the products of linear's
// backward, told apart by their Role.
#include "ops/kernels.h"
#include "ops/ops.h"
#include "ops/product/matrix_view.h"

namespace sinter {

namespace {

Tensors infer(Operands in, const Attrs& attrs) {
  const auto& [trans_a, trans_b, out] = attrs.as<MatmulAttrs>();
  const Tensor &a = in[0], &b = in[1];
  const int inner_a = trans_a ? 0 : 1, inner_b = trans_b ? 1 : 0;
  SINTER_CHECK(a.size(inner_a) == b.size(inner_b), shape,
      cat("matmul: inner sizes differ: ", describe({{"a", &a}, {"b", &b}}),
          trans_a ? ", a transposed" : "", trans_b ? ", b transposed" : "", "; a.shape[", inner_a,
          "] is ", a.size(inner_a), ", b.shape[", inner_b, "] is ", b.size(inner_b)),
      a.size(inner_a) == b.size(1 - inner_b)
          ? cat("matmul(a, b, ", trans_a ? "true, " : "false, ", trans_b ? "false)" : "true)")
          : "");
  return {Tensor::shape_only({a.size(1 - inner_a), b.size(1 - inner_b)}, out, a.device())};
}

Cost cost(Operands in, Operands out, const Attrs& attrs) {
  return cost_of(2 * out[0].numel() * in[0].size(attrs.as<MatmulAttrs>().trans_a ? 0 : 1), in, out);
}

void cpu(const Call& call) {
  const auto& attrs = call.as<MatmulAttrs>();
  const Tensor& c = call.out[0];
  multiply(MatrixView(call.in[0]), attrs.trans_a, MatrixView(call.in[1]), attrs.trans_b, Tensor(),
      c.dtype(), c.raw());
}

Tensors backward(const Saved& saved, Operands grads) {
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

const OpDef kMatmulOp = listed<kMatmulOp>({.formula = "C = op(A) op(B), op(X) = X or X^T",
    .attrs = attr_type<MatmulAttrs>(),
    .infer = infer,
    .cost = cost,
    .cpu = cpu,
    .backward = backward,
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
