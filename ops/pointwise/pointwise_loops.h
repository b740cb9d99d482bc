// CPU loops over n tensors of one shape with any strides: dims that run together are merged, and
// the inner loop sees dense elements only, so that an op has one loop over its formula, which g++
// vectorises. The walk itself knows nothing of types, so that it is compiled once.
#pragma once

#include <array>
#include <span>
#include <type_traits>
#include <utility>

#include "core/tensor.h"

namespace sinter {

// The iteration space of operands that broadcast to one shape: merged dims, strides in elements,
// the innermost dim last.
struct LoopPlan {
  static constexpr int kMostOperands = 6;
  int rank = 0;
  std::array<int64_t, kMaxRank> size{};
  std::array<std::array<int64_t, kMaxRank>, kMostOperands> stride{};

  LoopPlan(const Shape& shape, std::span<const Tensor* const> operands);
};

namespace detail {
struct Operand {
  const Tensor* tensor;
  size_t element_bytes;
};
// `at[i]` points to n dense elements of operand i.
using DenseRow = void (*)(void* context, char* const* at, int64_t n);
// The last `outputs` operands are dense, and are written to.
void for_dense_rows(const Shape& shape, std::span<const Operand> operands, int outputs,
    int64_t bytes_per_element, DenseRow row, void* context);
}  // namespace detail

// row(p.., n) for pieces of the inner dim: p are pointers to n dense elements of types Ts, one per
// operand. Inputs of other strides are copied, piece by piece, into a block that fits the cache.
// The last `Outputs` operands must be dense.
template <int Outputs, class... Ts, class Row>
void pointwise_rows(const Shape& shape, const std::array<const Tensor*, sizeof...(Ts)>& operands,
    int64_t bytes_per_element, Row&& row) {
  [&]<size_t... I>(std::index_sequence<I...>) {
    const detail::Operand list[] = {{operands[I], sizeof(Ts)}...};
    detail::for_dense_rows(
        shape, list, Outputs, bytes_per_element,
        [](void* context, char* const* at, int64_t n) {
          (*static_cast<std::remove_reference_t<Row>*>(context))(
              reinterpret_cast<Ts*>(at[I])..., n);
        },
        const_cast<void*>(static_cast<const void*>(&row)));
  }(std::make_index_sequence<sizeof...(Ts)>());
}

}  // namespace sinter
