#include "ops/pointwise/pointwise_loops.h"

#include <algorithm>
#include <cstdint>

#include "core/error.h"
#include "core/parallel.h"

namespace sinter {

LoopPlan::LoopPlan(const Shape& shape, std::span<const Tensor* const> operands) {
  SINTER_ASSERT(operands.size() <= kMostOperands, operands.size(), " operands");
  for (int d = 0; d < shape.rank(); ++d) {
    if (shape[d] == 1) continue;
    std::array<int64_t, kMostOperands> s{};
    for (size_t n = 0; n < operands.size(); ++n) {
      const int at = d - (shape.rank() - operands[n]->rank());
      const bool repeats = at < 0 || operands[n]->size(at) == 1;
      if (!repeats) s[n] = operands[n]->strides()[at];
    }
    bool merge = rank > 0;
    for (size_t n = 0; n < operands.size(); ++n)
      merge = merge && stride[n][rank - 1] == s[n] * shape[d];
    if (!merge) ++rank;
    size[rank - 1] = merge ? size[rank - 1] * shape[d] : shape[d];
    for (size_t n = 0; n < operands.size(); ++n) stride[n][rank - 1] = s[n];
  }
  if (rank == 0) {  // one element, or none
    rank = 1;
    size[0] = shape.numel();
  }
}

namespace detail {
namespace {

constexpr int64_t kBlock = 512;  // elements: 4 KiB of doubles

template <class Element> void copy_strided(const char* from, int64_t stride, char* to, int64_t n) {
  const auto* in = reinterpret_cast<const Element*>(from);
  auto* out = reinterpret_cast<Element*>(to);
  for (int64_t i = 0; i < n; ++i) out[i] = in[i * stride];
}

void copy_elements(const char* from, int64_t stride, size_t bytes, char* to, int64_t n) {
  switch (bytes) {
    case 1: return copy_strided<uint8_t>(from, stride, to, n);
    case 2: return copy_strided<uint16_t>(from, stride, to, n);
    case 4: return copy_strided<uint32_t>(from, stride, to, n);
    default: return copy_strided<uint64_t>(from, stride, to, n);
  }
}

struct Walk {
  const LoopPlan& plan;
  std::span<const Operand> operands;
  DenseRow row;
  void* context;

  // Elements [begin, end) of the inner dim, at place `index` of the outer ones.
  void run(int64_t index, int64_t begin, int64_t end) const {
    const int inner = plan.rank - 1;
    std::array<int64_t, LoopPlan::kMostOperands> offset{};
    for (int d = inner - 1; d >= 0; --d) {
      const int64_t i = index % plan.size[d];
      index /= plan.size[d];
      for (size_t n = 0; n < operands.size(); ++n) offset[n] += i * plan.stride[n][d];
    }
    std::array<char*, LoopPlan::kMostOperands> at{};
    bool dense = true;
    for (size_t n = 0; n < operands.size(); ++n) {
      const auto [tensor, bytes] = operands[n];
      const int64_t first = offset[n] + begin * plan.stride[n][inner];
      at[n] = static_cast<char*>(tensor->raw()) + first * int64_t(bytes);
      dense = dense && plan.stride[n][inner] == 1;
    }
    if (dense || end - begin == 1) return row(context, at.data(), end - begin);
    run_in_blocks(at, end - begin);
  }

  void run_in_blocks(std::array<char*, LoopPlan::kMostOperands> from, int64_t n) const {
    const int inner = plan.rank - 1;
    alignas(64) char blocks[LoopPlan::kMostOperands][kBlock * sizeof(double)];
    for (int64_t done = 0; done < n; done += kBlock) {
      const int64_t length = std::min(kBlock, n - done);
      std::array<char*, LoopPlan::kMostOperands> at = from;
      for (size_t i = 0; i < operands.size(); ++i) {
        const int64_t stride = plan.stride[i][inner];
        const size_t bytes = operands[i].element_bytes;
        if (stride != 1) {
          at[i] = blocks[i];
          const bool filled = stride == 0 && done > 0;
          if (!filled) copy_elements(from[i], stride, bytes, at[i], length);
        }
        from[i] += length * stride * int64_t(bytes);
      }
      row(context, at.data(), length);
    }
  }
};

}  // namespace

void for_dense_rows(const Shape& shape, std::span<const Operand> operands, int outputs,
    int64_t bytes_per_element, DenseRow row, void* context) {
  std::array<const Tensor*, LoopPlan::kMostOperands> tensors{};
  for (size_t i = 0; i < operands.size(); ++i) tensors[i] = operands[i].tensor;
  const LoopPlan plan(shape, std::span(tensors).first(operands.size()));
  const int64_t length = plan.size[plan.rank - 1];
  int64_t outer = 1;
  for (int d = 0; d < plan.rank - 1; ++d) outer *= plan.size[d];
  if (outer * length == 0) return;
  for (size_t i = operands.size() - size_t(outputs); i < operands.size(); ++i)
    SINTER_ASSERT(operands[i].tensor->is_contiguous(), "an output is not dense");
  const Walk walk{plan, operands, row, context};
  if (outer == 1)
    return parallel_for(length, grain_of(bytes_per_element),
        [&](int64_t begin, int64_t end) { walk.run(0, begin, end); });
  parallel_for(outer, grain_of(bytes_per_element * length), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) walk.run(i, 0, length);
  });
}

}  // namespace detail
}  // namespace sinter
