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

// Result i as heads, [B, H, S, D], wherever they lie. REQUIRES: it is not lse.
inline Tensor heads_of_result(const Call& call, const AttentionSizes& n, int i) {
  const auto& attrs = call.as<AttentionAttrs>();
  const Tensor& t = call.out[attrs.merged ? 0 : size_t(i)];
  if (!attrs.by_rows) return t;
  const int64_t heads = i == 0 ? n.heads : n.groups,
                begin = attrs.merged && i > 0 ? n.heads + (i - 1) * n.groups : 0;
  const Strides& s = t.strides();
  return Tensor::view_of(t.storage(), t.dtype(), {n.batch, heads, t.size(1), n.depth},
      {s[0], s[2], s[1], s[3]}, t.offset() + begin * s[2]);
}

namespace on_cpu {
void attention(const Call& call);
void attention_backward(const Call& call);
}  // namespace on_cpu

}  // namespace sinter
