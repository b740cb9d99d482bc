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
inline constexpr int kMostSplitTiles = 256;
inline constexpr int64_t kSplitElements = 1 << 20, kLeastShare = 256;
inline constexpr int kShareTile = 64;  // of k: a multiple of every core's tile
template <class V> struct SplitSums {
  // How many shares; the tiles of k of each, and how many of the first have one more.
  int shares = 1, tiles = 0, longer = 0;
  InOut<V> parts;
  InOut<uint32_t> arrived;

  SINTER_DEVICE_FN int first(const TileAt& tile) const {
    return (tile.share * tiles + (tile.share < longer ? tile.share : longer)) * kShareTile;
  }
  SINTER_DEVICE_FN int end(const TileAt& tile, int k) const {
    return tile.share == shares - 1 ? k
                                    : first(tile) + (tiles + (tile.share < longer)) * kShareTile;
  }
};

// The sums of all shares of a tile of kRows, and behind them those of its rows.
template <int kRows, int kThreads, class V, int kAtOnce = 1> struct TileParts {
  static constexpr int kSums = kRows * kTile, kElements = kSums + kRows;
  const SplitSums<V>& split;
  int begin;

  SINTER_DEVICE_FN int at(int share, int e) const { return begin + share * kElements + e; }
  template <class Sums> SINTER_DEVICE_FN void put(int share, const Sums& sums) const {
    SINTER_UNROLL
    for (int n = 0; n < kMany; ++n)
      split.parts.store_vec(at(share, mine() + n * kStep),
          sums.template load_vec<kVec<V>>(row() + n * kRowStep, column()));
  }
  template <class Tile> SINTER_DEVICE_FN void join(Tile& to) const {
    Vec<V, kVec<V>> sums[kMany];
    add(mine(), sums);
    SINTER_UNROLL
    for (int n = 0; n < kMany; ++n) to.store_vec(row() + n * kRowStep, column(), sums[n]);
  }
  SINTER_DEVICE_FN V row_sum(int r) const {
    Vec<V, 1> sum[1];
    add(kSums + r, sum);
    return sum[0][0];
  }

 private:
  // A thread has kMany vectors of the tile, kStep elements, or kRowStep rows, apart.
  static constexpr int kStep = kThreads * kVec<V>, kRowStep = kStep / kTile, kMany = kSums / kStep;
  static_assert(kSums % kStep == 0 && kStep % kTile == 0);
  static SINTER_DEVICE_FN int mine() { return thread_x() * kVec<V>; }
  static SINTER_DEVICE_FN int row() {
    return static_cast<int>(static_cast<unsigned>(thread_x()) / (kTile / kVec<V>));
  }
  static SINTER_DEVICE_FN int column() { return mine() - row() * kTile; }

  // sums[n]: those from element e + n kStep on, share after share. The loads of kAtOnce shares are
  // on their way before the first of them is added.
  template <int N, int kCount> SINTER_DEVICE_FN void add(int e, Vec<V, N> (&sums)[kCount]) const {
    SINTER_UNROLL
    for (auto& sum : sums) {
      SINTER_UNROLL
      for (int q = 0; q < N; ++q) sum[q] = V(-0.0);  // adding it changes nothing
    }
    int from = at(0, e), left = split.shares;
    SINTER_NO_UNROLL
    do {
      Vec<V, N> parts[kAtOnce][kCount];
      SINTER_UNROLL
      for (int s = 0; s < kAtOnce; ++s) {
        if (s >= left) break;
        SINTER_UNROLL
        for (int n = 0; n < kCount; ++n)
          parts[s][n] = split.parts.template load_vec<N>(from + s * kElements + n * kStep);
      }
      SINTER_UNROLL
      for (int s = 0; s < kAtOnce; ++s) {
        if (s >= left) break;
        SINTER_UNROLL
        for (int n = 0; n < kCount; ++n) {
          SINTER_UNROLL
          for (int q = 0; q < N; ++q) sums[n][q] = sums[n][q] + parts[s][n][q];
        }
      }
      from += kAtOnce * kElements;
      left -= kAtOnce;
    } while (left > 0);
  }
};

// The sums of a tile in its block's first `count` parts.
template <class Sums> struct SumsOfTile {
  const Sums& sums;
  int count;
  template <int N> SINTER_DEVICE_FN auto load_vec(int r, int c) const {
    return sums.template load_vec<N>(r, c, count);
  }
};

// Hands a block's sums to the epilogue, or those of all shares if the block is the last of its
// tile; a tile of more columns than others goes whole. row_sum: of the tile's row `r` if the
// epilogue sums rows; threads that have none give -1.
template <int kRows, int kThreads, bool kWhole, class T, class B, class A, class Sums,
    class Epilogue, int kColumns, class V>
SINTER_DEVICE_FN void finish_product(
    TileEnd<kRows, kThreads, kWhole, T, B, A, Epilogue, kColumns>& end,
    const Product<T, B, A>& product, const TileAt& tile, const SplitSums<V>& split, Sums& sums,
    const Epilogue& epilogue, int r, V row_sum) {
  constexpr bool kSumsRows = Epilogue::kSumsRows;
  int parts = Sums::kParts;
  if (kColumns == kTile && split.shares > 1) {
    // A gathered product has its registers for more blocks at a time instead.
    using Parts = TileParts<kRows, kThreads, V, B::kGathered ? 1 : 3>;
    const Parts all{split, tile.place * split.shares * Parts::kElements};
    all.put(tile.share, sums);
    if (kSumsRows && r >= 0) split.parts.put(all.at(tile.share, Parts::kSums + r), row_sum);
    if (!ticket(split.arrived, static_cast<uint32_t>(split.shares), tile.place)) return;
    all.join(sums.parts[0]);
    if (kSumsRows && r >= 0) row_sum = all.row_sum(r);
    parts = 1;
    block_sync();
  }
  end.finish(SumsOfTile<Sums>{sums, parts});
  if constexpr (kSumsRows) {
    const int64_t row = tile.row * kRows + r;
    if (r >= 0 && tile.col == 0 && row < product.a.outer) epilogue.row_sum(row, row_sum);
  }
}

// Shares for `tiles` tiles of kRows that sum k terms each: one, unless tiles would keep
// half of the card busy at most, and each share has terms enough to be worth its way through
// memory. shared_bytes: of a block, if a multiprocessor's registers hold two of them; then it holds
// two where its shared memory does, of which the card takes some for each.
template <int kRows, class V>
SplitSums<V> split_sums(int64_t tiles, int64_t k, size_t shared_bytes = 0) {
  constexpr int64_t kElements = TileParts<kRows, kTile, V>::kElements;
  if (k < 2 * kLeastShare || tiles > kMostSplitTiles) return {};
  constexpr size_t kOfCard = 1 << 10;
  const bool two =
      shared_bytes > 0 && 2 * (shared_bytes + kOfCard) <= shared_memory_limit(kDevice) + kOfCard;
  const int64_t places = multiprocessors() * (two ? 2 : 1);
  const int64_t shares =
      std::min({places / tiles, k / kLeastShare, kSplitElements / (tiles * kElements)});
  if (shares < 2) return {};
  const Scratch own = scratch(kDevice, kSplitElements * sizeof(V));
  const int64_t of_k = blocks_for(k, kShareTile);
  return {static_cast<int>(shares), static_cast<int>(of_k / shares),
      static_cast<int>(of_k % shares), {static_cast<V*>(own.memory), kSplitElements},
      {own.ticket, kMostSplitTiles}};
}

}  // namespace sinter::SINTER_KERNEL_NS
