// Several tensors as one grid: a block owns a chunk of one of them. The table travels as an
// argument of the kernel. For updates and clipping.
#pragma once

#include "ops/kernel_args.h"

namespace sinter::SINTER_KERNEL_NS {

// Entry: the operands of one tensor, of n elements.
template <class Entry, int N> struct BlockTable {
  int count = 0;
  int64_t chunk = 0, blocks = 0;  // chunk: elements of a block
  int32_t first_block[N] = {};
  Entry of[N];

  void add(const Entry& entry) {
    first_block[count] = static_cast<int32_t>(blocks);
    of[count++] = entry;
    blocks += blocks_for(entry.n, chunk);
  }
  // What this block owns: elements begin <= i < end of an entry.
  struct Piece {
    const Entry& entry;
    int64_t begin, end;
  };
  SINTER_DEVICE_FN Piece piece() const {
    int i = 0;
    if constexpr (N > 1) {
      SINTER_NO_UNROLL
      while (i + 1 < count && block_x() >= first_block[i + 1]) ++i;
    }
    const int64_t n = of[i].n, begin = (block_x() - first_block[i]) * chunk;
    return {of[i], begin, begin + chunk < n ? begin + chunk : n};
  }
};

}  // namespace sinter::SINTER_KERNEL_NS
