// What the gated ops (glu, gated_linear) share: the gradients of one element, for loops on the CPU
// and for kernels, and rows on the CPU.
#pragma once

#include "ops/fused/activation.h"
#include "ops/ops.h"
#include "ops/product/matrix_view.h"
#include "ops/rows/row_loops.h"

namespace sinter {

// h = act(g) u:   dg = (dh u) act'(g),   du = dh act(g)
template <class V> struct GluGrads {
  V dg, du;
};
template <class Op, class V> SINTER_FN GluGrads<V> glu_grads(const Op& op, V dh, V g, V u) {
  const V y = op.forward(g);
  return {op.grad(dh * u, Op::saves == pointwise::Saves::output ? y : g), dh * y};
}

// A row of them on the CPU, of glu.cpp. T is the type of results; In that of sums, which g and u of
// the forward and dh may be: T, or f32 where T is bf16.
template <class T, class In> using GluRow = void (*)(const In* g, const In* u, T* h, int64_t n);
template <class T, class In>
using GluGradRow = void (*)(const In* dh, const T* g, const T* u, T* dg, T* du, int64_t n);
template <class T, class In> GluRow<T, In> glu_row(Act act);
template <class T, class In> GluGradRow<T, In> glu_grad_row(Act act);

// Rows of a [B, H] tensor on the CPU, taken where they lie if their elements are neighbours, else
// copied.
template <class T> struct Rows {
  explicit Rows(const Tensor& t) : data(t.data<T>()), step(t.strides()[0]) {
    if (t.size(1) <= 1 || t.strides()[1] == 1) return;
    data = static_cast<const T*>(copy.emplace(t).data());
    step = t.size(1);
  }
  const T* operator[](int64_t b) const { return data + b * step; }
  const T* data;
  int64_t step;
  std::optional<DenseCopy> copy;
};

// Where dg and du go: two tensors, or the halves of one's rows.
template <class T> struct GluGradRows {
  GluGradRows(std::span<Tensor> out, bool merged)
      : step(out[0].size(1)), dg(out[0].data<T>()), du(merged ? dg + step / 2 : out[1].data<T>()) {}
  int64_t step;
  T *dg, *du;
};

// f(row, first column, columns) on blocks of rows, on all threads; bytes: what an element costs, as
// in grain_of.
template <class F> void for_row_blocks(int64_t rows, int64_t cols, int64_t bytes, const F& f) {
  constexpr int64_t kBlock = 1024;
  const int64_t blocks = (cols + kBlock - 1) / kBlock;
  parallel_for(
      rows * blocks, grain_of(std::min(cols, kBlock) * bytes), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i)
          f(i / blocks, i % blocks * kBlock, std::min(kBlock, cols - i % blocks * kBlock));
      });
}

// (a | b), in plain ops.
inline Tensor side_by_side(const Tensor& a, const Tensor& b) {
  const int64_t cols = a.size(1), all = cols + b.size(1);
  return add(apply1(kPadSliceOp, {a}, PadSliceAttrs{1, 0, all}),
      apply1(kPadSliceOp, {b}, PadSliceAttrs{1, cols, all}));
}

}  // namespace sinter
