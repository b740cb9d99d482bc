// The sum over a row by half a warp, so that a warp owns two rows: row_sum() of row_loops.h, which
// has 16 running sums too. The same bits up to 6144 terms; beyond that pieces are added in order
// here, pairwise there. Included by .cu files only.
#pragma once

#include "ops/pointwise/pointwise_kernels.cuh"
#include "ops/rows/row_formulas.h"

namespace sinter::SINTER_KERNEL_NS {

// The row of this thread: two to a warp, counted over the grid.
SINTER_DEVICE_FN int64_t half_warp_row() { return first_item() / 16; }
inline Grid half_warp_grid(int64_t rows) { return {blocks_for(rows, kItemBlock / 16)}; }

// at(0) + .. + at(n - 1), in lane 0 of each half. REQUIRES: all 32 lanes are here with one n.
template <class V, class F> SINTER_DEVICE_FN V half_warp_sum(int64_t n, F&& at) {
  V sum = V(0);
  for (int64_t begin = 0; begin < n; begin += 2048) {
    const int64_t end = begin + 2048 < n ? begin + 2048 : n;
    V part = V(0);
    for (int64_t i = begin + (lane() & 15); i < end; i += 16) part = part + at(i);
    SINTER_UNROLL
    for (int mask = 8; mask > 0; mask >>= 1) part = part + shfl_xor(part, mask);
    sum = sum + part;
  }
  return sum;
}

}  // namespace sinter::SINTER_KERNEL_NS
