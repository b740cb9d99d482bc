// CPU loops over n tensors of one shape with any strides: dims that run together are merged, and
// the inner loop sees dense elements only, so that an op has one loop over its formula, which g++
// vectorises. The walk itself knows nothing of types, so that it is compiled once. An op by itself
// and a chain (ops/pointwise/chain.h) are walked alike.
#pragma once

#include <array>
#include <span>
#include <utility>

#include "ops/op.h"

namespace sinter {

// Elements that a loop does with before the next, of a block of operands that are copied, or
// between two steps of a chain: they stay in L1.
inline constexpr int64_t kPointwiseTile = 1024;

// The iteration space of operands that broadcast to one shape: merged dims, strides in elements,
// the innermost dim last.
struct LoopPlan {
  static constexpr int kMostOperands = 11;  // those of a chain
  int rank = 0, operands = 0;
  int64_t size[kMaxRank], stride[kMostOperands][kMaxRank];  // so many of them are set

  LoopPlan(const Shape& shape, std::span<const Tensor* const> operands);
};

// A loop over n elements: at[i] points to those of operand i, which are dense.
using DenseRow = void (*)(const void* context, char* const* at, int64_t n);

// Over tensors that broadcast to one shape. The last `outputs` are dense, and are written to.
void for_dense_rows(const Shape& shape, std::span<const Tensor* const> operands, int outputs,
    int64_t bytes_per_element, DenseRow row, const void* context);
// The loop over the operands and the results of a call; an element takes so many FLOPs.
void run_on_cpu(const Call& call, DenseRow loop, const void* context, int64_t flops);

// row(p.., n) for pieces of the results: p are pointers to n dense elements of types Ts, one per
// operand. Inputs of other strides are copied, piece by piece, into a block that fits the cache.
// The last `Outputs` operands must be dense.
template <int Outputs, class... Ts, class Row>
void pointwise_rows(const Shape& shape, const std::array<const Tensor*, sizeof...(Ts)>& operands,
    int64_t bytes_per_element, const Row& row) {
  const DenseRow typed = [](const void* context, char* const* at, int64_t n) {
    [&]<size_t... I>(std::index_sequence<I...>) {
      (*static_cast<const Row*>(context))(reinterpret_cast<Ts*>(at[I])..., n);
    }(std::index_sequence_for<Ts...>());
  };
  for_dense_rows(shape, operands, Outputs, bytes_per_element, typed, &row);
}

}  // namespace sinter
