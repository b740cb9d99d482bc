// linear_act: y[B, O] = act(x[B, I] W[O, I]^T + b[O]), and what act's backward reads: relu's bit
// mask, or the pre-activation. Reads x, W, b once, writes y and what is kept; the sums z = x W^T +
// b live in cache only (in f32 for bf16 operands: one rounding less).
#include "core/device/cpu_gemm.h"
#include "ops/fused/activation.h"
#include "ops/kernels.h"
#include "ops/matrix_view.h"
#include "ops/row_loops.h"
#include "ops/structured.h"

// B batch, I in, O out
namespace sinter {
namespace {

bool has_bias(Operands in) { return in.size() > 2 && in[2].defined(); }

Tensors infer(Operands in, const Attrs& attrs) {
  const auto& [act, keep, out] = attrs.as<LinearActAttrs>();
  const Tensor &x = in[0], &weight = in[1];
  check_floating("linear_act", "x", x);
  check_rank("linear_act", "x", x, 2);
  check_rank("linear_act", "weight", weight, 2);
  check_same_dtype("linear_act", "x", x, "weight", weight);
  const auto facts = [&] { return describe({{"x", &x}, {"weight", &weight}}); };
  SINTER_CHECK(x.size(1) == weight.size(1), shape,
      cat("linear_act: input features differ: ", facts(), "; x.shape[1] is ", x.size(1),
          ", weight.shape[1] is ", weight.size(1)));
  if (has_bias(in)) {
    const Tensor& bias = in[2];
    check_rank("linear_act", "bias", bias, 1);
    SINTER_CHECK(bias.size(0) == weight.size(0), shape,
        cat("linear_act: bias does not fit: ", describe({{"weight", &weight}, {"bias", &bias}}),
            "; bias.shape[0] is ", bias.size(0), ", weight.shape[0] is ", weight.size(0)));
    if (bias.dtype() != wide(weight.dtype()))
      check_same_dtype("linear_act", "weight", weight, "bias", bias);
  }
  SINTER_CHECK(out == x.dtype() || out == wide(x.dtype()), dtype,
      cat("linear_act: output type does not fit: ", facts(), "; out is ", name_of(out),
          ", allowed ", name_of(x.dtype()), " or ", name_of(wide(x.dtype()))));
  SINTER_CHECK(keep != Keep::mask || act == Act::relu, usage,
      cat("linear_act: only relu has a mask: act is ", kActNames[static_cast<size_t>(act)],
          ", keep is mask"));
  const Shape shape{x.size(0), weight.size(0)};
  Tensors result{Tensor::meta(shape, out, x.device())};
  if (keep == Keep::mask)
    result.push_back(Tensor::meta(relu_mask_shape(shape), DType::u8, x.device()));
  if (keep == Keep::pre) result.push_back(Tensor::meta(shape, out, x.device()));
  return result;
}

Cost cost(Operands in, Operands out, const Attrs& attrs) {
  const auto& a = attrs.as<LinearActAttrs>();
  const int64_t n = out[0].numel();
  Cost c = cost_of(n * (2 * in[1].size(1) + (has_bias(in) ? 1 : 0) + act_flops(a.act)), in,
      a.keep == Keep::mask ? out.first(1) : out);
  if (a.keep == Keep::mask) c.bytes_written += (n + 7) / 8;
  return c;
}

// Z: the type of the sums, Y that of the results.
template <class Y, class Z = compute_t<Y>>
void run(const Call& call) {
  const auto& [act, keep, out] = call.as<LinearActAttrs>();
  const MatrixView x(call.in[0]), weight(call.in[1]);
  const int64_t rows = call.out[0].size(0), cols = call.out[0].size(1), ins = call.in[1].size(1);
  const Tensor bias = has_bias(call.in) ? call.in[2] : Tensor();
  Y* y = call.out[0].template data<Y>();
  Y* pre = keep == Keep::pre ? call.out[1].template data<Y>() : nullptr;
  uint8_t* mask = keep == Keep::mask ? call.out[1].template data<uint8_t>() : nullptr;
  visit_act(act, [&](const auto& op) {
    Z* z = nullptr;
    if constexpr (std::is_same_v<Y, Z>) {
      z = pre ? pre : y;
    } else {
      z = scratch<Z, 1>(rows * cols);
    }
    const Gemm desc{.m = rows,
        .n = cols,
        .k = ins,
        .trans_a = x.trans,
        .trans_b = !weight.trans,
        .lda = x.ld,
        .ldb = weight.ld,
        .ldc = std::max<int64_t>(cols, 1),
        .in = call.in[0].dtype(),
        .out = dtype_of<Z>,
        .bias = bias.defined() ? bias.dtype() : DType::f32};
    gemm(desc, x.data, weight.data, bias.defined() ? bias.raw() : nullptr, z);
    parallel_for(rows, grain_of(cols * static_cast<int64_t>(sizeof(Z) + sizeof(Y) + op.flops)),
        [&](int64_t begin, int64_t end) {
          for (int64_t b = begin; b < end; ++b) {
            Z* sums = z + b * cols;
            if constexpr (!std::is_same_v<Y, Z>) {
              if (pre) std::copy_n(sums, cols, pre + b * cols);
            }
            if (mask) relu_row(sums, sums, mask + b * relu_mask_row(cols), cols);
            if (!mask || !std::is_same_v<Y, Z>)
              act_row(op, sums, y + b * cols, cols);  // else y is there already
          }
        });
  });
}

void cpu(const Call& call) {
  visit_float(call.as<LinearActAttrs>().out, [&](auto zero) { run<decltype(zero)>(call); });
}

Tensors reference(Operands in, const Attrs& attrs) {
  const auto& [act, keep, out] = attrs.as<LinearActAttrs>();
  const Tensor z = linear_to(in[0], in[1], has_bias(in) ? in[2] : Tensor(), out);
  Tensors result = act_reference(act, z, keep == Keep::mask);
  if (keep == Keep::pre) result.push_back(z);
  return result;
}

}  // namespace

const OpDef kLinearActOp{.name = "linear_act",
    .min_inputs = 2,
    .max_inputs = 3,
    .attrs = attr_type<LinearActAttrs>(),
    .infer = infer,
    .cost = cost,
    .cpu = cpu,
    .cuda = SINTER_IF_CUDA(on_cuda::linear_act),
    .simt = on_simt::linear_act,
    .strided = 0b11,
    .reference = reference};

}  // namespace sinter
