// Images side by side: lane l of a vector belongs to image l. Vectors of them, and the way between
// images in memory and lanes: squares of as many vectors as they have lanes, turned. For the CPU
// kernels of convolutions (ops/image/fast/conv2d_lanes.h).
#pragma once

#include <cstring>
#include <utility>

#include "core/device/lanes.h"
#include "ops/image/fast/masked_lanes.h"
#include "ops/rows/row_loops.h"

namespace sinter::conv {

#if defined(__AVX512F__)
inline constexpr int kAccumulators = 28;
#else
inline constexpr int kAccumulators = 12;
#endif
inline constexpr int kVectorBytes = std::max(32, sinter::kVectorBytes);
template <class V> inline constexpr int kImages = kVectorBytes / static_cast<int>(sizeof(V));
// A vector of an E for each image: of the values, or of bytes beside them, where a maximum was.
template <class V, class E> using Vector = sinter::Lanes<E, kImages<V>>;
template <class V> using Lanes = Vector<V, V>;
template <class V> using Bytes = Vector<V, uint8_t>;
template <class V> Lanes<V> load_lanes(const V* p) { return *reinterpret_cast<const Lanes<V>*>(p); }
template <class V> void store_lanes(V* p, Lanes<V> v) { *reinterpret_cast<Lanes<V>*>(p) = v; }

template <class V> Lanes<V> broadcast(V x) { return x - Lanes<V>{}; }
template <class Vec> inline Vec multiply_add(Vec a, Vec b, Vec sum) {
  if constexpr (kVectorBytes == sinter::kVectorBytes) return fma(a, b, sum);
  return a * b + sum;
}

// Between values and bytes. (g++ 12 converts one lane after the other.)
template <class V> Lanes<V> lanes_of(Bytes<V> bytes) {
#if defined(__AVX512F__)
  if constexpr (std::is_same_v<V, float>)
    return Lanes<V>(
        _mm512_maskz_cvtepi32_ps(kAllLanes, _mm512_maskz_cvtepu8_epi32(kAllLanes, __m128i(bytes))));
#endif
  return __builtin_convertvector(bytes, Lanes<V>);
}
template <class V> Bytes<V> bytes_of(Lanes<V> v) {
#if defined(__AVX512F__)
  if constexpr (std::is_same_v<V, float>)
    return Bytes<V>(
        _mm512_maskz_cvtepi32_epi8(kAllLanes, _mm512_maskz_cvttps_epi32(kAllLanes, __m512(v))));
#endif
  return __builtin_convertvector(v, Bytes<V>);
}

template <class V> V sum_of_lanes(Lanes<V> v) {
  V sum = 0;
  for (int l = 0; l < kImages<V>; ++l) sum += v[l];
  return sum;
}

// v[0][i] = the lanes of v[i] summed, of as many vectors as they have lanes: turn()'s steps, but
// the two vectors of each are added.
template <int D, class V, int... J>
[[gnu::always_inline]] inline void add_blocks(
    Lanes<V> (&v)[kImages<V>], std::integer_sequence<int, J...>) {
  constexpr int n = kImages<V>;
#pragma GCC unroll 16
  for (int i = 0; i < n; i += 2 * D) {
    const Lanes<V> a = v[i], b = v[i + D];
    v[i] = __builtin_shufflevector(a, b, (J & D ? n + J - D : J)...) +
           __builtin_shufflevector(a, b, (J & D ? n + J : J + D)...);
  }
  if constexpr (2 * D < n) add_blocks<2 * D, V>(v, std::integer_sequence<int, J...>());
}

// The first `count` elements of x, zeros beyond them; E is T but for bf16.
template <class V, class E, class T>
[[gnu::always_inline]] inline Vector<V, E> load_part(const T* x, int64_t count) {
  constexpr int n = kImages<V>;
  Vector<V, E> v{};
  if constexpr (std::is_same_v<T, E>) {
    if (count >= n) {
      std::memcpy(&v, x, sizeof v);
      return v;
    }
  }
#if defined(__AVX512BW__) && defined(__AVX512VL__)
  if constexpr (std::is_same_v<E, float>) return Vector<V, E>(load_floats(x, first_lanes(count)));
  if constexpr (n == 16 && std::is_same_v<T, uint8_t>)
    return Vector<V, E>(_mm_maskz_loadu_epi8(first_lanes(count), x));
#endif
  for (int64_t j = 0; j < std::min<int64_t>(n, count); ++j) v[j] = E(x[j]);
  return v;
}
template <class V, class E, class T>
[[gnu::always_inline]] inline void store_part(T* x, Vector<V, E> v, int64_t count) {
  constexpr int n = kImages<V>;
  if constexpr (std::is_same_v<T, E>) {
    if (count >= n) {
      std::memcpy(x, &v, sizeof v);
      return;
    }
  }
#if defined(__AVX512BW__) && defined(__AVX512VL__)
  if constexpr (std::is_same_v<E, float>) return store_floats(x, first_lanes(count), __m512(v));
  if constexpr (n == 16 && std::is_same_v<T, uint8_t>)
    return _mm_mask_storeu_epi8(x, first_lanes(count), __m128i(v));
#endif
  for (int64_t j = 0; j < std::min<int64_t>(n, count); ++j) x[j] = T(v[j]);
}

// lanes[i][l] = load(l, i, width)[0], where load gives `width` elements of image l, zeros beyond
// them; zeros in lanes without an image.
template <class V, class E, class Load>
[[gnu::always_inline]] inline void load_to_lanes(
    int64_t images, int64_t count, E* lanes, const Load& load) {
  constexpr int64_t n = kImages<V>;
  for (int64_t i = 0; i < count; i += n) {
    const int64_t width = std::min(n, count - i);
    Vector<V, E> v[n] = {};
#pragma GCC unroll 16
    for (int64_t l = 0; l < n; ++l) {
      if (l < images) v[l] = load(l, i, width);
    }
    turn(v);
#pragma GCC unroll 16
    for (int64_t j = 0; j < n; ++j) {
      if (j < width) std::memcpy(lanes + (i + j) * n, &v[j], sizeof v[j]);
    }
  }
}
// lanes[i][l] = x[l * image_stride + i].
template <class V, class E, class T>
void to_lanes(const T* x, int64_t image_stride, int64_t images, int64_t count, E* lanes) {
  load_to_lanes<V>(images, count, lanes, [=](int64_t l, int64_t i, int64_t width) {
    return load_part<V, E>(x + l * image_stride + i, width);
  });
}
// x[l * image_stride + i] = lanes[i][l] of the images that there are.
template <class V, class E, class T>
void from_lanes(const E* lanes, int64_t count, T* x, int64_t image_stride, int64_t images) {
  constexpr int64_t n = kImages<V>;
  for (int64_t i = 0; i < count; i += n) {
    const int64_t width = std::min(n, count - i);
    Vector<V, E> v[n];
#pragma GCC unroll 16
    for (int64_t j = 0; j < n; ++j)
      std::memcpy(&v[j], lanes + (i + std::min(j, width - 1)) * n, sizeof v[j]);
    turn(v);
#pragma GCC unroll 16
    for (int64_t l = 0; l < n; ++l) {
      if (l < images) store_part<V, E>(x + l * image_stride + i, v[l], width);
    }
  }
}

// Compiled once, in conv2d.cpp.
#define SINTER_IMAGE_LANES(DO, T, V)                                           \
  DO template void to_lanes<V, V, T>(const T*, int64_t, int64_t, int64_t, V*); \
  DO template void from_lanes<V, V, T>(const V*, int64_t, T*, int64_t, int64_t)
SINTER_IMAGE_LANES(extern, float, float);
SINTER_IMAGE_LANES(extern, double, double);
SINTER_IMAGE_LANES(extern, bf16, float);

}  // namespace sinter::conv
