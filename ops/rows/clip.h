// The CPU's sum of squares and scaling, of one tensor or of many as one: for squared_norm,
// clip_in_place and clip_norm. They go by pieces of fixed size: the same bits for any number of
// threads.
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

template <class T, class V = compute_t<T>> V sum_of_squares(Operands tensors) {
  const int64_t pieces = clip_pieces(tensors);
  V* sums = thread_buffer<V, BufferFor::kernel>(pieces);
  for_clip_pieces<T>(tensors, [&](const T* x, int64_t n, int64_t piece) {
    sums[piece] = row_sum<V>(n, [&](int64_t i) { return V(x[i]) * V(x[i]); });
  });
  return row_sum<V>(pieces, [&](int64_t i) { return sums[i]; });
}
template <class T> void scale_by(Operands tensors, compute_t<T> factor) {
  if (factor == 1) return;
  for_clip_pieces<T>(tensors, [&](T* x, int64_t n, int64_t) {
    for (int64_t i = 0; i < n; ++i) x[i] = T(compute_t<T>(x[i]) * factor);
  });
}

}  // namespace sinter
