// input_grad_act: dx[B, I] = (dy[B, O] W[O, I]) * act'(saved): the gradient through a linear and
// the activation before it. saved is what linear_act or the activation kept: relu's mask of [B, I],
// sigmoid's and tanh's result, else the pre-activation.
#include "ops/fused/activation.h"
#include "ops/kernels.h"
#include "ops/matrix_view.h"
#include "ops/ops.h"
#include "ops/row_loops.h"

// B batch, I in, O out
namespace sinter {
namespace {

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

template <class T, class Z = compute_t<T>> void run(const Call& call) {
  const Tensor& saved = call.in[2];
  const int64_t rows = call.out[0].size(0), cols = call.out[0].size(1);
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
    multiply(
        MatrixView(call.in[0]), false, MatrixView(call.in[1]), false, Tensor(), dtype_of<Z>, z);
    parallel_for(rows,
        grain_of(cols * static_cast<int64_t>(sizeof(Z) + sizeof(T) + op.backward_flops)),
        [&](int64_t begin, int64_t end) {
          for (int64_t b = begin; b < end; ++b) finish(b, 0, z + b * cols, cols);
        });
  });
}

void cpu(const Call& call) {
  visit_float(call.out[0].dtype(), [&]<class T>(T) { run<T>(call); });
}

Tensors reference(Operands in, const Attrs& attrs) {
  const Tensor dz = matmul_as(in[0], in[1], false, false, in[0].dtype(), Role::dgrad);
  return {act_backward_reference(attrs.as<InputGradActAttrs>().act, dz, in[2])};
}

// A saved tensor that is not dx's, but broadcasts to it, is for the plain op alone.
std::string limit(Operands in, const Attrs& attrs) {
  const Shape shape{in[0].size(0), in[1].size(1)};
  if (attrs.as<InputGradActAttrs>().act == Act::relu) return "";
  if (in[2].shape() == shape && in[2].dtype() == in[0].dtype()) return "";
  return cat("what was saved does not fit: it is ", in[2].describe(), "; it must be ",
      name_of(in[0].dtype()), shape.str());
}

std::vector<Form> forms() {
  const Tensor dy = Tensor::meta({2, 4}), weight = Tensor::meta({4, 3});
  std::vector<Form> all;
  for (const Act act : kActivations) {
    const Tensor saved =
        act == Act::relu ? Tensor::meta(relu_mask_shape({2, 3}), DType::u8) : Tensor::meta({2, 3});
    all.push_back({{dy, weight, saved}, InputGradActAttrs{act}});
  }
  return all;
}

}  // namespace

const OpDef kInputGradActOp{.name = "input_grad_act",
    .min_inputs = 3,
    .max_inputs = 3,
    .attrs = attr_type<InputGradActAttrs>(),
    .infer = infer_of<kInputGradActOp>,
    .cost = cost_of_reference<kInputGradActOp>,
    .cpu = cpu,
    SINTER_KERNELS(input_grad_act),
    .strided = 0b11,
    .reference = reference,
    .limit = limit,
    .forms = forms};

}  // namespace sinter
