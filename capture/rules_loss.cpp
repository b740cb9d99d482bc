// The loss's gradient in bf16.
#include "capture/rule_kit.h"

namespace sinter::capture::rule {

// Where the gradient of the logits is rounded for bf16 products, and read otherwise by the bias's
// gradient alone, softmax_xent rounds it at once, for both. No pattern says so: the bias's gradient
// is no part of the group, but must read the rounded one from now on.
void round_loss_gradient(Rewriter& r) {
  each_node(r, [&](int i) {
    const Node loss = r.node(i);
    if (loss.op != &kSoftmaxXentOp || !loss.attrs.as<SoftmaxXentAttrs>().grad) return false;
    const int dz = loss.out[1], rounding = find_reader(r, dz, &kCastOp);
    if (rounding < 0) return false;
    const int rounded = r.node(rounding).out[0], bias = find_reader(r, dz, &kSumRowsOp);
    const int bias_sum = bias < 0 ? -1 : r.node(bias).out[0];
    if (r.graph.values[rounded].dtype != DType::bf16 || !others(r, dz, {rounding, bias}).empty())
      return false;
    Node fused = loss;
    SoftmaxXentAttrs attrs = loss.attrs.as<SoftmaxXentAttrs>();
    attrs.low = true;
    fused.attrs = attrs;
    fused.out[1] = rounded;
    if (!r.fuse("softmax_xent", {i, rounding}, fused)) return false;
    if (bias_sum >= 0) {
      const int reader = r.producer(bias_sum);
      Node sums = r.node(reader);
      sums.in[0] = rounded;
      r.replace(reader, std::move(sums));
    }
    return true;
  });
}

}  // namespace sinter::capture::rule
