// Products of few tiles and long sums: k goes in shares to blocks of their own, which leave their
// sums in memory. The last block of a tile to arrive adds them, share after share, and does the
// rest: one launch, and a fixed order of sums.
#pragma once

#include <algorithm>

#include "core/device/memory.h"
#include "ops/product/gemm_product.cuh"

namespace sinter::SINTER_KERNEL_NS {

// In a stream's memory: a counter of arrivals, of which a Scratch has so many, and the sums of each
// share, for each tile.
inline constexpr int kMostSplitTiles = 64;
inline constexpr int64_t kSplitElements = 1 << 20, kLeastShare = 256;
template <class V> struct SplitSums {
  int shares = 1, terms = 0;  // how many shares, and the terms of each
  InOut<V> parts;
  InOut<uint32_t> arrived;

  SINTER_DEVICE_FN int first(const TileAt& tile) const { return tile.share * terms; }
  SINTER_DEVICE_FN int end(const TileAt& tile, int k) const {
    return shares == 1 || tile.share == shares - 1 ? k : first(tile) + terms;
  }
};

// The sums of all shares of a tile of kRows x kCols, and of its rows.
template <int kRows, int kCols, class V> struct TileParts {
  static constexpr int kElements = kRows * (kCols + kGroup);
  const SplitSums<V>& split;
  int64_t begin;

  SINTER_DEVICE_FN int64_t at(int share, int r, int c) const {
    return begin + share * kElements + r * (kCols + kGroup) + c;
  }
  template <class Sums> SINTER_DEVICE_FN void put(int share, const Sums& sums) const {
    SINTER_NO_UNROLL
    for (int e = thread_x() * kVec<V>; e < kRows * kCols; e += threads_per_block() * kVec<V>)
      split.parts.store_vec(
          at(share, e / kCols, e % kCols), sums.template load_vec<kVec<V>>(e / kCols, e % kCols));
  }
  template <int N> SINTER_DEVICE_FN Vec<V, N> load_vec(int r, int c) const {
    auto sum = split.parts.template load_vec<N>(at(0, r, c));
    SINTER_NO_UNROLL
    for (int s = 1; s < split.shares; ++s) {
      const auto part = split.parts.template load_vec<N>(at(s, r, c));
      SINTER_UNROLL
      for (int e = 0; e < N; ++e) sum[e] = sum[e] + part[e];
    }
    return sum;
  }
};

// Hands a block's sums to the epilogue, or those of all shares if the block is the last of its
// tile. row_sum: of the tile's row `r` if the epilogue sums rows; threads that have none give -1.
template <int kRows, int kCols, class T, class B, class A, class Sums, class Epilogue, class V>
SINTER_DEVICE_FN void finish_product(const Product<T, B, A>& product, const TileAt& tile,
    const SplitSums<V>& split, const Sums& sums, const Epilogue& epilogue, int r, V row_sum) {
  constexpr bool kSumsRows = Epilogue::kSumsRows;
  if (split.shares == 1) {
    finish_tile<kRows, kCols>(product, tile, sums, epilogue);
  } else {
    using Parts = TileParts<kRows, kCols, V>;
    const Parts parts{split, int64_t{tile.place} * split.shares * Parts::kElements};
    parts.put(tile.share, sums);
    if (kSumsRows && r >= 0) split.parts.put(parts.at(tile.share, r, kCols), row_sum);
    if (!ticket(split.arrived, static_cast<uint32_t>(split.shares), tile.place)) return;
    finish_tile<kRows, kCols>(product, tile, parts, epilogue);
    if (kSumsRows && r >= 0) row_sum = parts.template load_vec<1>(r, kCols)[0];
  }
  if constexpr (kSumsRows) {
    const int64_t row = tile.row * kRows + r;
    if (r >= 0 && tile.col == 0 && row < product.a.outer) epilogue.row_sum(row, row_sum);
  }
}

// Shares for `tiles` tiles of kRows x kCols that sum k terms each: one, unless tiles would keep
// half of the card busy at most, and each share has terms enough to be worth its way through
// memory.
template <int kRows, int kCols, class V> SplitSums<V> split_sums(int64_t tiles, int64_t k) {
  constexpr int64_t kElements = TileParts<kRows, kCols, V>::kElements, kWhole = 128;
  if (k < 2 * kLeastShare || tiles > kMostSplitTiles) return {};
  const int64_t shares =
      std::min({multiprocessors() / tiles, k / kLeastShare, kSplitElements / (tiles * kElements)});
  if (shares < 2) return {};
  const Scratch own = scratch(kDevice, kSplitElements * sizeof(V));
  const int64_t terms = blocks_for(blocks_for(k, shares), kWhole) * kWhole;  // whole tiles of k
  return {static_cast<int>(blocks_for(k, terms)), static_cast<int>(terms),
      {static_cast<V*>(own.memory), kSplitElements}, {own.ticket, kMostSplitTiles}};
}

}  // namespace sinter::SINTER_KERNEL_NS
