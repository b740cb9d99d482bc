// Cross entropy and its gradient of one row, by kLanes neighbouring lanes of a warp: lane l owns
// columns l, l + kLanes, .. in registers. For softmax_xent and classifier_head.
#pragma once

#include "core/device/kernel.h"

namespace sinter::SINTER_KERNEL_NS {

// z(c): the logits. put_loss(loss), once. With `grad` put(c, (softmax - target) * scale), target:
// own at the label, others everywhere. REQUIRES: cols <= kLanes kPerLane; all lanes of the warp are
// here; a label out of range has been reported, and gets no loss here.
template <int kPerLane, int kLanes = 32, class V, class Z, class PutLoss, class Put>
SINTER_DEVICE_FN void xent_row(int cols, int label, V own, V others, const Z& z,
    const PutLoss& put_loss, bool grad, V scale, const Put& put) {
  const int first = lane() % kLanes;
  const auto join = [](V v, const auto& f) {  // a fixed xor tree
    SINTER_UNROLL
    for (int mask = kLanes / 2; mask > 0; mask >>= 1) v = f(v, shfl_xor(v, mask));
    return v;
  };
  const auto add = [](V a, V b) { return a + b; };
  V v[kPerLane], m = V(-INFINITY), sum = 0, all = 0, at_label = 0;
  SINTER_UNROLL
  for (int j = 0; j < kPerLane; ++j) {
    const int c = first + kLanes * j;
    v[j] = c < cols ? z(c) : V(-INFINITY);
    m = max_or_nan(m, v[j]);
  }
  m = join(m, [](V a, V b) { return max_or_nan(a, b); });
  SINTER_UNROLL
  for (int j = 0; j < kPerLane; ++j) {
    const int c = first + kLanes * j;
    if (c < cols) {
      const V shifted = v[j] - m;
      if (c == label) at_label = shifted;
      all = all + shifted;
      v[j] = math::exp(shifted);
      sum = sum + v[j];
    }
  }
  sum = join(sum, add);
  V loss = math::log(sum);
  if (others > V(0)) loss = loss - others * join(all, add);
  if (label >= 0 && label < cols && first == label % kLanes) put_loss(loss - own * at_label);
  if (!grad) return;
  const V inverse = V(1) / sum;
  SINTER_UNROLL
  for (int j = 0; j < kPerLane; ++j) {
    const int c = first + kLanes * j;
    const V p = v[j] * inverse - others;
    if (c < cols) put(c, (c == label ? p - own : p) * scale);
  }
}

}  // namespace sinter::SINTER_KERNEL_NS
