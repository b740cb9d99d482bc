// gather_batch: images u8[N, ..], labels i32[N], index i64[B] -> images [B, D] as numbers, labels
// i32[B]: a batch, drawn from a data set that lies on the device. With a cursor, index is the order
// of a whole epoch, the batch its `rows` indices from the cursor on, and the op moves the cursor
// `stride` further, or to the start where the order ends: so the next call of the same op, a replay
// as well, draws the next batch. For data/batches.h, and for the op's kernels.
#pragma once

#include "ops/ops.h"

namespace sinter {

// Note [x/255 without a division]: 1/255 = 2^-8 + 2^-16 + rest. x times the first two terms is
// exact (17 bits), so adding x times the rest rounds once where it matters; a test finds all 256
// results equal to x/255.0f.
template <bool kMnist> SINTER_FN float pixel(uint8_t byte) {
  constexpr float kHigh = 0x1.01p-8f, kRest = float(1.0 / 255 - 0x1.01p-8);
  const auto x = float(byte);
  return kMnist ? (x * kHigh + x * kRest - 0.1307f) / 0.3081f : x * kHigh + x * kRest;
}

}  // namespace sinter
