// Cross entropy and its gradient of one row, by one warp: lane l owns columns l, l + 32, .. in registers. For softmax_xent and narrow_mlp.
#pragma once

#include "core/device/kernel.h"

namespace sinter::SINTER_KERNEL_NS {

// z(c): the logits. put_loss(loss), once. With `grad` put(c, (softmax - target) * scale), target: own at the label, others everywhere.
// REQUIRES: cols <= 32 kPerLane; a label out of range has been reported, and gets no loss here.
template <int kPerLane, class V, class Z, class PutLoss, class Put>
SINTER_DEVICE_FN void xent_row(int cols, int label, V own, V others, const Z& z, const PutLoss& put_loss, bool grad, V scale, const Put& put) {
  V v[kPerLane], m = V(-INFINITY), sum = 0, all = 0, at_label = 0;
  SINTER_UNROLL
  for (int j = 0; j < kPerLane; ++j) {
    const int c = lane() + 32 * j;
    v[j] = c < cols ? z(c) : V(-INFINITY);
    m = max_or_nan(m, v[j]);
  }
  m = warp_max(m);
  SINTER_UNROLL
  for (int j = 0; j < kPerLane; ++j) {
    const int c = lane() + 32 * j;
    if (c < cols) {
      const V shifted = v[j] - m;
      if (c == label) at_label = shifted;
      all = all + shifted;
      v[j] = math::exp(shifted);
      sum = sum + v[j];
    }
  }
  sum = warp_sum(sum);
  V loss = math::log(sum);
  if (others > V(0)) loss = loss - others * warp_sum(all);
  if (label >= 0 && label < cols && lane() == label % 32) put_loss(loss - own * at_label);
  if (!grad) return;
  const V inverse = V(1) / sum;
  SINTER_UNROLL
  for (int j = 0; j < kPerLane; ++j) {
    const int c = lane() + 32 * j;
    const V p = v[j] * inverse - others;
    if (c < cols) put(c, (c == label ? p - own : p) * scale);
  }
}

}  // namespace sinter::SINTER_KERNEL_NS
