#include "ops/pointwise/pointwise_loops.h"

#include <algorithm>
#include <cstdint>

#include "core/error.h"
#include "core/parallel.h"
#include "core/thread_buffer.h"

namespace sinter {

LoopPlan::LoopPlan(const Shape& shape, std::span<const Tensor* const> tensors)
    : operands(int(tensors.size())) {
  SINTER_ASSERT(operands <= kMostOperands, operands, " operands");
  for (int d = 0; d < shape.rank(); ++d) {
    if (shape[d] == 1) continue;
    int64_t s[kMostOperands];
    bool merge = rank > 0;
    for (int n = 0; n < operands; ++n) {
      const int at = d - (shape.rank() - tensors[n]->rank());
      const bool repeats = at < 0 || tensors[n]->size(at) == 1;
      s[n] = repeats ? 0 : tensors[n]->strides()[at];
      merge = merge && stride[n][rank - 1] == s[n] * shape[d];
    }
    if (!merge) ++rank;
    size[rank - 1] = merge ? size[rank - 1] * shape[d] : shape[d];
    for (int n = 0; n < operands; ++n) stride[n][rank - 1] = s[n];
  }
  if (rank > 0) return;
  rank = 1;  // one element, or none
  size[0] = shape.numel();
  for (int n = 0; n < operands; ++n) stride[n][0] = 0;
}

namespace {

constexpr int64_t kLong = 256;  // rows of so many elements are read where they lie

template <class Element> void copy_strided(const char* from, int64_t stride, char* to, int64_t n) {
  const auto* in = reinterpret_cast<const Element*>(from);
  auto* out = reinterpret_cast<Element*>(to);
  if (stride == 0) {
    std::fill_n(out, n, *in);
  } else if (stride == 1) {
    std::copy_n(in, n, out);
  } else {
    for (int64_t i = 0; i < n; ++i) out[i] = in[i * stride];
  }
}

void copy_elements(const char* from, int64_t stride, int64_t bytes, char* to, int64_t n) {
  switch (bytes) {
    case 1: return copy_strided<uint8_t>(from, stride, to, n);
    case 2: return copy_strided<uint16_t>(from, stride, to, n);
    case 4: return copy_strided<uint32_t>(from, stride, to, n);
    default: return copy_strided<uint64_t>(from, stride, to, n);
  }
}

// The elements of the results, counted row-major.
class Walk {
 public:
  Walk(const LoopPlan& plan, std::span<const Tensor* const> operands, DenseRow row,
      const void* context)
      : plan_(plan), operands_(operands), row_(row), context_(context) {
    for (size_t i = 0; i < operands.size(); ++i) {
      const int64_t* stride = plan.stride[i];
      even_[i] = true;
      for (int d = 1; d < plan.rank; ++d)
        even_[i] = even_[i] && stride[d - 1] == stride[d] * plan.size[d];
      dense_ = dense_ && stride[plan.rank - 1] == 1;
    }
  }

  void run(int64_t begin, int64_t end) const {
    const int64_t length = plan_.size[plan_.rank - 1];
    const bool by_rows = plan_.rank == 1 || length >= kLong || end - begin <= 2 * length;
    const int64_t most = by_rows && dense_ ? length : kPointwiseTile;
    char* at[LoopPlan::kMostOperands];
    const int64_t first = begin;
    for (int64_t n; begin < end; begin += n) {
      const int64_t left = length - begin % length;
      n = std::min({end - begin, most, by_rows ? left : most});
      for (size_t i = 0; i < operands_.size(); ++i) {
        const int64_t stride = plan_.stride[i][plan_.rank - 1];
        const bool one_row = even_[i] || n <= left, number = even_[i] && stride == 0;
        const bool in_place = one_row && stride == 1;
        at[i] = in_place ? place(i, begin) : block(i);
        if (in_place || (number && begin > first)) continue;
        const int64_t copied = number ? std::min(kPointwiseTile, end - begin) : n;
        copy(i, begin, one_row ? copied : left, copied, at[i]);
      }
      row_(context_, at, n);
    }
  }

 private:
  char* place(size_t i, int64_t element) const {
    const int64_t* stride = plan_.stride[i];
    int64_t offset = even_[i] ? element * stride[plan_.rank - 1] : 0;
    for (int d = plan_.rank - 1; d >= 0 && !even_[i]; element /= plan_.size[d], --d)
      offset += element % plan_.size[d] * stride[d];
    return static_cast<char*>(operands_[i]->raw()) + offset * bytes_of(i);
  }
  int64_t bytes_of(size_t i) const { return int64_t(size_of(operands_[i]->dtype())); }
  // n elements of operand i: `part` of one row, then those of the next.
  void copy(size_t i, int64_t element, int64_t part, int64_t n, char* to) const {
    const int inner = plan_.rank - 1;
    for (; n > 0; n -= part, element += part, to += part * bytes_of(i), part = plan_.size[inner]) {
      part = std::min(part, n);
      copy_elements(place(i, element), plan_.stride[i][inner], bytes_of(i), to, part);
    }
  }
  char* block(size_t i) const {
    constexpr int64_t kAll = LoopPlan::kMostOperands * kPointwiseTile;
    double* const all = thread_buffer<double, BufferFor::spread>(kAll);
    return reinterpret_cast<char*>(all + int64_t(i) * kPointwiseTile);
  }

  const LoopPlan& plan_;
  std::span<const Tensor* const> operands_;
  DenseRow row_;
  const void* context_;
  bool even_[LoopPlan::kMostOperands];  // has it one stride through all dims? (a number: 0)
  bool dense_ = true;                   // are the rows of all?
};

}  // namespace

void for_dense_rows(const Shape& shape, std::span<const Tensor* const> operands, int outputs,
    int64_t bytes_per_element, DenseRow row, const void* context) {
  const int64_t total = shape.numel(), grain = grain_of(bytes_per_element);
  for (const Tensor* t : operands.last(size_t(outputs)))
    SINTER_ASSERT(total == 0 || t->is_contiguous(), "an output is not dense");
  const bool flat = std::ranges::all_of(
      operands, [&](const Tensor* t) { return t->is_contiguous() && t->numel() == total; });
  if (flat)  // as most calls are: nothing to plan
    return parallel_for(total, grain, [&](int64_t begin, int64_t end) {
      char* at[LoopPlan::kMostOperands];
      for (size_t i = 0; i < operands.size(); ++i)
        at[i] =
            static_cast<char*>(operands[i]->raw()) + begin * int64_t(size_of(operands[i]->dtype()));
      row(context, at, end - begin);
    });
  const LoopPlan plan(shape, operands);
  const Walk walk(plan, operands, row, context);
  parallel_for(total, grain, [&](int64_t begin, int64_t end) { walk.run(begin, end); });
}

void run_on_cpu(const Call& call, DenseRow loop, const void* context, int64_t flops) {
  const Tensor* operands[LoopPlan::kMostOperands];
  size_t n = 0;
  for (const Tensor& t : call.in) operands[n++] = &t;
  for (const Tensor& t : call.out) operands[n++] = &t;
  const int64_t bytes = int64_t(n * size_of(call.out[0].dtype())) + 2 * flops;
  for_dense_rows(
      call.out[0].shape(), std::span(operands, n), int(call.out.size()), bytes, loop, context);
}

}  // namespace sinter
