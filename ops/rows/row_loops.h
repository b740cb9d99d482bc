// Loops over rows and columns for the CPU kernels: tiles of kLanes rows side by side, and sums in a
// fixed order. Sums are split at fixed places, never by the number of threads, so they are the same
// from run to run.
#pragma once

#include <algorithm>
#include <limits>

#include "core/dtype.h"
#include "core/math.h"
#include "core/parallel.h"
#include "core/thread_buffer.h"

namespace sinter {

// tile[c * kLanes + l] is column c of row l: a loop over l is one vector, however short the rows
// are.
inline constexpr int64_t kLanes = 16;

// Lanes beyond `rows` get zeros. Column by column: the rows are then kLanes streams, and the tile
// is written in order.
template <class T, class V>
void load_tile(const T* x, int64_t rows, int64_t cols, V* __restrict tile) {
  if (rows == kLanes) {
    for (int64_t c = 0; c < cols; ++c) {
      for (int64_t l = 0; l < kLanes; ++l) tile[c * kLanes + l] = V(x[l * cols + c]);
    }
  } else {
    for (int64_t c = 0; c < cols; ++c) {
      for (int64_t l = 0; l < kLanes; ++l)
        tile[c * kLanes + l] = l < rows ? V(x[l * cols + c]) : V(0);
    }
  }
}
template <class T, class V>
void store_tile(const V* tile, int64_t rows, int64_t cols, T* __restrict x) {
  for (int64_t c = 0; c < cols; ++c) {
    for (int64_t l = 0; l < rows; ++l) x[l * cols + c] = T(tile[c * kLanes + l]);
  }
}

// f(first row, rows <= kLanes) for tiles of all rows, on all threads. row_bytes: about the work of
// one row, as in grain_of.
template <class F> void for_row_tiles(int64_t rows, int64_t row_bytes, F&& f) {
  parallel_for(
      (rows + kLanes - 1) / kLanes, grain_of(row_bytes * kLanes), [&](int64_t begin, int64_t end) {
        for (int64_t t = begin; t < end; ++t) f(t * kLanes, std::min(kLanes, rows - t * kLanes));
      });
}

// m[l] = the maximum of row l; NaN if the row holds one.
template <class V> inline void tile_max(const V* tile, int64_t cols, V* m) {
  for (int64_t l = 0; l < kLanes; ++l) m[l] = -std::numeric_limits<V>::infinity();
  for (int64_t c = 0; c < cols; ++c) {
    for (int64_t l = 0; l < kLanes; ++l) {
      const V v = tile[c * kLanes + l];
      m[l] = v > m[l] || v != v ? v : m[l];
    }
  }
}

// s[l] = sum over c of f(c, l), in blocks of 32 columns.
template <class V, class F> inline void tile_sum(int64_t cols, V* s, F&& f) {
  for (int64_t l = 0; l < kLanes; ++l) s[l] = 0;
  for (int64_t c0 = 0; c0 < cols; c0 += 32) {
    alignas(64) V part[kLanes] = {};
    for (int64_t c = c0; c < std::min(c0 + 32, cols); ++c) {
      for (int64_t l = 0; l < kLanes; ++l) part[l] += f(c, l);
    }
    for (int64_t l = 0; l < kLanes; ++l) s[l] += part[l];
  }
}

// Each row of a tile becomes (x - mean) rstd weight + bias, rstd = 1 / sqrt(variance + eps). The
// variance takes a second pass, so that nothing cancels.
template <class V, class T>
inline void normalise_tile(V* __restrict tile, int64_t cols, V eps, const T* weight, const T* bias,
    V* __restrict mean, V* __restrict rstd) {
  const V n = V(cols);
  tile_sum(cols, mean, [&](int64_t c, int64_t l) { return tile[c * kLanes + l]; });
  for (int64_t l = 0; l < kLanes; ++l) mean[l] /= n;
  tile_sum(cols, rstd, [&](int64_t c, int64_t l) {
    const V centred = tile[c * kLanes + l] - mean[l];
    return centred * centred;
  });
  for (int64_t l = 0; l < kLanes; ++l) rstd[l] = V(1) / math::sqrt(rstd[l] / n + eps);
  for (int64_t c = 0; c < cols; ++c) {
    const V w = V(weight[c]), b = V(bias[c]);
    for (int64_t l = 0; l < kLanes; ++l)
      tile[c * kLanes + l] = (tile[c * kLanes + l] - mean[l]) * rstd[l] * w + b;
  }
}

// The sum of f(x[i]): kLanes running sums over pieces of at most 2048, pieces pairwise.
template <class V, class T, class F> V row_sum(const T* x, int64_t n, F&& f) {
  if (n > 2048) {
    const int64_t half = (n / 2 + 2047) / 2048 * 2048;
    return row_sum<V>(x, half, f) + row_sum<V>(x + half, n - half, f);
  }
  alignas(64) V part[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int64_t l = 0; l < kLanes; ++l) part[l] += f(V(x[i + l]));
  }
  for (int64_t l = 0; i + l < n; ++l) part[l] += f(V(x[i + l]));
  for (int64_t width = kLanes / 2; width > 0; width /= 2) {
    for (int64_t l = 0; l < width; ++l) part[l] += part[l + width];
  }
  return part[0];
}

// sums[c] = sum over r of x[r * stride + c]: 8 rows as a tree, blocks of 256 rows apart, so the
// error grows as rows / 256.
template <class V, class T>
void column_sums(const T* x, int64_t rows, int64_t stride, int64_t cols, V* sums) {
  constexpr int64_t kCols = 256;
  for (int64_t c0 = 0; c0 < cols; c0 += kCols) {
    const int64_t n = std::min(kCols, cols - c0);
    alignas(64) V part[kCols];
    std::fill_n(sums + c0, n, V(0));
    for (int64_t r0 = 0; r0 < rows; r0 += 256) {
      const int64_t end = std::min(rows, r0 + 256);
      std::fill_n(part, n, V(0));
      int64_t r = r0;
      for (; r + 8 <= end; r += 8) {
        const T* p = x + r * stride + c0;
        for (int64_t c = 0; c < n; ++c) {
          const auto at = [&](int64_t i) { return V(p[i * stride + c]); };
          part[c] += ((at(0) + at(1)) + (at(2) + at(3))) + ((at(4) + at(5)) + (at(6) + at(7)));
        }
      }
      for (; r < end; ++r) {
        const T* p = x + r * stride + c0;
        for (int64_t c = 0; c < n; ++c) part[c] += V(p[c]);
      }
      for (int64_t c = 0; c < n; ++c) sums[c0 + c] += part[c];
    }
  }
}
// Compiled once, in sum_rows.cpp.
#define SINTER_COLUMN_SUMS(DO, V, T) \
  DO template void column_sums(const T*, int64_t, int64_t, int64_t, V*)
SINTER_COLUMN_SUMS(extern, float, float);
SINTER_COLUMN_SUMS(extern, double, double);
SINTER_COLUMN_SUMS(extern, float, bf16);

}  // namespace sinter
