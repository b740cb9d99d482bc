// Several tensors as one grid: a block owns a chunk of one of them. The table travels as an
// argument of the kernel. For updates and clipping.
#pragma once

#include "ops/kernel_args.h"

namespace sinter::SINTER_KERNEL_NS {

// The last of `count` lists of blocks, by where each begins, that begins at this block or before
// it. By halves: an entry that is looked at takes a trip to the constant cache.
SINTER_DEVICE_FN int list_of_block(const int32_t* first, int count, int64_t block) {
  int i = 0;
  SINTER_NO_UNROLL
  while (count > 1) {
    const int half = count / 2;
    if (block >= first[i + half]) i += half;
    count -= half;
  }
  return i;
}

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
    const int i = N > 1 ? list_of_block(first_block, count, block_x()) : 0;
    const int64_t n = of[i].n, begin = (block_x() - first_block[i]) * chunk;
    return {of[i], begin, begin + chunk < n ? begin + chunk : n};
  }
};

}  // namespace sinter::SINTER_KERNEL_NS
