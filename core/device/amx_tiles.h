// The instructions of AMX as products of bf16 take them: of matrices, and of convolutions
// (ops/image/fast/conv2d_amx.h).
#pragma once

#include "core/device/lanes.h"
#include "core/dtype.h"

#if defined(__AMX_BF16__) && defined(__AVX512BF16__)

#define SINTER_AMX 1
#include <sys/syscall.h>
#include <unistd.h>

namespace sinter::amx {

// Linux lets a process use these registers once it has asked for them. (A test says no.)
inline bool& available() {
  constexpr int kRequestPermission = 0x1023, kTileData = 18;
  static bool granted = syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  return granted;
}

// A row of a tile, 64 bytes: 16 floats, or 16 pairs of bf16.
inline constexpr int64_t kRow = 16;
using Row = Lanes<float>;
inline Row load_row(const float* from) { return load(from); }

// While it lives, this thread has tiles 0..3 for C, of m rows, 4 on for A, `of_a` of m rows and k
// pairs, and the others for B, of k rows. What was packed before is in memory by then.
class Tiles {
 public:
  Tiles(int64_t m, int64_t k, int of_a = 1) {
    struct Config {
      uint8_t palette = 1, unused[15] = {};
      uint16_t bytes[16] = {};
      uint8_t rows[16] = {};
    } config;
    for (int t = 0; t < 8; ++t) {
      const bool is_b = t >= 4 + of_a;
      config.bytes[t] = static_cast<uint16_t>(t >= 4 && !is_b ? 4 * k : 64);
      config.rows[t] = static_cast<uint8_t>(is_b ? k : m);
    }
    asm volatile("ldtilecfg %0" : : "m"(config) : "memory");
  }
  ~Tiles() { _tile_release(); }
  Tiles(const Tiles&) = delete;
  Tiles& operator=(const Tiles&) = delete;
};

// Four tiles of C from, and to, memory; `stride` counts floats between rows.
inline void load_sums(const float* const (&from)[4], int64_t stride) {
  _tile_loadd(0, from[0], stride * 4);
  _tile_loadd(1, from[1], stride * 4);
  _tile_loadd(2, from[2], stride * 4);
  _tile_loadd(3, from[3], stride * 4);
}
inline void store_sums(float* const (&to)[4], int64_t stride) {
  _tile_stored(0, to[0], stride * 4);
  _tile_stored(1, to[1], stride * 4);
  _tile_stored(2, to[2], stride * 4);
  _tile_stored(3, to[3], stride * 4);
}
// C of each of the four += A B, where B is at b + offset[i].
inline void multiply(const bf16* a, int64_t stride, const bf16* b, const int64_t (&offset)[4]) {
  _tile_loadd(4, a, stride * 2);
  _tile_loadd(5, b + offset[0], 64);
  _tile_dpbf16ps(0, 4, 5);
  _tile_loadd(6, b + offset[1], 64);
  _tile_dpbf16ps(1, 4, 6);
  _tile_loadd(7, b + offset[2], 64);
  _tile_dpbf16ps(2, 4, 7);
  _tile_loadd(5, b + offset[3], 64);
  _tile_dpbf16ps(3, 4, 5);
}

// Vectors of floats that are bf16 values, as bf16: a's, then b's.
inline Row pack(Row a, Row b) { return Row(_mm512_cvtne2ps_pbh(__m512(b), __m512(a))); }
// And as pairs of each lane's two.
inline Row pack_pairs(Row a, Row b) {
  const __m512i low = _mm512_maskz_srli_epi32(0xffff, _mm512_castps_si512(__m512(a)), 16);
  const __m512i high = _mm512_and_si512(
      _mm512_castps_si512(__m512(b)), _mm512_set1_epi32(static_cast<int>(0xffff0000)));
  return Row(_mm512_castsi512_ps(_mm512_or_si512(low, high)));
}

}  // namespace sinter::amx

#endif
