// input_grad_act: dx[B, I] = (dy[B, O] W[O, I]) * act'(saved): the gradient through a linear and
// the activation before it. saved is the result of relu, sigmoid and tanh, else the pre-activation.
#include "ops/fused/activation.h"
#include "ops/kernels.h"
#include "ops/ops.h"
#include "ops/product/matrix_view.h"
#include "ops/rows/row_loops.h"

// B batch, I in, O out
namespace sinter {
namespace {

// dx[i] = z[i] * act'(saved[i]) over a row; z is f32 where dx is bf16.
template <class T, class Z>
using ActBackwardRow = void (*)(const Z* z, const T* saved, T* dx, int64_t n);
template <class T, class Z> ActBackwardRow<T, Z> act_backward_row(Act act) {
  return visit_act(act, []<class Op>(Op) -> ActBackwardRow<T, Z> {
    return [](const Z* z, const T* saved, T* dx, int64_t n) {
      for (int64_t i = 0; i < n; ++i) dx[i] = Op().grad(z[i], Z(saved[i]));
    };
  });
}

template <class T, class Z = compute_t<T>> void run(const Call& call) {
  const Act act = call.as<InputGradActAttrs>().act;
  const ActBackwardRow<T, Z> row = act_backward_row<T, Z>(act);
  const int64_t rows = call.out[0].size(0), cols = call.out[0].size(1);
  const T* saved = call.in[2].template data<T>();
  T* dx = call.out[0].template data<T>();
  Z* z = nullptr;
  if constexpr (std::is_same_v<T, Z>) {
    z = dx;
  } else {
    z = scratch<Z, 1>(rows * cols);
  }
  multiply(MatrixView(call.in[0]), false, MatrixView(call.in[1]), false, Tensor(), dtype_of<Z>, z);
  const int64_t bytes = cols * int64_t(sizeof(Z) + sizeof(T) + act_backward_flops(act));
  parallel_for(rows, grain_of(bytes), [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) row(z + b * cols, saved + b * cols, dx + b * cols, cols);
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
std::string limit(Operands in, const Attrs&) {
  const Shape shape{in[0].size(0), in[1].size(1)};
  if (in[2].shape() == shape && in[2].dtype() == in[0].dtype()) return "";
  return cat("what was saved does not fit: it is ", in[2].describe(), "; it must be ",
      name_of(in[0].dtype()), shape.str());
}

std::vector<Form> forms() {
  const Tensors in{Tensor::meta({2, 4}), Tensor::meta({4, 3}), Tensor::meta({2, 3})};
  std::vector<Form> all;
  for (const Act act : kActivations) all.push_back({in, InputGradActAttrs{act}});
  return all;
}

}  // namespace

const OpDef kInputGradActOp{.name = "input_grad_act",
    .formula = "dx = (dy W) act'(saved)",
    .min_inputs = 3,
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
