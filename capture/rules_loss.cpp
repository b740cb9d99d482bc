#include "capture/rules.h"
#include "ops/fused/activation.h"

namespace sinter::capture {

// Note [Rounding the loss's gradient for all its readers]
//   The gradient of the logits is rounded for bf16 products, and read unrounded by the bias's
//   gradient alone. softmax_xent can round it at once, for both:
//
//       dz -+-> cast --> products             dz in bf16 -+-> products
//           +-> sum_rows = db                             +-> sum_rows = db
//
//   No pattern says so: sum_rows is no part of the group, but must read another value from now on.
bool rule::round_loss_gradient(Rewriter& r, int i) {
  const Node loss = r.node(i);
  if (loss.op != &kSoftmaxXentOp || !loss.attrs.as<SoftmaxXentAttrs>().grad) return false;
  const int dz = loss.out[1], rounding = r.find_reader(dz, kCastOp);
  if (rounding < 0) return false;
  const int rounded = r.node(rounding).out[0], bias = r.find_reader(dz, kSumRowsOp);
  const int bias_sum = bias < 0 ? -1 : r.node(bias).out[0];
  if (r.graph.values[rounded].dtype != DType::bf16 || r.read_elsewhere(dz, {rounding, bias}))
    return false;
  Node fused = loss;
  SoftmaxXentAttrs attrs = loss.attrs.as<SoftmaxXentAttrs>();
  attrs.low = true;
  fused.attrs = attrs;
  fused.out[1] = rounded;
  if (!r.fuse("softmax_xent", {i, rounding}, fused)) return false;
  if (bias_sum < 0) return true;
  const int reader = r.producer(bias_sum);
  Node sums = r.node(reader);
  sums.in[0] = rounded;
  r.replace(reader, std::move(sums));
  return true;
}

// Note [Why a chain of rows is no longer]
//   The patterns of row_chain find the longest chain that there is a kernel for, and say what
//   forbids a longer one if it is its size. A layer with another activation, and one before the
//   largest number of layers, is in no pattern; so it is told here.
bool rule::layer_before_chain(Rewriter& r, int i) {
  const Node chain = r.node(i);
  const int before = chain.op == &kRowChainOp ? r.producer(chain.in[0]) : -1;
  if (before < 0 || r.node(before).text() != "linear_act") return false;
  const Act act = chain.attrs.as<RowChainAttrs>().act,
            other = act_of(r.node(before).attrs.as<ProductChainAttrs>().program);
  const size_t layers = (chain.in.size() - 3) / 2;
  if (layers == kChainLayers)
    return r.miss("row_chain", {before, i},
        {str("the chain has ", layers, " layers, as many as it may have"), "take a layer out"});
  if (act == other) return false;
  return r.miss("row_chain", {before, i},
      {str("its activation is ", print_value(other), ", that of the chain ", print_value(act)),
          "give both one activation"});
}

}  // namespace sinter::capture
