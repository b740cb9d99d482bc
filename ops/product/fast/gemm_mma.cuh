// The product core on tensor cores, with f32 sums: bf16 operands, or f32 ones, rounded to the 19
// bits that it reads (TF32). Four warps make 64 x 64 results, a warp 32 x 32 of them as 2 x 4
// fragments of mma m16n8k16 (TF32: m16n8k8); k ascending. Tiles come by cp_async into a ring, all
// but one on their way; whatever is not 16 whole aligned bytes goes element by element. Grids of 64
// x 64 are thin, so a block has two such groups of warps, each with a half of every tile's k: half
// as many turns of the loop, whose barrier and latencies are most of its time. The groups' sums are
// added at the end, in a fixed order. Where blocks of 128 x 128 results are enough for a card
// (large_tiles_pay, gemm_launch.cuh), their eight warps are one group, a warp with 64 x 32.
#pragma once

#include "ops/product/fast/gemm_tiles.cuh"
#include "ops/product/gemm_library.h"

namespace sinter::SINTER_KERNEL_NS {

// Groups of warps; columns of a warp, whose rows are half of a tile's; stages of the ring.
inline constexpr int kMmaGroups = 2, kMmaThreads = 128 * kMmaGroups, kOfWarp = kTile / 2,
                     kMmaStages = 3, kLargeTile = 2 * kTile;

template <class T, int kSide = kTile> struct MmaTiles {
  static constexpr int kGroups = kSide == kTile ? kMmaGroups : 1,
                       kShare = 64 / static_cast<int>(sizeof(T)), kDepth = kGroups * kShare;
  using Tile = OperandTile<T, kSide, kDepth, 8>;
  struct Stage {
    Tile a, b;
  };
  using Sums = GroupSums<float, SharedTile<float, kSide, kSide, 8>, kGroups, kGroups, kSide>;
  union {
    Stage stages[kMmaStages];
    Sums sums;
  };
};

// Four matrices of 8 rows of 16 bytes (outer x k; TF32: of 4 numbers) as fragments. A's quarters in
// the order (0, 0), (1, 0), (0, 1), (1, 1) of (outer, k), B's in the order (0, 0), (0, 1), (1, 0),
// (1, 1): two columns of fragments.
template <bool kIsA> SINTER_DEVICE_FN int outer_of(int quarter) {
  return (kIsA ? quarter % 2 : quarter / 2) * 8;
}
template <bool kIsA, class T> SINTER_DEVICE_FN int k_of(int quarter) {
  return (kIsA ? quarter / 2 : quarter % 2) * kVec<T>;
}
// Where a lane reads those at (outer, k): by ldmatrix a row of a quarter, of TF32 along `outer` an
// element of each.
template <Layout kLayout, bool kIsA, class T, class Tile, class Side>
SINTER_DEVICE_FN SharedPlace lane_at(const Side& side, int outer, int k) {
  const int quarter = lane() / 8, row = lane() % 8;
  if (is_along_k<kLayout>(side))
    return Tile::AlongK::keep_place(
        outer + outer_of<kIsA>(quarter) + row, k + k_of<kIsA, T>(quarter));
  if constexpr (std::is_same_v<T, bf16>)
    return Tile::AlongOuter::keep_place(
        k + k_of<kIsA, T>(quarter) + row, outer + outer_of<kIsA>(quarter));
  return Tile::AlongOuter::keep_place(k + lane() % 4, outer + lane() / 4);
}
template <Layout kLayout, bool kIsA, class T, int kOuter, int kDepth, int kPad, class Side>
SINTER_DEVICE_FN Vec<uint32_t, 4> fragments(const Side& side,
    const OperandTile<T, kOuter, kDepth, kPad>& tile, const SharedPlace& at, int outer, int k) {
  Vec<uint32_t, 4> f;
  if (is_along_k<kLayout>(side)) {
    f = ldmatrix_x4(tile.along_k, at.r + outer, at.c + k);
  } else if constexpr (std::is_same_v<T, bf16>) {
    f = ldmatrix_x4_trans(tile.along_outer, at.r + k, at.c + outer);
  } else {
    SINTER_UNROLL
    for (int q = 0; q < 4; ++q)
      f.v[q] = math::to_bits(
          tile.along_outer(at.r + k + k_of<kIsA, T>(q), at.c + outer + outer_of<kIsA>(q)));
  }
  return f;
}
// Two quarters of the same rows, or columns, at a time.
template <bool kIsA, class T> SINTER_DEVICE_FN void round_for_mma(Vec<uint32_t, 4>& f) {
  if constexpr (std::is_same_v<T, float>) {
    to_tf32(f.v[0], f.v[kIsA ? 2 : 1]);
    to_tf32(f.v[kIsA ? 1 : 2], f.v[3]);
  }
}
// What a lane has of row `half` * 8 + lane / 4 of a fragment of A, added up.
template <class T> SINTER_DEVICE_FN float sum_of_row(const Vec<uint32_t, 4>& f, int half) {
  const uint32_t first = f.v[half], second = f.v[half + 2];
  if constexpr (std::is_same_v<T, bf16>) {
    return (math::from_bits(first << 16) + math::from_bits(first & 0xffff0000u)) +
           (math::from_bits(second << 16) + math::from_bits(second & 0xffff0000u));
  } else {
    return math::from_bits(first) + math::from_bits(second);
  }
}
template <class T>
SINTER_DEVICE_FN void mma_of(
    Vec<float, 4>& sums, const Vec<uint32_t, 4>& a, const Vec<uint32_t, 2>& b) {
  if constexpr (std::is_same_v<T, bf16>) {
    mma_bf16_m16n8k16(sums, a, b);
  } else {
    mma_tf32_m16n8k8(sums, a, b);
  }
}

// 16 rows from `row` on, columns k.., of a tile whose columns are terms of the sums: one fragment
// of A, or two of B side by side.
template <bool kIsA, class T, class Tile>
SINTER_DEVICE_FN Vec<uint32_t, 4> fragments_of_rows(const Tile& tile, int row, int k) {
  const int quarter = lane() / 8;
  auto f =
      ldmatrix_x4(tile, row + outer_of<kIsA>(quarter) + lane() % 8, k + k_of<kIsA, T>(quarter));
  round_for_mma<kIsA, T>(f);
  return f;
}
// 16 columns from `column` on of a tile whose rows, k.., are terms of the sums: two fragments of B.
template <class T, class Tile>
SINTER_DEVICE_FN Vec<uint32_t, 4> fragments_of_columns(const Tile& tile, int k, int column) {
  const int quarter = lane() / 8;
  Vec<uint32_t, 4> f;
  if constexpr (std::is_same_v<T, bf16>) {
    f = ldmatrix_x4_trans(
        tile, k + k_of<false, T>(quarter) + lane() % 8, column + outer_of<false>(quarter));
  } else {
    SINTER_UNROLL
    for (int q = 0; q < 4; ++q)
      f.v[q] = math::to_bits(
          tile(k + k_of<false, T>(q) + lane() % 4, column + outer_of<false>(q) + lane() / 4));
    round_for_mma<false, T>(f);
  }
  return f;
}
template <class T>
SINTER_DEVICE_FN void mma_twice(
    Vec<float, 4> (&sums)[2], const Vec<uint32_t, 4>& a, const Vec<uint32_t, 4>& b) {
  mma_of<T>(sums[0], a, Vec<uint32_t, 2>{{b.v[0], b.v[1]}});
  mma_of<T>(sums[1], a, Vec<uint32_t, 2>{{b.v[2], b.v[3]}});
}

template <Layout kA, Layout kB, int kSide = kTile, class T, class B, class A, class Epilogue>
SINTER_DEVICE_FN void mma_product(const Product<T, B, A>& product, const Epilogue& epilogue,
    const SplitSums<float>& split, const TileAt& tile) {
  using Tiles = MmaTiles<T, kSide>;
  constexpr int kMmaK = 32 / static_cast<int>(sizeof(T)), kRowsOfWarp = kSide / 2,
                kAcross = kSide / kOfWarp;  // warps
  auto& s = shared<Tiles>();
  const int group = warp() / (2 * kAcross), my_row = warp() / kAcross % 2 * kRowsOfWarp,
            my_col = warp() % kAcross * kOfWarp;
  using Tile = typename Tiles::Tile;
  const SharedPlace at_a = lane_at<kA, true, T, Tile>(product.a, my_row, group * Tiles::kShare),
                    at_b = lane_at<kB, false, T, Tile>(product.b, my_col, group * Tiles::kShare);
  Vec<float, 4> sums[kRowsOfWarp / 16][kOfWarp / 8] = {};
  float row_sums[kRowsOfWarp / 16][2] = {};
  const int sums_rows = keep(int{Epilogue::kSumsRows && tile.col == 0 && my_col == 0});
  for_each_stage<kA, kB, kMmaThreads>(product, split, tile, s.stages, [&](const auto& stage) {
    SINTER_UNROLL
    for (int p = 0; p < Tiles::kShare; p += kMmaK) {
      Vec<uint32_t, 4> x[kRowsOfWarp / 16], y[kOfWarp / 16];
      SINTER_UNROLL
      for (int i = 0; i < kRowsOfWarp / 16; ++i)
        x[i] = fragments<kA, true>(product.a, stage.a, at_a, i * 16, p);
      SINTER_UNROLL
      for (int j = 0; j < kOfWarp / 16; ++j)
        y[j] = fragments<kB, false>(product.b, stage.b, at_b, j * 16, p);
      if (sums_rows) {
        SINTER_UNROLL
        for (int i = 0; i < kRowsOfWarp / 16; ++i) {
          SINTER_UNROLL
          for (int half = 0; half < 2; ++half)
            row_sums[i][half] = row_sums[i][half] + sum_of_row<T>(x[i], half);
        }
      }
      SINTER_UNROLL
      for (auto& of_rows : x) round_for_mma<true, T>(of_rows);
      SINTER_UNROLL
      for (auto& of_columns : y) round_for_mma<false, T>(of_columns);
      SINTER_UNROLL
      for (int i = 0; i < kRowsOfWarp / 16; ++i) {
        SINTER_UNROLL
        for (int j = 0; j < kOfWarp / 8; ++j)
          mma_of<T>(sums[i][j], x[i],
              Vec<uint32_t, 2>{{y[j / 2].v[j % 2 * 2], y[j / 2].v[j % 2 * 2 + 1]}});
      }
    }
  });
  TileEnd<kSide, kMmaThreads, is_whole(kB), T, B, A, Epilogue, kSide> end_of_tile(
      product, tile, epilogue);
  end_of_tile.load();
  // A lane has columns 2t, 2t + 1 of rows g and g + 8 of each fragment: g = lane / 4, t = lane % 4.
  auto& part = s.sums.parts[group];
  SINTER_UNROLL
  for (int i = 0; i < kRowsOfWarp / 16; ++i) {
    SINTER_UNROLL
    for (int j = 0; j < kOfWarp / 8; ++j) {
      const int r = my_row + i * 16 + lane() / 4, c = my_col + j * 8 + lane() % 4 * 2;
      part.store_vec(r, c, Vec<float, 2>{{sums[i][j].v[0], sums[i][j].v[1]}});
      part.store_vec(r + 8, c, Vec<float, 2>{{sums[i][j].v[2], sums[i][j].v[3]}});
    }
  }
  if (sums_rows) {
    SINTER_UNROLL
    for (int i = 0; i < kRowsOfWarp / 16; ++i) {
      SINTER_UNROLL
      for (int half = 0; half < 2; ++half) {
        float sum = row_sums[i][half];
        sum += shfl_xor(sum, 1);
        sum += shfl_xor(sum, 2);
        if (lane() % 4 == 0)
          s.sums.row_sums.put(group, my_row + i * 16 + half * 8 + lane() / 4, sum);
      }
    }
  }
  block_sync();
  const int mine = thread_x() < kSide ? thread_x() : -1;
  float row_sum = 0;
  if (Epilogue::kSumsRows && tile.col == 0 && mine >= 0)
    row_sum = s.sums.row_sum(mine, s.sums.row_sums(0, mine));
  finish_product(end_of_tile, product, tile, split, s.sums, epilogue, mine, row_sum);
}

}  // namespace sinter::SINTER_KERNEL_NS
