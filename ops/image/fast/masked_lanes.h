// The lanes in a mask of a vector of 16 floats, from and to memory of f32 or bf16, by AVX-512.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/dtype.h"

#if defined(__AVX512F__)
#include <immintrin.h>

namespace sinter {

// The first n lanes of a vector of floats: none below 0, all from 16 on.
inline __mmask16 first_lanes(int64_t n) {
  return static_cast<__mmask16>((1u << std::clamp<int64_t>(n, 0, 16)) - 1);
}
// g++ 12 warns of many intrinsics without a mask (its bug 105593).
inline constexpr __mmask16 kAllLanes = 0xffff;

#if defined(__AVX512BW__) && defined(__AVX512VL__)
inline __m512 load_floats(const float* x, __mmask16 m) { return _mm512_maskz_loadu_ps(m, x); }
inline __m512 load_floats(const bf16* x, __mmask16 m) {
  const __m512i bits = _mm512_maskz_cvtepu16_epi32(m, _mm256_maskz_loadu_epi16(m, x));
  return _mm512_castsi512_ps(_mm512_maskz_slli_epi32(kAllLanes, bits, 16));
}
inline void store_floats(float* x, __mmask16 m, __m512 v) { _mm512_mask_storeu_ps(x, m, v); }
// Rounds as bf16 does.
inline void store_floats(bf16* x, __mmask16 m, __m512 v) {
  const __m512i bits = _mm512_castps_si512(v);
  const __m512i odd =
      _mm512_and_si512(_mm512_maskz_srli_epi32(kAllLanes, bits, 16), _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
  const __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
  const __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
  const __m512i result =
      _mm512_maskz_srli_epi32(kAllLanes, _mm512_mask_mov_epi32(rounded, nan, quiet), 16);
  _mm512_mask_cvtepi32_storeu_epi16(x, m, result);
}
#endif

}  // namespace sinter

#endif
