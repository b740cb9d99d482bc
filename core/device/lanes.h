// Vectors of the CPU's registers for kernels: as many numbers side by side as there is room for.
#pragma once

#include <cstdint>
#include <cstring>
#include <utility>

#if defined(__AVX__)
#include <immintrin.h>
#endif

#define SINTER_UNROLLED _Pragma("GCC unroll 16")

namespace sinter {

#if defined(__AVX512F__)
inline constexpr int kVectorBytes = 64;
#elif defined(__AVX__)
inline constexpr int kVectorBytes = 32;
#else
inline constexpr int kVectorBytes = 16;
#endif
// How many vectors, or tiles, n things take.
inline int64_t divide_up(int64_t n, int64_t by) { return (n + by - 1) / by; }

template <class V> inline constexpr int kLanesOf = kVectorBytes / int(sizeof(V));
template <class V, int kCount> struct VectorOf {
  typedef V type __attribute__((vector_size(kCount * sizeof(V)), may_alias));
};
template <class V, int kCount = kLanesOf<V>> using Lanes = typename VectorOf<V, kCount>::type;

template <int kCount = 0, class V> inline auto load(const V* p) {
  Lanes<V, kCount ? kCount : kLanesOf<V>> v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
template <class V, class Vec> inline void store(V* p, Vec v) { std::memcpy(p, &v, sizeof v); }

// All lanes x: x - 0 is x even for -0, of which 0 + x would make 0.
template <class V> inline Lanes<V> all(V x) { return x - Lanes<V>{}; }

// v, in a register: what several multiplications take GCC reads from memory once for each of them,
// and a core reads two numbers in the time of two multiplications.
template <class Vec> inline Vec held(Vec v) {
#if defined(__AVX512F__)
  asm("" : "+v"(v));
#elif defined(__x86_64__)
  asm("" : "+x"(v));
#endif
  return v;
}

// a b + c
inline Lanes<float> fma(Lanes<float> a, Lanes<float> b, Lanes<float> c) {
#if defined(__AVX512F__)
  return _mm512_fmadd_ps(a, b, c);
#elif defined(__FMA__)
  return _mm256_fmadd_ps(a, b, c);
#else
  return a * b + c;
#endif
}
inline Lanes<double> fma(Lanes<double> a, Lanes<double> b, Lanes<double> c) {
#if defined(__AVX512F__)
  return _mm512_fmadd_pd(a, b, c);
#elif defined(__FMA__)
  return _mm256_fmadd_pd(a, b, c);
#else
  return a * b + c;
#endif
}

// Turns squares of N vectors by N lanes, which lie side by side in the vectors, by swapping blocks
// of 1, 2, 4, .. lanes.
template <int D, class Vec, int N, int... J>
[[gnu::always_inline]] inline void swap_blocks(Vec (&v)[N], std::integer_sequence<int, J...>) {
  constexpr int n = sizeof...(J);
  SINTER_UNROLLED for (int i = 0; i < N; ++i) {
    if (i & D) continue;
    const Vec a = v[i], b = v[i + D];
    v[i] = __builtin_shufflevector(a, b, (J & D ? n + J - D : J)...);
    v[i + D] = __builtin_shufflevector(a, b, (J & D ? n + J : J + D)...);
  }
  if constexpr (2 * D < N) swap_blocks<2 * D>(v, std::integer_sequence<int, J...>());
}
template <class Vec, int N> [[gnu::always_inline]] inline void turn(Vec (&v)[N]) {
  swap_blocks<1>(v, std::make_integer_sequence<int, sizeof(Vec) / sizeof(v[0][0])>());
}

// Lanes kFrom.. of a with b behind it, as many as the sequence has.
template <int kFrom, class Vec, int... J>
[[gnu::always_inline]] inline auto lanes_from(Vec a, Vec b, std::integer_sequence<int, J...>) {
  return __builtin_shufflevector(a, b, (kFrom + J)...);
}
// One vector of two, and its halves.
template <class Vec> [[gnu::always_inline]] inline auto joined(Vec a, Vec b) {
  return lanes_from<0>(a, b, std::make_integer_sequence<int, 2 * sizeof(a) / sizeof(a[0])>());
}
template <class Vec> [[gnu::always_inline]] inline auto lower_half(Vec v) {
  return lanes_from<0>(v, v, std::make_integer_sequence<int, sizeof(v) / sizeof(v[0]) / 2>());
}
template <class Vec> [[gnu::always_inline]] inline auto upper_half(Vec v) {
  constexpr int half = sizeof(v) / sizeof(v[0]) / 2;
  return lanes_from<half>(v, v, std::make_integer_sequence<int, half>());
}

}  // namespace sinter
