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

// f(first row, rows <= kLanes) for tiles of all rows, on all threads. row_bytes: about the work of
// one row, as in grain_of.
template <class F> void for_row_tiles(int64_t rows, int64_t row_bytes, F&& f) {
  parallel_for(
      (rows + kLanes - 1) / kLanes, grain_of(row_bytes * kLanes), [&](int64_t begin, int64_t end) {
        for (int64_t t = begin; t < end; ++t) f(t * kLanes, std::min(kLanes, rows - t * kLanes));
      });
}

// The sum of f(i), first <= i < first + n: kLanes running sums over pieces of at most 2048, pieces
// pairwise.
template <class V, class F> V row_sum(int64_t n, const F& f, int64_t first = 0) {
  if (n > 2048) {
    const int64_t half = (n / 2 + 2047) / 2048 * 2048;
    return row_sum<V>(half, f, first) + row_sum<V>(n - half, f, first + half);
  }
  alignas(64) V part[kLanes] = {};
  const int64_t end = first + n;
  int64_t i = first;
  for (; i + kLanes <= end; i += kLanes) {
    for (int64_t l = 0; l < kLanes; ++l) part[l] += f(i + l);
  }
  for (int64_t l = 0; i + l < end; ++l) part[l] += f(i + l);
  for (int64_t width = kLanes / 2; width > 0; width /= 2) {
    for (int64_t l = 0; l < width; ++l) part[l] += part[l + width];
  }
  return part[0];
}

// f(first column, columns) for all columns, on all threads: whole cache lines of sums for each.
// column_bytes: about the work of one column, as in grain_of.
template <class F> void for_columns(int64_t cols, int64_t column_bytes, F&& f) {
  parallel_for((cols + kLanes - 1) / kLanes, grain_of(column_bytes * kLanes),
      [&](int64_t begin, int64_t end) {
        f(begin * kLanes, std::min(end * kLanes, cols) - begin * kLanes);
      });
}

// sums[c] = sum over r of term(r, c): 8 rows as a tree, blocks of 256 rows apart. Several blocks
// are added in f64, so the error does not grow with their number.
template <class V, class F>
void column_sums_of(int64_t rows, int64_t cols, const F& term, V* sums) {
  constexpr int64_t kCols = 256;
  for (int64_t c0 = 0; c0 < cols; c0 += kCols) {
    const int64_t n = std::min(kCols, cols - c0);
    alignas(64) V part[kCols] = {};
    alignas(64) double total[kCols] = {};
    for (int64_t r0 = 0; r0 < rows; r0 += 256) {
      const int64_t end = std::min(rows, r0 + 256);
      std::fill_n(part, n, V(0));
      int64_t r = r0;
      for (; r + 8 <= end; r += 8) {
        for (int64_t c = 0; c < n; ++c) {
          const auto at = [&](int64_t i) { return term(r + i, c0 + c); };
          part[c] += ((at(0) + at(1)) + (at(2) + at(3))) + ((at(4) + at(5)) + (at(6) + at(7)));
        }
      }
      for (; r < end; ++r) {
        for (int64_t c = 0; c < n; ++c) part[c] += term(r, c0 + c);
      }
      for (int64_t c = 0; c < n && rows > 256; ++c) total[c] += double(part[c]);
    }
    for (int64_t c = 0; c < n; ++c) sums[c0 + c] = rows > 256 ? V(total[c]) : part[c];
  }
}
// Of x[r * stride + c].
template <class V, class T>
void column_sums(const T* x, int64_t rows, int64_t stride, int64_t cols, V* sums) {
  column_sums_of(
      rows, cols, [&](int64_t r, int64_t c) { return V(x[r * stride + c]); }, sums);
}
// Of dense rows, on all threads. By columns even where there is one: the same bits for any number.
template <class V, class T> void sum_columns(const T* x, int64_t rows, int64_t cols, V* sums) {
  for_columns(cols, rows * int64_t(sizeof(T)), [&](int64_t first, int64_t width) {
    column_sums<V>(x + first, rows, cols, width, sums + first);
  });
}
// Compiled once, in reduce.cpp.
#define SINTER_COLUMN_SUMS(DO, V, T) \
  DO template void column_sums(const T*, int64_t, int64_t, int64_t, V*)
SINTER_COLUMN_SUMS(extern, float, float);
SINTER_COLUMN_SUMS(extern, double, double);
SINTER_COLUMN_SUMS(extern, float, bf16);

}  // namespace sinter
