// The f32 product of weight_grad_update: C = A^T B, handed out in tiles while they are in the L1
// cache, so that the optimizer's update happens there and C, the gradient, need not exist.
// Thread-safe; threads by parallel_for; sums do not depend on the number of threads.
#pragma once

#include <algorithm>

#include "core/parallel.h"
#include "ops/rows/row_loops.h"

namespace sinter {

// A is stored [k, m] with rows lda apart, B [k, n] with rows ldb apart.
struct Product {
  int64_t m = 0, n = 0, k = 0;
  const float* a = nullptr;
  int64_t lda = 0;
  const float* b = nullptr;
  int64_t ldb = 0;
};

namespace product_detail {

inline constexpr int kRows = 6,
                     kCols = 64;  // of a tile: 24 accumulators of 16 lanes where there are such
inline constexpr int64_t kChunk =
    64;  // terms summed in registers; sums of chunks are added in memory, which keeps rounding low

// c[rows][kCols] = rows of A (element (i, p) at a[i * a_row + p * a_step]) x the first `cols`
// columns of panel[k][kCols].
void tile(const float* a, int64_t a_row, int64_t a_step, int rows, const float* panel, int cols,
    int64_t k, float* c);
// panel[p][j] = B[p, column + j], zero beyond n.
void pack_panel(const Product& product, int64_t column, float* panel);
// packed[t][p][i] = A[t * kRows + i, p] for the row tiles begin <= t < end of a transposed A.
void pack_rows(const Product& product, int64_t begin, int64_t end, float* packed);

}  // namespace product_detail

// Measured on two cores with AVX-512: up to this many terms the tiles beat gemm() and a pass over
// its result; beyond, the library's product is the better one and the pass no longer counts.
inline constexpr int64_t kTileTerms = 64;

// done(i, j, rows, cols, c): c[r * kCols + q] is C[i + r, j + q] for r < rows <= 6, q < cols <= 64.
// Disjoint tiles; threads share out rows of C, so that a thread meets the same rows of a weight
// step after step. bytes: what done() moves per element of C. each(begin, end): once per thread, on
// disjoint ranges of rows that cover [0, m), for work that rides along.
template <class Done, class Each>
void for_product_tiles(const Product& product, int64_t bytes, const Done& done, const Each& each) {
  using namespace product_detail;
  // Panels of that many elements of B stay in the L2 cache while C's rows are made one after the
  // other.
  constexpr int64_t kStreamed = 1 << 16;
  const int64_t row_tiles = (product.m + kRows - 1) / kRows,
                panels = (product.n + kCols - 1) / kCols, k = product.k, panel_size = k * kCols,
                at_once = std::clamp<int64_t>(
                    kStreamed / std::max<int64_t>(1, panel_size), 1, std::max<int64_t>(1, panels));
  parallel_for(row_tiles, grain_of(panels * (k * 64 + kRows * kCols * bytes)),
      [&](int64_t begin, int64_t end) {
        each(begin * kRows, std::min(end * kRows, product.m));
        float* panel = thread_buffer<float, BufferFor::panel>(
            at_once * panel_size + kRows * kCols + (end - begin) * k * kRows);
        float *c = panel + at_once * panel_size, *packed = c + kRows * kCols;
        pack_rows(product, begin, end, packed);
        const auto one = [&](int64_t t, int64_t j, const float* of_b) {
          const int64_t i = t * kRows;
          const int rows = int(std::min<int64_t>(kRows, product.m - i)),
                    cols = int(std::min<int64_t>(kCols, product.n - j));
          tile(packed + (t - begin) * k * kRows, 1, kRows, rows, of_b, cols, k, c);
          done(i, j, rows, cols, c);
        };
        for (int64_t first = 0; first < panels; first += at_once) {
          const int64_t count = std::min(at_once, panels - first);
          for (int64_t p = 0; p < count; ++p)
            pack_panel(product, (first + p) * kCols, panel + p * panel_size);
          for (int64_t t = begin; t < end; ++t) {
            for (int64_t p = 0; p < count; ++p) one(t, (first + p) * kCols, panel + p * panel_size);
          }
        }
      });
}

}  // namespace sinter
