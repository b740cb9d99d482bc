// gated_linear: h = act(x Wg^T) * (x Wu^T) and, to be kept for backward, g and u; its backward: dg
// and du from dy Wd, g and u. On the CPU g and u are one product where the weights are neighbours.
// What need not be kept (dh; without backward, or of bf16 operands, whose sums stay f32, g and u
// too) is made for some rows at a time and never leaves the cache for memory.
#include "ops/fused/glu.h"
#include "ops/kernels.h"
#include "ops/product/matrix_view.h"

// B batch, I in, H hidden, O out
namespace sinter {
namespace {

// Not the reference's: keeping g and u side by side adds nothing up.
Cost cost(Operands in, Operands out, const Attrs& attrs) {
  return cost_of(
      out[0].numel() * (4 * in[0].size(1) + act_flops(attrs.as<GatedLinearAttrs>().act) + 1), in,
      out);
}
// f(first row, rows) on blocks of rows whose sums, `bytes` a row, go through the cache; of so many
// that each product is worth its setup.
template <class F> void for_cached_rows(int64_t rows, int64_t bytes, const F& f) {
  const int64_t block = std::max<int64_t>(1024, (4 << 20) / std::max<int64_t>(bytes, 1));
  for (int64_t b = 0; b < rows; b += block) f(b, std::min(block, rows - b));
}

template <class T, class V = compute_t<T>> void run(const Call& call) {
  const auto& [act, keep] = call.as<GatedLinearAttrs>();
  const MatrixView x(call.in[0]);
  const int64_t rows = call.out[0].size(0), hidden = call.out[0].size(1), ins = call.in[1].size(1),
                both = 2 * hidden;
  T *h_out = call.out[0].template data<T>(),
    *kept = keep ? call.out[1].template data<T>() : nullptr;
  const T *x_at = static_cast<const T*>(x.data), *gate = call.in[1].template data<T>(),
          *up = call.in[2].template data<T>();
  // Of one storage, too: two that meet by chance would give other sums in one run than in the next.
  const bool neighbours = call.in[1].storage() == call.in[2].storage() && up == gate + hidden * ins;
  const GluRow<T, V> row = glu_row<T, V>(act);
  const auto some_rows = [&](int64_t first, int64_t n) {
    V* sums = nullptr;
    if constexpr (std::is_same_v<T, V>) {
      sums = kept ? kept + first * both : scratch<V, 1>(n * both);
    } else {
      sums = scratch<V, 1>(n * both);
    }
    const T* from = x_at + first * (x.trans ? 1 : x.ld);
    Gemm desc = gemm_of(x, false, MatrixView(call.in[1]), true, dtype_of<V>);
    desc.m = n;
    desc.n = neighbours ? both : hidden;
    desc.ldc = std::max<int64_t>(both, 1);
    gemm(desc, from, gate, nullptr, sums);
    if (!neighbours) gemm(desc, from, up, nullptr, sums + hidden);
    const int64_t bytes = 3 * sizeof(V) + act_flops(act);
    for_row_blocks(n, hidden, bytes, [&](int64_t b, int64_t at, int64_t cols) {
      const V *g = sums + b * both + at, *u = g + hidden;
      row(g, u, h_out + (first + b) * hidden + at, cols);
      if constexpr (!std::is_same_v<T, V>) {
        if (kept) {
          T* to = kept + (first + b) * both + at;
          std::copy_n(g, cols, to);
          std::copy_n(u, cols, to + hidden);
        }
      }
    });
  };
  const bool in_place = kept && std::is_same_v<T, V>;  // the sums are what is kept
  if (in_place) {
    some_rows(0, rows);
  } else {
    for_cached_rows(rows, both * int64_t(sizeof(V)), some_rows);
  }
}

template <class T, class V = compute_t<T>> void run_backward(const Call& call) {
  const auto& [act, merged] = call.as<GluAttrs>();
  const MatrixView dy(call.in[0]), weight(call.in[1]);
  const Rows<T> gate(call.in[2]), up(call.in[3]);
  const GluGradRows<T> out(call.out, merged);
  const GluGradRow<T, V> row = glu_grad_row<T, V>(act);
  const int64_t rows = call.in[2].size(0), hidden = call.in[2].size(1),
                bytes = 5 * sizeof(V) + act_backward_flops(act);
  for_cached_rows(rows, hidden * int64_t(sizeof(V)), [&](int64_t first, int64_t n) {
    V* sums = scratch<V, 1>(n * hidden);
    Gemm desc = gemm_of(dy, false, weight, false, dtype_of<V>);
    desc.m = n;
    gemm(desc, static_cast<const T*>(dy.data) + first * (dy.trans ? 1 : dy.ld), weight.data,
        nullptr, sums);
    for_row_blocks(n, hidden, bytes, [&](int64_t b, int64_t at, int64_t cols) {
      const int64_t to = (first + b) * out.step + at;
      row(sums + b * hidden + at, gate[first + b] + at, up[first + b] + at, out.dg + to,
          out.du + to, cols);
    });
  });
}

Tensors reference(Operands in, const Attrs& attrs) {
  const auto& [act, keep] = attrs.as<GatedLinearAttrs>();
  const Tensor g = linear(in[0], in[1]), u = linear(in[0], in[2]);
  Tensors out = call_fused(kGluOp, {g, u}, GluAttrs{.act = act});
  if (keep) out.push_back(side_by_side(g, u));
  return out;
}
Tensors reference_backward(Operands in, const Attrs& attrs) {
  const Tensor dh = matmul_as(in[0], in[1], false, false, in[0].dtype(), Role::dgrad);
  return call_fused(kGluBackwardOp, {dh, in[2], in[3]}, attrs);
}

std::vector<Form> forms_backward() {
  const Tensor g = Tensor::meta({2, 3}), u = Tensor::meta({2, 3});
  const Tensors in{Tensor::meta({2, 4}), Tensor::meta({4, 3}), g, u};
  return {{in, GluAttrs{.merged = false}}, {in, GluAttrs{.merged = true}}};
}

}  // namespace

const OpDef kGatedLinearOp{.name = "gated_linear",
    .formula = "h = act(x Wg^T) (x Wu^T)",
    .min_inputs = 3,
    .attrs = attr_type<GatedLinearAttrs>(),
    .infer = infer_of<kGatedLinearOp>,
    .cost = cost,
    .cpu =
        [](const Call& call) {
          visit_float(call.out[0].dtype(), [&]<class T>(T) { run<T>(call); });
        },
    SINTER_KERNELS(gated_linear),
    .strided = 0b1,
    .reference = reference};
const OpDef kGatedLinearBackwardOp{.name = "gated_linear_backward",
    .formula = "dh = dy Wd, du = dh act(g), dg = dh u act'(g)",
    .min_inputs = 4,
    .attrs = attr_type<GluAttrs>(),
    .infer = infer_of<kGatedLinearBackwardOp>,
    .cost = cost_of_reference<kGatedLinearBackwardOp>,
    .cpu =
        [](const Call& call) {
          visit_float(call.out[0].dtype(), [&]<class T>(T) { run_backward<T>(call); });
        },
    SINTER_KERNELS(gated_linear_backward),
    .strided = 0b1111,
    .reference = reference_backward,
    .forms = forms_backward};

}  // namespace sinter
