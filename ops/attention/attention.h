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

namespace on_cpu {
void attention(const Call& call);
void attention_backward(const Call& call);
}  // namespace on_cpu

}  // namespace sinter
