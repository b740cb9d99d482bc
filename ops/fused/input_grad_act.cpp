// input_grad_act: dx[B, I] = (dy[B, O] W[O, I]) * act'(saved): the gradient through a linear and
// the activation before it. saved is what linear_act or the activation kept: relu's mask of [B, I],
// sigmoid's and tanh's result, else the pre-activation.
#include "core/device/cpu_gemm.h"
#include "ops/fused/activation.h"
#include "ops/kernels.h"
#include "ops/matrix_view.h"
#include "ops/row_loops.h"
#include "ops/structured.h"

// B batch, I in, O out
namespace sinter {
namespace {

Tensors infer(Operands in, const Attrs& attrs) {
  const Tensor &dy = in[0], &weight = in[1], &saved = in[2];
  check_floating("input_grad_act", "dy", dy);
  check_rank("input_grad_act", "dy", dy, 2);
  check_rank("input_grad_act", "weight", weight, 2);
  check_same_dtype("input_grad_act", "dy", dy, "weight", weight);
  SINTER_CHECK(dy.size(1) == weight.size(0), shape,
      cat("input_grad_act: output features differ: ", describe({{"dy", &dy}, {"weight", &weight}}),
          "; dy.shape[1] is ", dy.size(1), ", weight.shape[0] is ", weight.size(0)));
  const Shape shape{dy.size(0), weight.size(1)};
  const bool mask = attrs.as<InputGradActAttrs>().act == Act::relu;
  check_dtype("input_grad_act", "saved", saved, mask ? DType::u8 : dy.dtype());
  SINTER_CHECK(saved.shape() == (mask ? relu_mask_shape(shape) : shape), shape,
      cat("input_grad_act: what was saved does not fit: ",
          describe({{"dy", &dy}, {"weight", &weight}, {"saved", &saved}}), "; saved must be ",
          (mask ? relu_mask_shape(shape) : shape).str()));
  return {Tensor::meta(shape, dy.dtype(), dy.device())};
}

Cost cost(Operands in, Operands out, const Attrs& attrs) {
  const Act act = attrs.as<InputGradActAttrs>().act;
  const int64_t n = out[0].numel();
  Cost c = cost_of(
      n * (2 * in[1].size(0) + act_backward_flops(act)), act == Act::relu ? in.first(2) : in, out);
  if (act == Act::relu) c.bytes_read += (n + 7) / 8;
  return c;
}

// dx[i] = z[i] * act'(saved[i]) over a part of a row that begins at a whole mask byte; z is f32
// where dx is bf16.
template <class Op, class T, class Z>
inline void act_backward_row(const Op& op, const Z* z, const void* saved, T* dx, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    if constexpr (Op::saves == pointwise::Saves::mask) {
      dx[i] = op.grad(z[i], (static_cast<const uint8_t*>(saved)[i / 8] >> (i % 8) & 1) != 0);
    } else {
      dx[i] = op.grad(z[i], Z(static_cast<const T*>(saved)[i]));
    }
  }
}
inline void act_backward_row(
    const pointwise::Relu&, const float* z, const void* saved, float* dx, int64_t n) {
  relu_backward_row(z, static_cast<const uint8_t*>(saved), dx, n);
}

template <class T, class Z = compute_t<T>>
void run(const Call& call) {
  const MatrixView dy(call.in[0]), weight(call.in[1]);
  const Tensor& saved = call.in[2];
  const int64_t rows = call.out[0].size(0), cols = call.out[0].size(1), sums = call.in[1].size(0);
  T* dx = call.out[0].template data<T>();
  visit_act(call.as<InputGradActAttrs>().act, [&]<class Op>(const Op& op) {
    const auto finish = [&](int64_t b, int64_t i, const Z* z,
                            int64_t n) {  // row b from column i on
      constexpr bool mask = Op::saves == pointwise::Saves::mask;
      const int64_t offset =
          mask ? b * relu_mask_row(cols) + i / 8 : (b * cols + i) * static_cast<int64_t>(sizeof(T));
      act_backward_row(op, z, static_cast<const char*>(saved.raw()) + offset, dx + b * cols + i, n);
    };
    Z* z = nullptr;
    if constexpr (std::is_same_v<T, Z>) {
      z = dx;
    } else {
      z = scratch<Z, 1>(rows * cols);
    }
    const Gemm desc{.m = rows,
        .n = cols,
        .k = sums,
        .trans_a = dy.trans,
        .trans_b = weight.trans,
        .lda = dy.ld,
        .ldb = weight.ld,
        .ldc = std::max<int64_t>(cols, 1),
        .in = call.in[0].dtype(),
        .out = dtype_of<Z>};
    gemm(desc, dy.data, weight.data, nullptr, z);
    parallel_for(rows,
        grain_of(cols * static_cast<int64_t>(sizeof(Z) + sizeof(T) + op.backward_flops)),
        [&](int64_t begin, int64_t end) {
          for (int64_t b = begin; b < end; ++b) finish(b, 0, z + b * cols, cols);
        });
  });
}

void cpu(const Call& call) {
  visit_float(call.out[0].dtype(), [&](auto zero) { run<decltype(zero)>(call); });
}

Tensors reference(Operands in, const Attrs& attrs) {
  const Tensor dz = matmul_as(in[0], in[1], false, false, in[0].dtype(), Role::dgrad);
  return {act_backward_reference(attrs.as<InputGradActAttrs>().act, dz, in[2])};
}

}  // namespace

const OpDef kInputGradActOp{.name = "input_grad_act",
    .min_inputs = 3,
    .max_inputs = 3,
    .attrs = attr_type<InputGradActAttrs>(),
    .infer = infer,
    .cost = cost,
    .cpu = cpu,
    .cuda = SINTER_IF_CUDA(on_cuda::input_grad_act),
    .simt = on_simt::input_grad_act,
    .strided = 0b11,
    .reference = reference};

}  // namespace sinter
