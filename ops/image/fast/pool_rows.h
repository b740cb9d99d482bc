// The common pooling, windows of 2 x 2 side by side, with AVX-512: a row of outputs from two rows
// of inputs, 16 outputs at a time, rows of any length by masks (those of lenet have 14 and 5). The
// formulas and the order of their sums are those of the loops in ops/image/pool.cpp.
#pragma once

#include "ops/image/fast/masked_lanes.h"
#include "ops/image/pool.h"

#if defined(__AVX512BW__) && defined(__AVX512VL__)

namespace sinter::pool_rows {

template <class T> inline constexpr bool kTakes = !std::is_same_v<T, double>;

// 0, 0, 1, 1, .. 7, 7: each of 8 values in two lanes.
inline __m512i twice() { return _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7); }

// Elements 0, 2, .., 30 and 1, 3, .., 31.
struct Pairs {
  __m512 even, odd;
};
template <class T> inline Pairs load_pairs(const T* x, int64_t pairs) {
  const __m512 a = load_floats(x, first_lanes(2 * pairs)),
               b = load_floats(x + 16, first_lanes(2 * pairs - 16));
  const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  const __m512i odd = _mm512_or_si512(even, _mm512_set1_epi32(1));
  return {_mm512_permutex2var_ps(a, even, b), _mm512_permutex2var_ps(a, odd, b)};
}

// beats() of ops/image/pool.h.
inline __mmask16 beats(__m512 v, __m512 best) {
  return _mm512_cmp_ps_mask(v, best, _CMP_GT_OQ) | _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
}

// y[q] and its place from x[2q], x[2q + 1] and the same of the row below.
template <class T>
inline void max_row(const T* x, const T* below, T* y, uint8_t* index, int64_t n, bool relu) {
  for (int64_t q = 0; q < n; q += 16) {
    const __mmask16 m = first_lanes(n - q);
    const Pairs top = load_pairs(x + 2 * q, n - q), bottom = load_pairs(below + 2 * q, n - q);
    const __mmask16 right = beats(top.odd, top.even), low_right = beats(bottom.odd, bottom.even);
    const __m512 best = _mm512_mask_mov_ps(top.even, right, top.odd);
    const __m512 low = _mm512_mask_mov_ps(bottom.even, low_right, bottom.odd);
    const __mmask16 down = beats(low, best);
    const __m512i high_place = _mm512_maskz_set1_epi32(right, 1);
    const __m512i low_place = _mm512_mask_set1_epi32(_mm512_set1_epi32(2), low_right, 3);
    const __m512 most = _mm512_mask_mov_ps(best, down, low), zero = _mm512_setzero_ps();
    const __m512i place = _mm512_mask_mov_epi32(high_place, down, low_place);
    const __mmask16 nothing = relu ? _mm512_cmp_ps_mask(most, zero, _CMP_LE_OQ) : __mmask16(0);
    store_floats(y + q, m, _mm512_mask_mov_ps(most, nothing, zero));
    _mm512_mask_cvtepi32_storeu_epi8(
        index + q, m, _mm512_mask_set1_epi32(place, nothing, kNoPlace));
  }
}
template <class T> inline void avg_row(const T* x, const T* below, T* y, int64_t n) {
  for (int64_t q = 0; q < n; q += 16) {
    const Pairs top = load_pairs(x + 2 * q, n - q), bottom = load_pairs(below + 2 * q, n - q);
    const __m512 three = _mm512_add_ps(_mm512_add_ps(top.even, top.odd), bottom.even);
    const __m512 sum = _mm512_add_ps(three, bottom.odd);
    store_floats(y + q, first_lanes(n - q), _mm512_mul_ps(sum, _mm512_set1_ps(0.25f)));
  }
}

// The 8 values from x on, each in two lanes. Plus zero, as the first term of a sum: -0 becomes 0.
template <class T> inline __m512 load_twice(const T* x, int64_t n) {
  const __m512 v =
      _mm512_add_ps(load_floats(x, first_lanes(std::min<int64_t>(8, n))), _mm512_setzero_ps());
  return _mm512_maskz_permutexvar_ps(kAllLanes, twice(), v);
}
template <class T>
inline void max_backward_row(const T* dy, const uint8_t* index, T* dx, T* below, int64_t n) {
  const __m512i place = _mm512_setr_epi32(0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1);
  const __m512i low_place = _mm512_or_si512(place, _mm512_set1_epi32(2));
  for (int64_t q = 0; q < n; q += 8) {
    const __mmask16 lanes = first_lanes(2 * (n - q));
    const __mmask16 eight = first_lanes(std::min<int64_t>(8, n - q));
    const __m512i places =
        _mm512_maskz_cvtepu8_epi32(eight, _mm_maskz_loadu_epi8(eight, index + q));
    const __m512i k = _mm512_maskz_permutexvar_epi32(kAllLanes, twice(), places);
    const __m512 g = load_twice(dy + q, n - q);
    store_floats(dx + 2 * q, lanes, _mm512_maskz_mov_ps(_mm512_cmpeq_epi32_mask(k, place), g));
    store_floats(
        below + 2 * q, lanes, _mm512_maskz_mov_ps(_mm512_cmpeq_epi32_mask(k, low_place), g));
  }
}
template <class T> inline void avg_backward_row(const T* dy, T* dx, T* below, int64_t n) {
  for (int64_t q = 0; q < n; q += 8) {
    const __m512 quarter = _mm512_mul_ps(load_twice(dy + q, n - q), _mm512_set1_ps(0.25f));
    store_floats(dx + 2 * q, first_lanes(2 * (n - q)), quarter);
    store_floats(below + 2 * q, first_lanes(2 * (n - q)), quarter);
  }
}

}  // namespace sinter::pool_rows

#else

namespace sinter::pool_rows {
template <class T> inline constexpr bool kTakes = false;
template <class T> void max_row(const T*, const T*, T*, uint8_t*, int64_t, bool);
template <class T> void avg_row(const T*, const T*, T*, int64_t);
template <class T> void max_backward_row(const T*, const uint8_t*, T*, T*, int64_t);
template <class T> void avg_backward_row(const T*, T*, T*, int64_t);
}  // namespace sinter::pool_rows

#endif
