// The CPU's sum of squares and scaling, of one tensor or of many as one: for squared_norm,
// clip_in_place and clip_norm. They go by pieces of fixed size: the same bits for any number of
// threads. The total is f64, so it has room for the squares of all f32; those of f64 must be below
// 1e154.
#pragma once

#include "ops/ops.h"
#include "ops/rows/row_cpu.h"

namespace sinter {

inline constexpr int64_t kClipPiece = 8192;
inline int64_t clip_pieces(Operands tensors) {
  int64_t pieces = 0;
  for (const Tensor& t : tensors) pieces += (t.numel() + kClipPiece - 1) / kClipPiece;
  return pieces;
}
// f(first element, elements, number of the piece) for all pieces, on all threads.
template <class T, class F> void for_clip_pieces(Operands tensors, const F& f) {
  const int64_t bytes = kClipPiece * static_cast<int64_t>(sizeof(T));
  parallel_for(clip_pieces(tensors), grain_of(bytes), [&](int64_t begin, int64_t end) {
    int64_t piece = 0;
    for (const Tensor& t : tensors) {
      for (int64_t at = 0; at < t.numel(); at += kClipPiece, ++piece) {
        if (piece >= begin && piece < end)
          f(t.data<T>() + at, std::min(kClipPiece, t.numel() - at), piece);
      }
    }
  });
}

// A piece is summed in V. Only where that shows to have had no room, all are once more in f64.
template <class T, class V = compute_t<T>> double sum_of_squares(Operands tensors) {
  const int64_t pieces = clip_pieces(tensors);
  double* sums = thread_buffer<double, BufferFor::kernel>(pieces);
  const auto sum_in = [&]<class W>(W) {
    for_clip_pieces<T>(tensors, [&](const T* x, int64_t n, int64_t piece) {
      sums[piece] = row_sum<W>(n, [&](int64_t i) { return W(V(x[i])) * W(V(x[i])); });
    });
    return row_sum<double>(pieces, [&](int64_t i) { return sums[i]; });
  };
  const double sum = sum_in(V());
  const double least = 1e-30 * static_cast<double>(numel_of(tensors));
  return on_cpu::has_room_for<V>(sum, least) ? sum : sum_in(double());
}
template <class T> void scale_by(Operands tensors, double squares, double max_norm) {
  const on_cpu::ClipFactor<compute_t<T>> factor(squares, max_norm);
  if (factor.keeps()) return;
  for_clip_pieces<T>(tensors, [&](T* x, int64_t n, int64_t) {
    for (int64_t i = 0; i < n; ++i) x[i] = T(factor(compute_t<T>(x[i])));
  });
}

}  // namespace sinter
