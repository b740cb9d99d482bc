// linear_act: y[B, O] = act(x[B, I] W[O, I]^T + b[O]), and the pre-activation where act's backward
// reads it. Reads x, W, b once, writes y and what is kept; the sums z = x W^T + b live in cache
// only (in f32 for bf16 operands: one rounding less).
#include "ops/fused/activation.h"
#include "ops/kernels.h"
#include "ops/ops.h"
#include "ops/product/matrix_view.h"
#include "ops/rows/row_loops.h"

// B batch, I in, O out
namespace sinter {
namespace {

// y[i] = act(z[i]); z and y may be of different types, or one array. A loop for each act, and
// nothing around it that would be compiled for each, too.
template <class Z, class Y> using ActRow = void (*)(const Z* z, Y* y, int64_t n);
template <class Z, class Y> ActRow<Z, Y> act_row(Act act) {
  return visit_act(act, []<class Op>(Op) -> ActRow<Z, Y> {
    return [](const Z* z, Y* y, int64_t n) {
      for (int64_t i = 0; i < n; ++i) y[i] = Op().forward(compute_t<Y>(z[i]));
    };
  });
}

// Z: the type of the sums, Y that of the results.
template <class Y, class Z = compute_t<Y>> void run(const Call& call) {
  const auto& [act, keep, out] = call.as<LinearActAttrs>();
  const int64_t rows = call.out[0].size(0), cols = call.out[0].size(1);
  Y* y = call.out[0].template data<Y>();
  Y* pre = keep ? call.out[1].template data<Y>() : nullptr;
  const ActRow<Z, Y> row = act_row<Z, Y>(act);
  Z* z = nullptr;
  if constexpr (std::is_same_v<Y, Z>) {
    z = pre ? pre : y;
  } else {
    z = scratch<Z, 1>(rows * cols);
  }
  multiply(MatrixView(call.in[0]), false, MatrixView(call.in[1]), true, optional_input(call.in, 2),
      dtype_of<Z>, z);
  parallel_for(rows, grain_of(cols * int64_t(sizeof(Z) + sizeof(Y) + act_flops(act))),
      [&](int64_t begin, int64_t end) {
        for (int64_t b = begin; b < end; ++b) {
          Z* sums = z + b * cols;
          if constexpr (!std::is_same_v<Y, Z>) {
            if (pre) std::copy_n(sums, cols, pre + b * cols);
          }
          row(sums, y + b * cols, cols);
        }
      });
}

void cpu(const Call& call) {
  visit_float(call.as<LinearActAttrs>().out, [&]<class T>(T) { run<T>(call); });
}

Tensors reference(Operands in, const Attrs& attrs) {
  const auto& [act, keep, out] = attrs.as<LinearActAttrs>();
  const Tensor z = linear_to(in[0], in[1], optional_input(in, 2), out);
  Tensors result{act_reference(act, z)};
  if (keep) result.push_back(z);
  return result;
}

std::vector<Form> forms() {
  const Tensors in{Tensor::meta({2, 3}), Tensor::meta({4, 3}), Tensor::meta({4})};
  std::vector<Form> all;
  for (const Act act : kActivations) {
    for (const bool keep : {false, true})
      all.push_back({in, LinearActAttrs{act, keep, DType::f32}});
  }
  return all;
}

}  // namespace

const OpDef kLinearActOp{.name = "linear_act",
    .formula = "y = act(x W^T + b), and what act's backward reads: y or x W^T + b",
    .min_inputs = 2,
    .max_inputs = 3,
    .attrs = attr_type<LinearActAttrs>(),
    .infer = infer_of<kLinearActOp>,
    .cost = cost_of_reference<kLinearActOp>,
    .cpu = cpu,
    SINTER_KERNELS(linear_act),
    .strided = 0b11,
    .reference = reference,
    .forms = forms};

}  // namespace sinter
