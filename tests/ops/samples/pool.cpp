// Samples of max_pool2d, avg_pool2d and their backwards.
#include "ops/ops.h"
#include "tests/ops/samples/samples.h"

namespace sinter {
namespace {

struct PoolCase {
  Shape x;
  Pool2dAttrs window;
  const char* what;
};
std::vector<PoolCase> pool_cases() {
  return {{{2, 3, 6, 4}, {}, "halves"}, {{1, 2, 5, 7}, {}, "halves of odd sizes"},
      {{2, 1, 4, 36}, {}, "halves of long rows"},
      {{2, 2, 7, 5}, {3, 3, 2, 2, 1, 1}, "windows overlap, with padding"},
      {{1, 2, 6, 7}, {3, 2, 1, 3, 1, 0}, "unequal sides"},
      {{1, 1, 9, 8}, {2, 3, 4, 5, 0, 1}, "strides leave elements out"},
      {{3, 2, 4, 5}, {4, 5, 1, 1}, "one window"}, {{2, 2, 3, 3}, {1, 1, 1, 1}, "single elements"},
      {{0, 2, 4, 4}, {}, "empty batch"}};
}

// A: of max_pool2d or of avg_pool2d.
template <class A> std::vector<Sample> pool_samples() {
  std::vector<Sample> all;
  const auto add = [&](const PoolCase& of, const A& attrs) {
    all.push_back({{sample_tensor(of.x, 1)}, attrs, of.what});
  };
  for (const PoolCase& of : pool_cases()) {
    add(of, A{of.window});
    if constexpr (std::is_same_v<A, MaxPool2dAttrs>) add(of, A{of.window, true});
  }
  const Tensor x = sample_tensor({2, 3, 4, 4}, 2);
  const auto bad = [&](const Tensor& of, const Pool2dAttrs& window, const char* what) {
    all.push_back(bad_sample({of}, A{window}, what));
  };
  bad(sample_tensor({3, 4, 4}, 3), {}, "three dims");
  bad(sample_tensor({1, 3, 1, 4}, 3), {}, "too low");
  bad(sample_tensor({1, 3, 4, 0}, 3), {}, "no columns");
  bad(x, {5, 5}, "too large a kernel");
  bad(x, {2, 2, 0, 2}, "no stride");
  bad(x, {2, 2, 2, 2, 1, 2}, "more padding than half a kernel");
  bad(sample_labels(4, 4, 5), {}, "integers");
  return all;
}

// dy, and an index of each element's window's places.
Tensors pool_gradient(const PoolCase& of, bool index) {
  const Tensors out = apply(kMaxPool2dOp, {sample_tensor(of.x, 4)}, MaxPool2dAttrs{of.window});
  Tensors in{sample_tensor(out[0].shape(), 5)};
  if (index) in.push_back(out[1]);
  return in;
}
Pool2dBackwardAttrs backward_of(const PoolCase& of) { return {of.window, of.x[2], of.x[3]}; }
template <bool kIndex> std::vector<Sample> pool_backward_samples() {
  std::vector<Sample> all;
  for (const PoolCase& of : pool_cases()) {
    all.push_back({pool_gradient(of, kIndex), backward_of(of), of.what});
  }
  const PoolCase halves = pool_cases()[0];
  const Tensors good = pool_gradient(halves, kIndex);
  for (size_t i = 0; i < good.size(); ++i) {
    Tensors in = good;
    in[i] = i == 1 ? Tensor::zeros({2, 3, 3, 1}, DType::u8) : sample_tensor({2, 3, 3, 1}, 9);
    all.push_back(bad_sample(in, backward_of(halves), str("operand ", i, " of another shape")));
  }
  all.push_back(bad_sample(good, Pool2dBackwardAttrs{halves.window, 9, 4}, "of another height"));
  return all;
}

const Samples max_pool2d_samples_of(kMaxPool2dOp, pool_samples<MaxPool2dAttrs>);
const Samples max_pool2d_backward_samples_of(kMaxPool2dBackwardOp, pool_backward_samples<true>);
const Samples avg_pool2d_samples_of(kAvgPool2dOp, pool_samples<Pool2dAttrs>);
const Samples avg_pool2d_backward_samples_of(kAvgPool2dBackwardOp, pool_backward_samples<false>);

}  // namespace
}  // namespace sinter
