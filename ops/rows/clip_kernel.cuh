// Scaling a gradient in place: for clip_in_place and clip_norm.
#pragma once

#include "ops/rows/block_reduce.cuh"
#include "ops/rows/row_formulas.h"

namespace sinter::SINTER_KERNEL_NS {

// x[i] *= factor for begin <= i < end, by all threads of the block. vec: begin is a multiple of 8,
// and x lies on 16 bytes.
template <class T, class V>
SINTER_DEVICE_FN void scale_elements(
    const InOut<T>& x, int64_t begin, int64_t end, bool vec, V factor) {
  constexpr int N = kVec<T>;
  const int64_t dense = vec ? end - (end - begin) % N : begin;
  for (int64_t i = begin + thread_x() * N; i < dense; i += threads_per_block() * N) {
    Vec<T, N> v = x.template load_vec<N>(i);
    SINTER_UNROLL
    for (int k = 0; k < N; ++k) v[k] = T(V(v[k]) * factor);
    x.store_vec(i, v);
  }
  SINTER_NO_UNROLL
  for (int64_t i = dense + thread_x(); i < end; i += threads_per_block())
    x.put(i, T(V(x[i]) * factor));
}

}  // namespace sinter::SINTER_KERNEL_NS
