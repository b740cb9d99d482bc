// CPU loops over n tensors of one shape with any strides: dims that run together are merged, the
// inner loop is specialised for dense operands and for scalars, so that g++ vectorises the op's own
// formula.
#pragma once

#include <array>
#include <utility>

#include "core/parallel.h"
#include "core/tensor.h"

namespace sinter {

// The iteration space of N operands that broadcast to one shape: merged dims, strides in elements,
// the innermost dim last.
template <int N>
struct LoopPlan {
  int rank = 0;
  std::array<int64_t, kMaxRank> size{};
  std::array<std::array<int64_t, kMaxRank>, N> stride{};

  LoopPlan(const Shape& shape, const std::array<const Tensor*, N>& operands) {
    for (int d = 0; d < shape.rank(); ++d) {
      if (shape[d] == 1) continue;
      std::array<int64_t, N> s;
      for (int n = 0; n < N; ++n) {
        const int at = d - (shape.rank() - operands[n]->rank());
        s[n] = at < 0 || operands[n]->size(at) == 1 ? 0 : operands[n]->strides()[at];
      }
      bool merge = rank > 0;
      for (int n = 0; n < N; ++n) merge = merge && stride[n][rank - 1] == s[n] * shape[d];
      if (!merge) ++rank;
      size[rank - 1] = merge ? size[rank - 1] * shape[d] : shape[d];
      for (int n = 0; n < N; ++n) stride[n][rank - 1] = s[n];
    }
    if (rank == 0) {
      rank = 1;
      size[0] = shape.numel();
    }  // one element, or none
  }
};

// row(p.., stride.., begin, n): calls it for pieces of the inner dim; p are element pointers of the
// piece's first element. Ts: element types of the operands (the last is the output, dense).
template <class... Ts, class Row>
void pointwise_rows(const Shape& shape, const std::array<const Tensor*, sizeof...(Ts)>& operands,
    int64_t bytes_per_element, Row&& row) {
  constexpr int N = sizeof...(Ts);
  const LoopPlan<N> plan(shape, operands);
  const int inner = plan.rank - 1;
  int64_t outer = 1;
  for (int d = 0; d < inner; ++d) outer *= plan.size[d];
  const int64_t length = plan.size[inner];
  if (outer * length == 0) return;
  const auto run = [&]<size_t... I>(
                       std::index_sequence<I...>, int64_t index, int64_t begin, int64_t end) {
    std::array<int64_t, N> at{};
    for (int d = inner - 1; d >= 0; --d) {
      const int64_t i = index % plan.size[d];
      index /= plan.size[d];
      for (int n = 0; n < N; ++n) at[n] += i * plan.stride[n][d];
    }
    row((static_cast<Ts*>(operands[I]->raw()) + at[I] + begin * plan.stride[I][inner])...,
        std::array<int64_t, N>{plan.stride[I][inner]...}, end - begin);
  };
  const auto each = std::make_index_sequence<N>();
  if (outer == 1) {
    parallel_for(
        length, grain_of(bytes_per_element), [&](int64_t b, int64_t e) { run(each, 0, b, e); });
  } else {
    parallel_for(outer, grain_of(bytes_per_element * length), [&](int64_t b, int64_t e) {
      for (int64_t i = b; i < e; ++i) run(each, i, 0, length);
    });
  }
}

}  // namespace sinter
