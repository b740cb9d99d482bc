#include "ops/product/cpu_product.h"

#include "core/device/lanes.h"

namespace sinter::product_detail {
namespace {

// Registers for 6 rows x kVectors accumulators, a row of the panel and a broadcast.
#if defined(__AVX512F__)
constexpr int kVectors = 4;
#else
constexpr int kVectors = 2;
#endif
constexpr int kLanes = kLanesOf<float>;
using Vec = Lanes<float>;

// R rows x V vectors.
template <int R, int V>
void tile_of(
    const float* a, int64_t a_row, int64_t a_step, const float* panel, int64_t k, float* c) {
  for (int64_t begin = 0; begin < k || begin == 0; begin += kChunk) {
    Vec sum[R][V] = {};
    const int64_t end = std::min(k, begin + kChunk);
    for (int64_t p = begin; p < end; ++p, a += a_step) {
      const Vec* row = reinterpret_cast<const Vec*>(panel + p * kCols);
      SINTER_UNROLLED for (int i = 0; i < R; ++i) {
        SINTER_UNROLLED for (int v = 0; v < V; ++v) sum[i][v] =
            fma(all(a[i * a_row]), row[v], sum[i][v]);
      }
    }
    SINTER_UNROLLED for (int i = 0; i < R; ++i) {
      Vec* out = reinterpret_cast<Vec*>(c + i * kCols);
      SINTER_UNROLLED for (int v = 0; v < V; ++v) out[v] = begin ? out[v] + sum[i][v] : sum[i][v];
    }
  }
}
template <int R>
void columns_of(const float* a, int64_t a_row, int64_t a_step, const float* panel, int cols,
    int64_t k, float* c) {
  for (; cols > 0; cols -= kVectors * kLanes, panel += kVectors * kLanes, c += kVectors * kLanes) {
    if (cols <= kLanes) {
      tile_of<R, 1>(a, a_row, a_step, panel, k, c);
    } else if (cols <= kLanes * kVectors / 2) {
      tile_of<R, kVectors / 2>(a, a_row, a_step, panel, k, c);
    } else {
      tile_of<R, kVectors>(a, a_row, a_step, panel, k, c);
    }
  }
}

}  // namespace

void tile(const float* a, int64_t a_row, int64_t a_step, int rows, const float* panel, int cols,
    int64_t k, float* c) {
  using Kernel = void (*)(const float*, int64_t, int64_t, const float*, int, int64_t, float*);
  static constexpr Kernel kKernels[kRows] = {
      columns_of<1>, columns_of<2>, columns_of<3>, columns_of<4>, columns_of<5>, columns_of<6>};
  kKernels[rows - 1](a, a_row, a_step, panel, cols, k, c);
}

void pack_panel(const Product& product, int64_t column, float* panel) {
  const int64_t n = std::min<int64_t>(kCols, product.n - column);
  for (int64_t p = 0; p < product.k; ++p, panel += kCols) {
    std::copy_n(product.b + p * product.ldb + column, n, panel);
    std::fill_n(panel + n, kCols - n, 0.0f);
  }
}

void pack_rows(const Product& product, int64_t begin, int64_t end, float* packed) {
  const int64_t tile = product.k * kRows,
                tail = end * kRows > product.m ? product.m - (end - 1) * kRows : 0;
  for (int64_t p = 0; p < product.k; ++p) {
    const float* from = product.a + begin * kRows + p * product.lda;
    float* to = packed + p * kRows;
    for (int64_t t = begin; t < end - (tail ? 1 : 0); ++t, from += kRows, to += tile)
      __builtin_memcpy(to, from, kRows * sizeof(float));
    std::copy_n(from, tail, to);
  }
}

}  // namespace sinter::product_detail
