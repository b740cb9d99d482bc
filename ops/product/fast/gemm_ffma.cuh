// The product core on ordinary fused multiply-adds: f32 and f64. A block makes 16 x 64 results. Its
// threads stand in groups of 16: a group makes all of the block's results, a thread 8 x 8 of them
// in registers, from its own share of each tile's k. So a small product still has many blocks and
// many threads at work, and a thread adds 64 products for the 16 values that it reads. Then the
// groups' sums are added, in a fixed order. Where blocks of 64 x 64 results are enough for a card
// (large_tiles_pay, gemm_launch.cuh), they read less, by groups of 64 threads.
#pragma once

#include "ops/product/fast/gemm_tiles.cuh"

namespace sinter::SINTER_KERNEL_NS {

inline constexpr int kFfmaRows = 16;
template <class V> inline constexpr int kFfmaThreads = 1024 / static_cast<int>(sizeof(V));

template <class V, int kRows_ = kFfmaRows> struct FfmaShared {
  static constexpr int kRows = kRows_, kThreads = kFfmaThreads<V>, kStages = 3,
                       kRun = 128 / static_cast<int>(sizeof(V)), kGroups = kThreads / kRows,
                       kDepth = kRows == kFfmaRows ? 2 * kRun : kRun,
                       kShare = kRun / kGroups,  // of each run of a tile's k, per group
      kStep = 8 / static_cast<int>(sizeof(V));   // of k, read at once
  using A = OperandTile<V, kRows, kDepth, 0>;
  using B = OperandTile<V, kTile, kDepth, 0>;
  struct Stage {
    A a;
    B b;
  };
  // A part: sums of one half of the groups.
  using Sums = GroupSums<V, SharedTile<V, kRows, kTile, 8>, kGroups / 2, kGroups, kRows>;
  union {
    Stage stages[kStages];
    Sums sums;
  };
};

// Where in a tile the eight rows, or columns, of a thread lie: those that many threads read at once
// are neighbours. `many` threads share the tile's outer dimension, this is number `mine`.
template <class V> SINTER_DEVICE_FN int ffma_outer(bool along_k, int many, int mine, int i) {
  constexpr int kBy = kVec<V>;
  return along_k ? i * many + mine : (i - i % kBy) * many + mine * kBy + i % kBy;
}

// Where its first is, at k.
template <class V, class Tile>
SINTER_DEVICE_FN SharedPlace ffma_place(bool along_k, int mine, int k) {
  return along_k ? Tile::AlongK::keep_place(mine, k)
                 : Tile::AlongOuter::keep_place(k, mine * kVec<V>);
}

// Its eight values at k .. k + kStep - 1, counted from that place.
template <int kMany, int kStep, class V, class Tile>
SINTER_DEVICE_FN void load_eight_of(
    bool along_k, const Tile& tile, const SharedPlace& at, int k, V (&v)[8][kStep]) {
  if (along_k) {
    SINTER_UNROLL
    for (int i = 0; i < 8; ++i) {
      const auto part =
          tile.along_k.template load_vec<kStep>(at.r + ffma_outer<V>(true, kMany, 0, i), at.c + k);
      SINTER_UNROLL
      for (int p = 0; p < kStep; ++p) v[i][p] = part[p];
    }
  } else {
    SINTER_UNROLL
    for (int p = 0; p < kStep; ++p) {
      SINTER_UNROLL
      for (int i = 0; i < 8; i += kVec<V>) {
        const auto part = tile.along_outer.template load_vec<kVec<V>>(
            at.r + k + p, at.c + ffma_outer<V>(false, kMany, 0, i));
        SINTER_UNROLL
        for (int e = 0; e < kVec<V>; ++e) v[i + e][p] = part[e];
      }
    }
  }
}

template <Layout kA, Layout kB, int kRows = kFfmaRows, class V, class B, class A, class Epilogue>
SINTER_DEVICE_FN void ffma_product(const Product<V, B, A>& product, const Epilogue& epilogue,
    const SplitSums<V>& split, const TileAt& tile) {
  using S = FfmaShared<V, kRows>;
  const bool along_a = is_along_k<kA>(product.a), along_b = is_along_k<kB>(product.b);
  constexpr int kRowsOf = kRows / 8, kColsOf = kTile / 8;  // threads of a group
  auto& s = shared<S>();
  const unsigned me = static_cast<unsigned>(thread_x());  // fewer instructions than with a sign
  const int group = thread_x() / kRows, mine = thread_x() % kRows,
            my_row = static_cast<int>(me % kRows / kColsOf),
            my_col = static_cast<int>(me % kColsOf), mine_of_run = group * S::kShare;
  const SharedPlace at_a = ffma_place<V, typename S::A>(along_a, my_row, mine_of_run),
                    at_b = ffma_place<V, typename S::B>(along_b, my_col, mine_of_run);
  V sums[8][8] = {}, row_sum = 0;
  for_each_stage<kA, kB, S::kThreads>(product, split, tile, s.stages, [&](const auto& stage) {
    SINTER_UNROLL
    for (int run = 0; run < S::kDepth; run += S::kRun) {
      SINTER_UNROLL
      for (int p = run; p < run + S::kShare; p += S::kStep) {
        V x[8][S::kStep], y[8][S::kStep];
        load_eight_of<kRowsOf, S::kStep>(along_a, stage.a, at_a, p, x);
        load_eight_of<kColsOf, S::kStep>(along_b, stage.b, at_b, p, y);
        SINTER_UNROLL
        for (int q = 0; q < S::kStep; ++q) {
          SINTER_UNROLL
          for (int i = 0; i < 8; ++i) {
            SINTER_UNROLL
            for (int j = 0; j < 8; ++j) sums[i][j] = math::mul_add(x[i][q], y[j][q], sums[i][j]);
          }
        }
      }
      if constexpr (Epilogue::kSumsRows) {
        if (tile.col == 0) {
          V part = 0;
          const int first = run + mine_of_run;
          SINTER_UNROLL
          for (int p = first; p < first + S::kShare; ++p)
            part = part + (along_a ? stage.a.along_k(mine, p) : stage.a.along_outer(p, mine));
          row_sum = row_sum + part;
        }
      }
    }
  });
  TileEnd<kRows, S::kThreads, is_whole(kB), V, B, A, Epilogue> end_of_tile(product, tile, epilogue);
  end_of_tile.load();
  // The upper half of the groups leaves its sums, the lower half adds its own to them.
  constexpr int kHalf = S::kGroups / 2;
  const bool upper = group >= kHalf;
  auto& part = s.sums.parts[group % kHalf];
  const auto put = [&](bool add) {
    SINTER_UNROLL
    for (int i = 0; i < 8; ++i) {
      const int r = ffma_outer<V>(along_a, kRowsOf, my_row, i);
      SINTER_UNROLL
      for (int j = 0; j < 8; ++j) {
        const int c = ffma_outer<V>(along_b, kColsOf, my_col, j);
        part.put(r, c, add ? sums[i][j] + part(r, c) : sums[i][j]);
      }
    }
  };
  if (upper) put(false);
  if constexpr (Epilogue::kSumsRows) s.sums.row_sums.put(group, mine, row_sum);
  block_sync();
  if (!upper) put(true);
  block_sync();
  if (Epilogue::kSumsRows && group == 0) row_sum = s.sums.row_sum(mine, row_sum);
  finish_product(
      end_of_tile, product, tile, split, s.sums, epilogue, group == 0 ? mine : -1, row_sum);
}

}  // namespace sinter::SINTER_KERNEL_NS
