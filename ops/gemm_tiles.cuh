// How both product cores bring tiles of their operands to shared memory: chunks of 16 bytes by
// cp_async, into a ring of stages, some tiles ahead of their use. Which chunks of a tile a thread
// brings is worked out once, as from tile to tile only k advances.
#pragma once

#include "ops/gemm_product.cuh"

namespace sinter::SINTER_KERNEL_NS {

// How an operand lies in memory: known when compiled, or asked at run time.
enum class Layout : uint8_t { along_k, along_outer, either };
template <Layout kLayout, class Side> SINTER_DEVICE_FN bool is_along_k(const Side& side) {
  return kLayout == Layout::either ? side.along_k : kLayout == Layout::along_k;
}

// kOuter rows of A, or columns of B, at kDepth places of k. Rows are padded so that what the lanes
// of a warp read at once lies in different banks.
template <class T, int kOuter_, int kDepth_, int kOuterPad> struct OperandTile {
  static constexpr int kOuter = kOuter_, kDepth = kDepth_;
  union {
    SharedTile<T, kOuter, kDepth, kVec<T>> along_k;        // [outer, k]
    SharedTile<T, kDepth, kOuter, kOuterPad> along_outer;  // [k, outer]
  };
};

// One thread's chunks of the tiles of a side, of which the first tile begins at (outer, 0).
template <Layout kLayout, class T, class Tile, int kThreads, class Side> class TileCopy {
  static constexpr int kAll = Tile::kOuter * Tile::kDepth / kVec<T>,
                       kChunks = (kAll + kThreads - 1) / kThreads;

 public:
  SINTER_DEVICE_FN TileCopy(const Side& side, int64_t outer)
      : side_(side), outer_(outer), terms_(static_cast<int>(side.k)) {
    SINTER_UNROLL
    for (int c = 0; c < kChunks; ++c) {
      chunks_[c] = chunk(c, 0);
      left_[c] = static_cast<int>(chunks_[c].left < kMaxTerms ? chunks_[c].left : kMaxTerms);
    }
  }
  // The tile at k.
  SINTER_DEVICE_FN void operator()(int k, Tile& tile) const {
    bool whole = false;
    if constexpr (!Side::kGathered) whole = copy_whole(k, tile);
    if (!whole) copy_ragged(k, tile);
  }

 private:
  // Chunks that are one aligned access. Were all such?
  SINTER_DEVICE_FN bool copy_whole(int k, Tile& tile) const {
    const bool along_k = is_along_k<kLayout>(side_);
    bool whole = side_.vec;
    if (whole) {
      SINTER_UNROLL
      for (int c = 0; c < kChunks; ++c) {
        if (kAll % kThreads != 0 && c * kThreads + thread_x() >= kAll) break;
        auto chunk = chunks_[c];
        chunk.at += k * side_.k_stride;
        const int left = along_k ? left_[c] - k : row(c, false) + k < terms_ ? left_[c] : 0;
        if (left > 0 && left < kVec<T>) {
          whole = false;
        } else if (along_k) {
          cp_async16(
              tile.along_k, row(c, true), column(true), side_.source(chunk), chunk.at, left > 0);
        } else {
          cp_async16(tile.along_outer, row(c, false), column(false), side_.source(chunk), chunk.at,
              left > 0);
        }
      }
    }
    return whole;
  }
  // The others go element by element, zeros where there are none.
  SINTER_DEVICE_FN void copy_ragged(int k, Tile& tile) const {
    SINTER_NO_UNROLL
    for (int c = 0; c < kChunks; ++c) {
      if (c * kThreads + thread_x() >= kAll) break;
      const auto at = chunk(c, k);
      if constexpr (!Side::kGathered) {
        if (side_.vec && (at.left >= kVec<T> || at.left <= 0)) continue;
      }
      const auto v = gather<T>(side_, at);
      if (is_along_k<kLayout>(side_)) {
        tile.along_k.store_vec(row(c, true), column(true), v);
      } else {
        tile.along_outer.store_vec(row(c, false), column(false), v);
      }
    }
  }
  // Where in the tile a chunk goes. Its row advances by a constant from chunk to chunk.
  static constexpr int kAlongK = Tile::kDepth / kVec<T>, kAlongOuter = Tile::kOuter / kVec<T>;
  static_assert(kThreads % kAlongK == 0 && kThreads % kAlongOuter == 0);
  static SINTER_DEVICE_FN int row(int c, bool along_k) {
    return along_k ? thread_x() / kAlongK + c * (kThreads / kAlongK)
                   : thread_x() / kAlongOuter + c * (kThreads / kAlongOuter);
  }
  static SINTER_DEVICE_FN int column(bool along_k) {
    return thread_x() % (along_k ? kAlongK : kAlongOuter) * kVec<T>;
  }
  // And where it comes from, in the tile at k.
  SINTER_DEVICE_FN auto chunk(int c, int k) const {
    return is_along_k<kLayout>(side_)
               ? side_.chunk(true, outer_ + row(c, true), k + column(true))
               : side_.chunk(false, outer_ + column(false), k + row(c, false));
  }

  const Side& side_;
  int64_t outer_;
  int terms_;
  typename Side::Chunk chunks_[kChunks];  // but for `left`, which would take two registers each
  int left_[kChunks];
};

// The stages of a ring: f(stage, k) for each tile in order, while the copies of the next
// kStages - 1 are on their way.
template <int kStages, int kDepth, class Stage, class Copy, class Use>
SINTER_DEVICE_FN void for_each_tile(
    Stage (&stages)[kStages], int k, const Copy& copy, const Use& f) {
  const auto begin = [&](int at, int stage) {
    if (at < k) copy(stages[stage], at);
    cp_async_commit();
  };
  SINTER_UNROLL
  for (int t = 0; t < kStages - 1; ++t) begin(t * kDepth, t);
  int use = 0;
  SINTER_NO_UNROLL
  for (int at = 0; at < k; at += kDepth) {
    cp_async_wait<kStages - 2>();
    block_sync();  // everybody's part of this tile is here, and nobody still reads the one that is
                   // overwritten next
    const int free = use == 0 ? kStages - 1 : use - 1;
    begin(at + (kStages - 1) * kDepth, free);
    f(stages[use]);
    use = use == kStages - 1 ? 0 : use + 1;
  }
  block_sync();
}

}  // namespace sinter::SINTER_KERNEL_NS
