// What the kernels of attention share: its sizes, the strides of its operands, and how the CPU's
// are called.
#pragma once

#include "ops/ops.h"

namespace sinter {

// q[B, H, S, D], k and v[B, G, T, D].
struct AttentionSizes {
  int64_t batch, heads, groups, rows, keys, depth;
  double scale;
  bool causal;
  AttentionSizes(const Tensor& q, const Tensor& k, const AttentionAttrs& attrs)
      : batch(q.size(0)),
        heads(q.size(1)),
        groups(k.size(1)),
        rows(q.size(2)),
        keys(k.size(2)),
        depth(q.size(3)),
        scale(attrs.scale),
        causal(attrs.causal) {}
  int64_t heads_of_group() const { return groups > 0 ? heads / groups : 0; }
  // Of the keys of all rows of a head, those that a row reads.
  int64_t pairs() const {
    const int64_t both = std::min(rows, keys);
    return causal ? both * (both + 1) / 2 + (rows - both) * keys : rows * keys;
  }
};

// Where the heads of result i lie, [B, H, S, D], and in which result. REQUIRES: it is not lse.
struct HeadsOfResult {
  const Tensor& in;
  Strides strides;
  int64_t begin = 0;
  HeadsOfResult(const Call& call, const AttentionSizes& n, size_t i)
      : HeadsOfResult(call, n, i, call.as<AttentionAttrs>()) {}

 private:
  HeadsOfResult(const Call& call, const AttentionSizes& n, size_t i, const AttentionAttrs& attrs)
      : in(call.out[std::min(i, size_t(3 - attrs.merged))]), strides(in.strides()) {
    if (!attrs.by_rows) return;
    for (auto before = size_t(3 - attrs.merged); before < i; ++before)
      begin += (before == 0 ? n.heads : n.groups) * strides[2];
    std::swap(strides[1], strides[2]);
  }
};

namespace on_cpu {
void attention(const Call& call);
void attention_backward(const Call& call);
}  // namespace on_cpu

}  // namespace sinter
