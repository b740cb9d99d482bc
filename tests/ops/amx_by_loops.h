// The tiles of core/device/amx_tiles.h by plain loops, as Intel's manual has them, for machines
// without AMX: what is tested by them is which elements the products of
// ops/image/fast/conv2d_amx.h pack, read and store.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "core/dtype.h"

#define SINTER_AMX 1

namespace sinter::amx {

inline constexpr int64_t kRow = 16;
typedef float Row __attribute__((vector_size(64), may_alias));
inline Row load_row(const float* from) {
  Row row;
  std::memcpy(&row, from, sizeof row);
  return row;
}

// C, of m rows; A has as many, of k pairs, and B k rows of 16 pairs.
struct Registers {
  int64_t m = 0, k = 0;
  float c[4][16][16];
};
inline Registers registers;

class Tiles {
 public:
  Tiles(int64_t m, int64_t k) {
    EXPECT_TRUE(m >= 1 && m <= 16 && k >= 1 && k <= 16) << m << " rows, " << k << " pairs";
    registers.m = m;
    registers.k = k;
  }
  ~Tiles() { registers = {}; }
};
inline void load_sums(const float* const (&from)[4], int64_t stride) {
  for (int t = 0; t < 4; ++t)
    for (int64_t i = 0; i < registers.m; ++i)
      std::copy_n(from[t] + i * stride, 16, registers.c[t][i]);
}
inline void store_sums(float* const (&to)[4], int64_t stride) {
  for (int t = 0; t < 4; ++t)
    for (int64_t i = 0; i < registers.m; ++i)
      std::copy_n(registers.c[t][i], 16, to[t] + i * stride);
}
inline void multiply(const bf16* a, int64_t stride, const bf16* b, const int64_t (&offset)[4]) {
  for (int t = 0; t < 4; ++t)
    for (int64_t i = 0; i < registers.m; ++i)
      for (int64_t j = 0; j < 16; ++j)
        for (int64_t e = 0; e < 2 * registers.k; ++e)
          registers.c[t][i][j] +=
              float(a[i * stride + e]) * float(b[offset[t] + e / 2 * 32 + 2 * j + e % 2]);
}

inline Row row_of(const bf16 (&values)[32]) {
  Row row;
  std::memcpy(&row, values, sizeof row);
  return row;
}
inline Row pack(Row a, Row b) {
  bf16 values[32];
  for (int i = 0; i < 32; ++i) values[i] = bf16(i < 16 ? a[i] : b[i - 16]);
  return row_of(values);
}
inline Row pack_pairs(Row a, Row b) {
  bf16 values[32];
  for (int i = 0; i < 32; ++i) values[i] = bf16(i % 2 ? b[i / 2] : a[i / 2]);
  return row_of(values);
}

}  // namespace sinter::amx
