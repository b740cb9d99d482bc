// The samples of all ops, as operands on any device: in any element type, with the same strides,
// spread out, or off alignment. For the loops that compare devices (device_parity_test.cpp) and
// kernels (kernel_list_test.cpp).
#pragma once

#include <cmath>
#include <cstring>

#include "autograd/autograd.h"
#include "ops/ops.h"
#include "ops/optim/update.h"
#include "ops/pointwise/pointwise_op.h"
#include "ops/shape/gather_batch.h"
#include "tests/ops/ends.h"
#include "tests/ops/samples/samples.h"

namespace sinter {

inline constexpr Device kSimt{Device::Type::simt, 0};

// What has a kernel of its own on a device and is too long for a gradcheck on the CPU: long rows,
// rows of whole vectors, odd layouts.
inline std::vector<std::pair<const OpDef*, Sample>> device_samples() {
  std::vector<std::pair<const OpDef*, Sample>> all;
  const auto add = [&](const OpDef* op, Tensors in, const Attrs& attrs, const std::string& what,
                       bool differentiable = true) {
    all.push_back({op,
        {.in = std::move(in), .attrs = attrs, .what = what, .differentiable = differentiable}});
  };
  const auto rows = [](int64_t n, int64_t cols) { return sample_tensor({n, cols}, 1); };
  for (const OpDef* op : {&kSoftmaxOp, &kLogSoftmaxOp}) {
    for (const bool causal : {false, true}) {
      const SoftmaxAttrs attrs{causal};
      add(op, {rows(3, 200)}, attrs, str("rows of 200", causal ? ", causal" : ""));
      add(op, {rows(2, 1030)}, attrs, str("rows of 1030", causal ? ", causal" : ""));
    }
  }
  for (const int64_t size : {10, 9})  // 64 and 49 places of a window
    add(&kConv2dOp, {sample_tensor({3, 3, size, size}, 1), sample_tensor({70, 3, 3, 3}, 2)},
        Conv2dAttrs{}, "several tiles");
  add(&kConv2dOp, {sample_tensor({5, 2, 32, 30}, 1), sample_tensor({3, 2, 4, 4}, 2)},
      Conv2dAttrs{1, 1, 2, 2}, "so many places that blocks share a weight's gradient");
  add(&kConvActPoolOp, {sample_tensor({1, 60, 5, 6}, 1), sample_tensor({17, 60, 3, 3}, 2)},
      Conv2dAttrs{1, 1, 1, 1}, "so many taps that blocks share a sum", false);
  const Tensor labels = sample_labels(2, 1030, 2), seed = sample_tensor({2}, 3, 0.5, 1);
  add(&kSoftmaxXentOp, {rows(2, 1030), labels, seed}, SoftmaxXentAttrs{}, "rows of 1030", false);
  for (const int64_t cols : {200, 1030})
    add(&kLayerNormOp, {rows(3, cols), sample_tensor({cols}, 2), sample_tensor({cols}, 3)},
        LayerNormAttrs{}, "long rows", false);
  for (const int64_t cols : {200, 1030}) {
    add(&kRmsNormOp, {rows(3, cols), sample_tensor({cols}, 2)}, RmsNormAttrs{}, "long rows", false);
    add(&kRmsNormOp, {rows(3, cols)}, RmsNormAttrs{}, "long rows, no weight", false);
  }
  for (const OpDef* op : {&kSumOp, &kMeanOp, &kMaxOp})
    add(op, {rows(6, 32)}, ReduceAttrs{.dims = {-1}}, "whole vectors");
  // Of 258 groups of columns, in two blocks, and of more rows than a block has at once.
  const Tensors gate{rows(19, 2064), sample_tensor({19, 2064}, 2), sample_tensor({19, 2064}, 3)};
  add(&kPointwiseChainOp, {gate[0], gate[1]}, ends::glu(Act::gelu_tanh), "whole vectors", false);
  add(&kPointwiseChainOp, gate, ends::glu_backward(Act::gelu_tanh, true), "whole vectors", false);
  add(&kPadSliceOp, {rows(3, 32)}, PadSliceAttrs{.dim = 0, .begin = 1, .size = 6}, "whole vectors");
  add(&kMseOp, {rows(4, 32), sample_tensor({4, 32}, 2)}, {}, "whole vectors");
  for (const auto& [length, keys, depth] :
      {std::tuple{5, 34, 6}, {3, 4, 34}, {2, 3, 66}, {70, 66, 24}, {2, 3, 40}, {2, 3, 72}}) {
    const AttentionAttrs attrs{0.2, true};
    const auto heads = [&, d = depth](int64_t n, int64_t size, uint64_t seed) {
      return sample_tensor({1, n, size, d}, seed, -1, 1);
    };
    Tensors in{heads(2, length, 1), heads(1, keys, 2), heads(1, keys, 3)};
    add(&kAttentionOp, in, attrs, "several tiles, or a kernel for more columns", false);
    const Tensors out = apply(kAttentionOp, in, attrs);
    in.insert(in.begin(), heads(2, length, 4));
    in.insert(in.end(), out.begin(), out.end());
    add(&kAttentionBackwardOp, in, attrs, "several tiles, or parts of the columns", false);
  }
  std::vector<Act> acts{Act::none};
  acts.insert(acts.end(), std::begin(kActivations), std::end(kActivations));
  for (const Act act : acts) {
    const Tensors in{transpose(rows(40, 24)), transpose(sample_tensor({40, 72}, 2))};
    add(&kProductChainOp, in, ends::linear_act(act, false, DType::f64), "transposed operands",
        false);
  }
  add(&pointwise_backward_op<pointwise::Add>(), {rows(5, 7)}, pointwise::Add{}, "by itself", false);
  add(&pointwise_backward_op<pointwise::Mul>(),
      {rows(5, 7), sample_tensor({5, 7}, 2), sample_tensor({5, 7}, 3)}, pointwise::Mul{},
      "by itself", false);
  return all;
}

// f(op, sample, "softmax, ragged") for the samples of all ops, and the good ones above; samples are
// made anew, so an op may change them.
template <class F> void for_each_sample(bool bad, F&& f) {
  for (const OpDef* op : all_ops()) {
    if (!op->view && !op->simt) continue;  // EveryOpHasAKernel names the latter
    for (Sample& sample : samples_of(*op)) {
      if (sample.bad == bad) f(*op, sample, str(op->text(), ", ", sample.what));
    }
  }
  if (bad) return;
  for (auto& [op, sample] : device_samples()) f(*op, sample, str(op->text(), ", ", sample.what));
}

// t's storage as a list of its elements.
inline Tensor elements_of(const Tensor& t) {
  return Tensor::view_of(
      t.storage(), t.dtype(), {int64_t(t.storage()->bytes() / size_of(t.dtype()))}, {1}, 0);
}
inline Tensor with_storage(
    const Tensor& t, const Tensor& elements, const Strides& strides, int64_t offset) {
  Tensor out = Tensor::view_of(elements.storage(), elements.dtype(), t.shape(), strides, offset);
  if (t.has_autograd() && t.autograd().bf16_copy.defined())
    out.autograd().bf16_copy = t.autograd().bf16_copy.to(elements.device());
  return out;
}
inline Tensor with_storage(const Tensor& t, const Tensor& elements) {
  return with_storage(t, elements, t.strides(), t.offset());
}

// A fresh copy with the same strides.
inline Tensor there(const Tensor& t, Device device) {
  return t.defined() ? with_storage(t, elements_of(t).to(device)) : Tensor();
}
inline Tensors there(const Tensors& in, Device device) {
  Tensors out;
  for (const Tensor& t : in) out.push_back(there(t, device));
  return out;
}
// A copy on the CPU whose elements lie `step` apart, the first `shift` from the beginning.
inline Tensor spread(const Tensor& t, int64_t step, int64_t shift) {
  const Tensor from = elements_of(t), to = Tensor::empty({from.numel() * step + shift}, t.dtype());
  const auto size = int64_t(size_of(t.dtype()));
  std::memset(to.raw(), 0, size_t(to.numel() * size));
  for (int64_t i = 0; i < from.numel(); ++i) {
    std::memcpy(static_cast<char*>(to.raw()) + (i * step + shift) * size,
        static_cast<const char*>(from.raw()) + i * size, size_t(size));
  }
  Strides strides = t.strides();
  for (int d = 0; d < strides.rank(); ++d) strides[d] *= step;
  return with_storage(t, to, strides, t.offset() * step + shift);
}

inline bool takes(const OpDef& op, DType dtype) {
  if (dtype == DType::f64) return &op != &kGatherBatchOp && &op != &kRowChainOp;
  return dtype != DType::bf16 || !optimizer_of(op);
}
// Fresh copies on the CPU, f64 converted.
inline Tensors with_dtype(const OpDef& op, const Tensors& in, DType dtype) {
  Tensors out;
  for (size_t i = 0; i < in.size(); ++i) {
    const bool convert = in[i].defined() && in[i].dtype() == DType::f64;
    out.push_back(convert ? with_storage(in[i],
                                cast(elements_of(in[i]), operand_type(op, i, in.size(), dtype)))
                          : there(in[i], kCpu));
  }
  return out;
}
inline Attrs with_dtype(Attrs attrs, DType dtype) {
  attrs.parse("out", name_of(dtype));
  return attrs;
}

// d sum(outputs * fixed weights) / d inputs. `plain`: of the op's reference.
inline Tensors gradients(const OpDef& op, const Tensors& in, const Attrs& attrs,
    bool first_only = false, bool plain = false) {
  for (size_t i = 0; i < in.size(); ++i) {
    if (in[i].defined() && is_float(in[i].dtype()) && !op.writes_input(i, in.size()))
      const_cast<Tensor&>(in[i]).set_requires_grad(true);
  }
  clear_tape();
  const Tensors out = plain && op.reference ? op.reference(in, attrs) : apply(op, in, attrs);
  Tensor total;
  for (size_t i = 0; i < (first_only ? 1 : out.size()); ++i) {
    if (!is_float(out[i].dtype())) continue;
    const Tensor numbers = sample_tensor(out[i].shape(), 40 + i, 0.5, 1.5);
    for (int64_t k = 0; k < numbers.numel(); ++k)  // alike in any type
      numbers.data<double>()[k] = std::round(64 * numbers.data<double>()[k]) / 64;
    const Tensor weights = cast(numbers, out[i].dtype()).to(out[i].device());
    const Tensor part = cast(sum(mul(out[i], weights)), DType::f64);
    total = total.defined() ? add(total, part) : part;
  }
  backward(total);
  Tensors grads;
  for (const Tensor& t : in) {
    if (t.defined() && t.grad().defined()) grads.push_back(t.grad());
  }
  return grads;
}

}  // namespace sinter
