// The product core on tensor cores, with f32 sums: bf16 operands, or f32 ones, rounded to the 19
// bits that it reads (TF32). A block of four warps makes 64 x 64 results, a warp 32 x 32 of them as
// 2 x 4 fragments of mma m16n8k16 (TF32: m16n8k8); k ascending, no split. Tiles of 64 bytes of k
// come by cp_async into a ring of four, three on their way; whatever is not 16 whole aligned bytes
// goes element by element.
#pragma once

#include "ops/gemm_library.h"
#include "ops/gemm_tiles.cuh"

namespace sinter::SINTER_KERNEL_NS {

inline constexpr int kMmaThreads = 128, kMmaStages = 4;

template <class T> struct MmaTiles {
  static constexpr int kDepth = 64 / static_cast<int>(sizeof(T));
  using Tile = OperandTile<T, kTile, kDepth, 8>;
  struct Stage {
    Tile a, b;
  };
  union {
    Stage stages[kMmaStages];
    SharedTile<float, kTile, kTile, 4> sums;
  };
};
using MmaShared = MmaTiles<bf16>;

// Four 8 x 8 matrices (outer x k) as fragments: A's quarters in the order (0, 0), (8, 0), (0, 8),
// (8, 8) of (outer, k); B's in the order (0, 0), (0, 8), (8, 0), (8, 8): two columns of fragments.
template <Layout kLayout, bool kIsA, class Side>
SINTER_DEVICE_FN Vec<uint32_t, 4> fragments(
    const Side& side, const MmaTiles<bf16>::Tile& tile, int outer, int k) {
  const int matrix = lane() / 8, row = lane() % 8;
  const int o = outer + (kIsA ? matrix % 2 : matrix / 2) * 8,
            p = k + (kIsA ? matrix / 2 : matrix % 2) * 8;
  return is_along_k<kLayout>(side) ? ldmatrix_x4(tile.along_k, o + row, p)
                                   : ldmatrix_x4_trans(tile.along_outer, p + row, o);
}

// TF32: four matrices of 8 x 4.
template <Layout kLayout, bool kIsA, class Side>
SINTER_DEVICE_FN Vec<uint32_t, 4> fragments(
    const Side& side, const MmaTiles<float>::Tile& tile, int outer, int k) {
  Vec<uint32_t, 4> f;
  SINTER_UNROLL
  for (int q = 0; q < 4; ++q) {
    const int o = outer + (kIsA ? q % 2 : q / 2) * 8 + lane() / 4,
              p = k + (kIsA ? q / 2 : q % 2) * 4 + lane() % 4;
    f.v[q] = to_tf32(is_along_k<kLayout>(side) ? tile.along_k(o, p) : tile.along_outer(p, o));
  }
  return f;
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

template <Layout kA, Layout kB, class T, class B, class A, class Epilogue>
SINTER_DEVICE_FN void mma_product(const Product<T, B, A>& product, const Epilogue& epilogue,
    const TileAt& tile = tile_of_block()) {
  constexpr int kDepth = MmaTiles<T>::kDepth, kMmaK = 32 / static_cast<int>(sizeof(T));
  auto& s = shared<MmaTiles<T>>();
  const int64_t row = tile.row * kTile, col = tile.col * kTile;
  const int my_row = warp() / 2 * 32, my_col = warp() % 2 * 32;
  Vec<float, 4> sums[2][4] = {};
  float row_sum = 0;
  const TileCopy<kA, T, typename MmaTiles<T>::Tile, kMmaThreads, A> copy_a(product.a, row);
  const TileCopy<kB, T, typename MmaTiles<T>::Tile, kMmaThreads, B> copy_b(product.b, col);
  const auto copy = [&](typename MmaTiles<T>::Stage& stage, int at) {
    copy_a(at, stage.a);
    copy_b(at, stage.b);
  };
  for_each_tile<kMmaStages, kDepth>(
      s.stages, static_cast<int>(product.a.k), copy, [&](const auto& stage) {
        SINTER_UNROLL
        for (int p = 0; p < kDepth; p += kMmaK) {
          Vec<uint32_t, 4> x[2], y[2];
          SINTER_UNROLL
          for (int i = 0; i < 2; ++i)
            x[i] = fragments<kA, true>(product.a, stage.a, my_row + i * 16, p);
          SINTER_UNROLL
          for (int j = 0; j < 2; ++j)
            y[j] = fragments<kB, false>(product.b, stage.b, my_col + j * 16, p);
          SINTER_UNROLL
          for (int i = 0; i < 2; ++i) {
            SINTER_UNROLL
            for (int j = 0; j < 4; ++j)
              mma_of<T>(sums[i][j], x[i],
                  Vec<uint32_t, 2>{{y[j / 2].v[j % 2 * 2], y[j / 2].v[j % 2 * 2 + 1]}});
          }
        }
        if constexpr (Epilogue::kSumsRows) {
          if (tile.col == 0 && thread_x() < kTile) {
            float part = 0;
            for (int p = 0; p < kDepth; ++p) {
              part = part + (is_along_k<kA>(product.a) ? float(stage.a.along_k(thread_x(), p))
                                                       : float(stage.a.along_outer(p, thread_x())));
            }
            row_sum = row_sum + part;
          }
        }
      });
  // A lane has columns 2t, 2t + 1 of rows g and g + 8 of each fragment: g = lane / 4, t = lane % 4.
  SINTER_UNROLL
  for (int i = 0; i < 2; ++i) {
    SINTER_UNROLL
    for (int j = 0; j < 4; ++j) {
      const int r = my_row + i * 16 + lane() / 4, c = my_col + j * 8 + lane() % 4 * 2;
      s.sums.store_vec(r, c, Vec<float, 2>{{sums[i][j].v[0], sums[i][j].v[1]}});
      s.sums.store_vec(r + 8, c, Vec<float, 2>{{sums[i][j].v[2], sums[i][j].v[3]}});
    }
  }
  block_sync();
  finish_tile<kTile>(product, tile, s.sums, epilogue);
  if constexpr (Epilogue::kSumsRows) {
    if (tile.col == 0 && thread_x() < kTile && row + thread_x() < product.a.outer)
      epilogue.row_sum(row + thread_x(), row_sum);
  }
}

}  // namespace sinter::SINTER_KERNEL_NS
