// The product core on ordinary fused multiply-adds: f32 and f64 (and bf16, summed in f32). A block
// of 64 threads makes 64 x 64 results, a thread 8 x 8 of them in registers; k ascending, no split,
// so that the bits do not depend on the launch. Two tiles of depth 16: while one is used the next
// is on its way through registers, so one barrier per tile suffices.
#pragma once

#include "ops/gemm_product.cuh"

namespace sinter::SINTER_KERNEL_NS {

inline constexpr int kFfmaThreads = 64;
template <class V> inline constexpr int kFfmaDepth = 64 / static_cast<int>(sizeof(V));

template <class V> struct FfmaShared {
  // Columns from 32 on are moved by 16 bytes: then the threads of a warp read eight columns each
  // without bank conflicts.
  using Tile = SharedTile<V, kFfmaDepth<V>, kTile + kVec<V>>;
  static SINTER_DEVICE_FN int column(int c) { return c + c / 32 * kVec<V>; }
  struct Stage {
    Tile a, b;  // [k, outer]
  };
  union {
    Stage stages[2];
    SharedTile<V, kTile, kTile, kVec<V>> sums;
  };
};

// One thread's share of a tile, between global and shared memory.
template <class T> struct FfmaChunks {
  using V = compute_t<T>;
  static constexpr int kDepth = kFfmaDepth<V>, kChunks = kTile * kDepth / kFfmaThreads / kVec<T>;
  Vec<T, kVec<T>> chunks[kChunks];

  static SINTER_DEVICE_FN int outer_of(bool along_k, int e) {
    return along_k ? e / (kDepth / kVec<T>) : e % (kTile / kVec<T>)*kVec<T>;
  }
  static SINTER_DEVICE_FN int k_of(bool along_k, int e) {
    return along_k ? e % (kDepth / kVec<T>)*kVec<T> : e / (kTile / kVec<T>);
  }

  template <class Side> SINTER_DEVICE_FN void load(const Side& side, int64_t outer, int64_t k) {
    SINTER_UNROLL
    for (int c = 0; c < kChunks; ++c) {
      const int e = c * kFfmaThreads + thread_x();
      const auto chunk =
          side.chunk(side.along_k, outer + outer_of(side.along_k, e), k + k_of(side.along_k, e));
      chunks[c] = load_chunk<T>(side, chunk);
    }
  }
  template <class Side>
  SINTER_DEVICE_FN void store(const Side& side, typename FfmaShared<V>::Tile& tile) const {
    SINTER_UNROLL
    for (int c = 0; c < kChunks; ++c) {
      const int e = c * kFfmaThreads + thread_x(), outer = outer_of(side.along_k, e),
                k = k_of(side.along_k, e);
      if (side.along_k) {
        SINTER_UNROLL
        for (int q = 0; q < kVec<T>; ++q)
          tile.put(k + q, FfmaShared<V>::column(outer), V(chunks[c].v[q]));
      } else {
        SINTER_UNROLL
        for (int q = 0; q < kVec<T>; q += kVec<V>) {
          Vec<V, kVec<V>> part;
          SINTER_UNROLL
          for (int x = 0; x < kVec<V>; ++x) part[x] = V(chunks[c].v[q + x]);
          tile.store_vec(k, FfmaShared<V>::column(outer + q), part);
        }
      }
    }
  }
};

template <class V, class Tile>
SINTER_DEVICE_FN void load_eight(const Tile& tile, int k, int column, V (&v)[8]) {
  SINTER_UNROLL
  for (int q = 0; q < 8; q += kVec<V>) {
    const auto part = tile.template load_vec<kVec<V>>(k, column + q);
    SINTER_UNROLL
    for (int x = 0; x < kVec<V>; ++x) v[q + x] = part[x];
  }
}

template <class T, class B, class Epilogue>
SINTER_DEVICE_FN void ffma_product(
    const Product<T, B>& product, const Epilogue& epilogue, const TileAt& tile = tile_of_block()) {
  using V = compute_t<T>;
  constexpr int kDepth = kFfmaDepth<V>;
  auto& s = shared<FfmaShared<V>>();
  const int64_t row = tile.row * kTile, col = tile.col * kTile, k = product.a.k;
  const int my_row = thread_x() / 8 * 8, my_col = thread_x() % 8 * 8;
  V sums[8][8] = {}, row_sum = 0;
  FfmaChunks<T> a, b;
  const auto load = [&](int64_t at) {
    a.load(product.a, row, at);
    b.load(product.b, col, at);
  };
  const auto store = [&](auto& stage) {
    a.store(product.a, stage.a);
    b.store(product.b, stage.b);
  };
  if (k > 0) {
    load(0);
    store(s.stages[0]);
  }
  int use = 0;
  SINTER_NO_UNROLL
  for (int64_t at = 0; at < k; at += kDepth, use ^= 1) {
    block_sync();
    const bool more = at + kDepth < k;
    if (more) load(at + kDepth);
    const auto& stage = s.stages[use];
    SINTER_NO_UNROLL  // unrolled, all loads would move to the front and the registers run out
        for (int p = 0; p < kDepth; ++p) {
      V x[8], y[8];
      load_eight(stage.a, p, FfmaShared<V>::column(my_row), x);
      load_eight(stage.b, p, FfmaShared<V>::column(my_col), y);
      SINTER_UNROLL
      for (int i = 0; i < 8; ++i) {
        SINTER_UNROLL
        for (int j = 0; j < 8; ++j) sums[i][j] = math::mul_add(x[i], y[j], sums[i][j]);
      }
    }
    if constexpr (Epilogue::kSumsRows) {
      if (tile.col == 0) {
        V part = 0;
        for (int p = 0; p < kDepth; ++p)
          part = part + stage.a(p, FfmaShared<V>::column(thread_x()));
        row_sum = row_sum + part;
      }
    }
    if (more) store(s.stages[use ^ 1]);
  }
  block_sync();
  SINTER_UNROLL
  for (int i = 0; i < 8; ++i) {
    SINTER_UNROLL
    for (int j = 0; j < 8; j += kVec<V>) {
      Vec<V, kVec<V>> part;
      SINTER_UNROLL
      for (int x = 0; x < kVec<V>; ++x) part[x] = sums[i][j + x];
      s.sums.store_vec(my_row + i, my_col + j, part);
    }
  }
  block_sync();
  finish_tile(product, tile, s.sums, epilogue);
  if constexpr (Epilogue::kSumsRows) {
    if (tile.col == 0 && row + thread_x() < product.a.outer)
      epilogue.row_sum(row + thread_x(), row_sum);
  }
}

}  // namespace sinter::SINTER_KERNEL_NS
