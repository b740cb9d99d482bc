// What the CPU's kernels of attention share: heads of any strides, the memory of a task, and e^x.
#pragma once

#include <algorithm>
#include <array>
#include <limits>
#include <type_traits>

#include "core/device/lanes.h"
#include "core/thread_buffer.h"
#include "ops/attention/attention.h"

namespace sinter::on_cpu {

// As math::exp, which is of one number: but fused, and 0 in place of a denormal.
inline Lanes<float> exp_of(Lanes<float> x) {
  using V = Lanes<float>;
  typedef int32_t Bits __attribute__((vector_size(kVectorBytes)));
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: the sum's low bits are the nearest integer
  const V shifted = fma(x, all(math::kLog2e), all(kRound)), n = shifted - kRound;
  const V r = fma(n, all(-math::kLn2Low), fma(n, all(-math::kLn2High), x));
  V q = fma(r, all(0.001382011f), all(0.008368685f));
  q = fma(r, q, all(0.041668274f));
  q = fma(r, q, all(0.16666521f));
  q = fma(r, q, all(0.49999994f));
  const V power = fma(r * r, q, r) + 1.0f;
  V y = (V)((Bits)power + ((Bits)shifted << 23));
  y = x < -87.0f ? V{} : y;
  return x <= 88.0f ? y : x * std::numeric_limits<float>::infinity();  // of NaN a NaN
}
inline Lanes<double> exp_of(Lanes<double> x) {
  for (int l = 0; l < kLanesOf<double>; ++l) x[l] = math::exp(x[l]);
  return x;
}

// [B, H, S, D] of any strides.
template <class T> struct Heads {
  T* data;
  Strides strides;
  explicit Heads(const Tensor& t) : data(t.data<std::remove_const_t<T>>()), strides(t.strides()) {}
  explicit Heads(const HeadsOfResult& r) : data(r.in.data<T>() + r.begin), strides(r.strides) {}
  T* at(int64_t b, int64_t h, int64_t r) const {
    return data + b * strides[0] + h * strides[1] + r * strides[2];
  }
};

inline int64_t round_up(int64_t n, int64_t by) { return (n + by - 1) / by * by; }

// What a thread works in: pieces of these sizes, each from a line of the cache on.
template <class V, size_t N> std::array<V*, N> pieces_of(const int64_t (&sizes)[N]) {
  std::array<V*, N> pieces;
  int64_t all = 0;
  for (const int64_t n : sizes) all += round_up(n, 64);
  V* next = thread_buffer<V, BufferFor::kernel>(all);
  for (size_t i = 0; i < N; next += round_up(sizes[i++], 64)) pieces[i] = next;
  return pieces;
}

// Numbers of a row that are read, or turned with those of other rows, at once.
template <class V> inline constexpr int kSquare = std::min(4, kLanesOf<V>);
template <class V> using Quad = Lanes<V, kSquare<V>>;

// `there` of them, and 0 behind.
template <class V, class T>
[[gnu::always_inline]] inline Quad<V> part_of(const T* p, int64_t column, int64_t there) {
  if constexpr (std::is_same_v<T, V>) {
    if (column == 1 && there >= kSquare<V>) return load<kSquare<V>>(p);
  }
  Quad<V> v{};
  for (int i = 0; i < std::min<int64_t>(there, kSquare<V>); ++i) v[i] = V(p[i * column]);
  return v;
}

// Short sequences (ops/attention/fast/attention_short.cpp). Their sums have another order, so which
// kernel is taken must not depend on the number of threads.
bool attention_is_short(const AttentionSizes& n);
void attention_short(const Call& call);
void attention_short_backward(const Call& call);

}  // namespace sinter::on_cpu
