// Kernels of ops that go element by element: out[i] = f(in[i]..) for a functor f, over dense or
// strided operands. Included by .cu files only. A functor takes stored values and gives a Vec of
// kOutputs stored results: f(x..)[o] is element i of output o.
//
//   launch_pointwise<float, uint8_t, float>(f, y, {&condition, &x});   // y of float from u8, f32
#pragma once

#include <algorithm>
#include <utility>

#include "ops/kernel_args.h"
#include "ops/pointwise/pointwise_loops.h"

namespace sinter::SINTER_KERNEL_NS {

// Items are spread over the threads of at most one full wave (8 blocks on each of 132
// multiprocessors); a thread takes every item_step()-th.
inline constexpr int kItemBlock = 256;
inline Grid item_grid(int64_t items) {
  return {std::clamp<int64_t>(blocks_for(items, kItemBlock), 1, 1056)};
}
SINTER_DEVICE_FN int64_t first_item() { return block_x() * threads_per_block() + thread_x(); }
SINTER_DEVICE_FN int64_t item_step() { return grid_x() * threads_per_block(); }

// May it be read or written as Vec<T, N>?
template <class T, int N> bool is_aligned(const Tensor& t) {
  return reinterpret_cast<uintptr_t>(t.raw()) % (sizeof(T) * N) == 0;
}

// Strides of N operands over the merged dims of a LoopPlan, the innermost dim last.
template <int N> struct Walk {
  int rank;
  int64_t size[kMaxRank], stride[kMaxRank][N];
  explicit Walk(const LoopPlan& plan) : rank(plan.rank), size(), stride() {
    for (int d = 0; d < rank; ++d) {
      size[d] = plan.size[d];
      for (int n = 0; n < N; ++n) stride[d][n] = n < plan.operands ? plan.stride[n][d] : 0;
    }
  }
};
template <int N> struct Offsets {
  int64_t v[N];
};
// Of element i, counted row-major.
template <int N> SINTER_DEVICE_FN Offsets<N> offsets_of(const Walk<N>& walk, int64_t i) {
  Offsets<N> at{};
  uint64_t rest = static_cast<uint64_t>(i);
  SINTER_NO_UNROLL
  for (int d = walk.rank - 1; d > 0; --d) {
    const uint64_t size = static_cast<uint64_t>(walk.size[d]), above = rest / size;
    SINTER_UNROLL
    for (int n = 0; n < N; ++n)
      at.v[n] += static_cast<int64_t>(rest - above * size) * walk.stride[d][n];
    rest = above;
  }
  SINTER_UNROLL
  for (int n = 0; n < N; ++n) at.v[n] += static_cast<int64_t>(rest) * walk.stride[0][n];
  return at;
}

template <int N, class F, class T, class... X>
SINTER_DEVICE_FN void put_vec(
    const F& f, int64_t i, const Out<T>& y, const Out<T>& z, const Vec<X, N>&... x) {
  Vec<T, N> first, second;
  SINTER_UNROLL
  for (int k = 0; k < N; ++k) {
    const auto result = f(x[k]...);
    first[k] = result[0];
    if constexpr (F::kOutputs == 2) second[k] = result[1];
  }
  y.store_vec(i, first);
  if constexpr (F::kOutputs == 2) z.store_vec(i, second);
}
template <class F, class T, class... X>
SINTER_DEVICE_FN void put_one(const F& f, int64_t i, const Out<T>& y, const Out<T>& z, X... x) {
  const auto result = f(x...);
  y.put(i, result[0]);
  if constexpr (F::kOutputs == 2) z.put(i, result[1]);
}

// All operands dense. A thread owns N elements of each, 16 bytes of the widest type; the last n % N
// go one by one. Reads every input once, writes every output once.
template <class F, int N, class T, class... X>
SINTER_KERNEL pointwise_vec(F f, int64_t n, Out<T> y, Out<T> z, In<X>... in) {
  for (int64_t i = first_item() * N; i + N <= n; i += item_step() * N)
    put_vec<N>(f, i, y, z, in.template load_vec<N>(i)...);
  SINTER_NO_UNROLL
  for (int64_t i = n / N * N + first_item(); i < n; i += item_step()) put_one(f, i, y, z, in[i]...);
}

// Inputs of any strides (broadcast: 0), the output dense. A thread owns one element.
template <class F, class T, class... X>
SINTER_KERNEL_BOUNDS(kItemBlock)
pointwise_strided(F f, int64_t n, const Walk<sizeof...(X)> walk, Out<T> y, In<X>... in) {
  SINTER_NO_UNROLL
  for (int64_t i = first_item(); i < n; i += item_step()) {
    const auto at = offsets_of(walk, i);
    [&]<size_t... I>(std::index_sequence<I...>) { y.put(i, f(in[at.v[I]]...)[0]); }(
        std::index_sequence_for<X...>());
  }
}

// y (and z) = f(x..); strided(plan), which launches the same, if not all operands are dense.
// REQUIRES: the outputs are dense, inputs broadcast to their shape.
template <class T, class... X, class F, class Strided>
void launch_pointwise(const F& f, const Tensor& y, const Tensor& z,
    const std::array<const Tensor*, sizeof...(X)>& x, const Strided& strided) {
  constexpr int kIn = sizeof...(X);
  constexpr int N = 16 / static_cast<int>(std::max({sizeof(T), sizeof(X)...}));
  const int64_t n = y.numel();
  if (n == 0) return;
  const LoopPlan plan(y.shape(), x);
  bool dense = plan.rank == 1 && is_aligned<T, N>(y) && (F::kOutputs == 1 || is_aligned<T, N>(z));
  for (int i = 0; i < kIn; ++i) dense = dense && plan.stride[i][0] == 1;
  [&]<size_t... I>(std::index_sequence<I...>) {
    dense = dense && (is_aligned<X, N>(*x[I]) && ...);
    if (dense)
      return launch<pointwise_vec<F, N, T, X...>>(
          item_grid(n / N), kItemBlock, 0, f, n, out<T>(y), out<T>(z), in<X>(*x[I])...);
    strided(plan);
  }(std::make_index_sequence<kIn>());
}
// By pointwise_strided. REQUIRES: f has one output.
template <class T, class... X, class F>
void launch_pointwise(
    const F& f, const Tensor& y, const std::array<const Tensor*, sizeof...(X)>& x) {
  launch_pointwise<T, X...>(f, y, {}, x, [&](const LoopPlan& plan) {
    [&]<size_t... I>(std::index_sequence<I...>) {
      launch<pointwise_strided<F, T, X...>>(item_grid(y.numel()), kItemBlock, 0, f, y.numel(),
          Walk<sizeof...(X)>(plan), out<T>(y), in<X>(*x[I])...);
    }(std::index_sequence_for<X...>());
  });
}

}  // namespace sinter::SINTER_KERNEL_NS
