// linear: y[B, O] = x[B, I] W[O, I]^T + b[O], one GEMM with the bias inside.
// Backward: dW = dY^T x (wgrad), db = column sums of dY (bgrad), dX = dY W (dgrad).
#include "ops/kernels.h"
#include "ops/ops.h"
#include "ops/product/matrix_view.h"

// B batch, I in, O out
namespace sinter {
namespace {

std::string feature_hint(const Tensor& x, int64_t in_features) {
  if (x.rank() < 2 || x.numel() != x.size(0) * in_features) return "";
  return cat("flatten(x) gives ", name_of(x.dtype()), "[", x.size(0), ", ", in_features, "]");
}

Tensors infer(Operands in, const Attrs& attrs) {
  const Tensor &x = in[0], &weight = in[1];
  const DType out = attrs.as<LinearAttrs>().out;
  check_floating("linear", "x", x);
  check_rank("linear", "weight", weight, 2);
  check_same_dtype("linear", "weight", weight, "x", x);
  const auto facts = [&] { return describe({{"x", &x}, {"weight", &weight}}); };
  SINTER_CHECK(x.rank() >= 1 && x.size(-1) == weight.size(1), shape,
      x.rank() == 0 ? cat("linear: x has no features: ", facts(),
                          "; x is a scalar, weight.shape[1] is ", weight.size(1))
                    : cat("linear: input features differ: ", facts(), "; x.shape[", x.rank() - 1,
                          "] is ", x.size(-1), ", weight.shape[1] is ", weight.size(1)),
      feature_hint(x, weight.size(1)));
  check_rank("linear", "x", x, 2);
  if (const Tensor bias = optional_input(in, 2); bias.defined()) {
    check_rank("linear", "bias", bias, 1);
    SINTER_CHECK(bias.size(0) == weight.size(0), shape,
        cat("linear: bias does not fit: ", describe({{"weight", &weight}, {"bias", &bias}}),
            "; bias.shape[0] is ", bias.size(0), ", weight.shape[0] is ", weight.size(0)));
    if (bias.dtype() != wide(weight.dtype()))
      check_same_dtype("linear", "weight", weight, "bias", bias);
  }
  SINTER_CHECK(out == x.dtype() || out == wide(x.dtype()), dtype,
      cat("linear: output type does not fit: ", facts(), "; out is ", name_of(out), ", allowed ",
          name_of(x.dtype()), " or ", name_of(wide(x.dtype()))));
  return {Tensor::shape_only({x.size(0), weight.size(0)}, out, x.device())};
}

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

const OpDef kLinearOp{.name = "linear",
    .formula = "y = x W^T + b",
    .min_inputs = 2,
    .max_inputs = 3,
    .attrs = attr_type<LinearAttrs>(),
    .infer = infer,
    .cost = cost,
    .cpu = cpu,
    SINTER_KERNELS(linear),
    .backward = backward,
    .saves_in = 0b11,
    .strided = 0b11};

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
