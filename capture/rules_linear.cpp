// Rules of a layer: its activation, its gradients.
#include "capture/rule_kit.h"
#include "ops/gather_batch.h"

namespace sinter::capture::rule {

// ---- linear_act: y = linear(x, W, b); a = act(y)
void linear_act(Rewriter& r) {
  each_node(r, [&](int i) {
    const Node linear = r.node(i);
    if (linear.op != &kLinearOp) return false;
    const int y = linear.out[0];
    for (const int n : r.readers(y)) {
      const Node act = r.node(n);
      const Activation* a = activation_of(act.op, false);
      if (!a || act.in[0] != y) continue;
      const std::string other = others(r, y, {n});
      LinearActAttrs attrs{.act = a->act, .keep = Keep::nothing, .out = r.graph.values[y].dtype};
      Node fused{.op = &op_named("linear_act"), .in = linear.in, .out = act.out};
      fused.in.resize(3, -1);
      if (act.out.size() > 1) attrs.keep = Keep::mask;
      if (!other.empty()) {
        if (attrs.keep == Keep::mask) {
          r.miss("linear_act", {i, n}, cat("the pre-activation is read by ", other), 1);
          continue;
        }
        attrs.keep = Keep::pre;
        fused.out.push_back(y);
      }
      fused.attrs = attrs;
      if (r.fuse("linear_act", {i, n}, fused)) return true;
    }
    return false;
  });
}

// ---- gather_linear_act: x, labels = gather_batch(images, labels, index); y = linear_act(x, W, b)
void gather_linear_act(Rewriter& r) {
  each_node(r, [&](int i) {
    const Node gather = r.node(i);
    if (gather.op != &kGatherBatchOp) return false;
    const int x = gather.out[0], n = find_reader(r, x, &kLinearActOp);
    if (n < 0 || r.node(n).in[0] != x) return false;
    const Node layer = r.node(n);
    const GatherBatchAttrs& g = gather.attrs.as<GatherBatchAttrs>();
    const LinearActAttrs& a = layer.attrs.as<LinearActAttrs>();
    if (a.out != g.out) {
      r.miss("gather_linear_act", {i, n},
          cat("the batch is ", name_of(g.out), ", the layer's result ", name_of(a.out)), 1);
      return false;
    }
    Node fused{.op = &op_named("gather_linear_act"),
        .attrs = GatherLinearActAttrs{g.mnist, a.act, a.keep, a.out},
        .in = gather.in,
        .out = gather.out,
        .module = layer.module,
        .origin = {}};
    fused.in.insert(fused.in.end(), layer.in.begin() + 1, layer.in.end());
    fused.out.insert(fused.out.end(), layer.out.begin(), layer.out.end());
    return r.fuse("gather_linear_act", {i, n}, fused);
  });
}

// ---- input_grad_act: d = matmul(dy, W); dx = act_backward(d, saved)
void input_grad_act(Rewriter& r) {
  each_node(r, [&](int i) {
    const Node product = r.node(i);
    if (product.op != &kMatmulOp) return false;
    const MatmulAttrs& m = product.attrs.as<MatmulAttrs>();
    if (m.trans_a || m.trans_b) return false;
    const int d = product.out[0];
    for (const int n : r.readers(d)) {
      const Node back = r.node(n);
      const Activation* a = activation_of(back.op, true);
      if (!a || back.in[0] != d) continue;
      if (const std::string other = others(r, d, {n}); !other.empty()) {
        r.miss("input_grad_act", {i, n},
            cat("the input gradient before the activation is read by ", other), 1);
        continue;
      }
      Node fused{.op = &op_named("input_grad_act"),
          .attrs = InputGradActAttrs{a->act},
          .in = {product.in[0], product.in[1], back.in[1]},
          .out = back.out,
          .role = Role::dgrad};
      if (r.fuse("input_grad_act", {i, n}, fused)) return true;
    }
    return false;
  });
}

// ---- weight_bias_grad: dW = matmul(dy^T, x); db = sum_rows(dy)
void weight_bias_grad(Rewriter& r) {
  each_node(r, [&](int i) {
    const Node product = r.node(i);
    if (!is_weight_grad(product)) return false;
    const int n = find_reader(r, product.in[0], &kSumRowsOp);
    if (n < 0) return false;
    Node fused{.op = &op_named("weight_bias_grad"),
        .in = {product.in[0], product.in[1]},
        .out = {product.out[0], r.node(n).out[0]},
        .role = Role::wgrad};
    return r.fuse("weight_bias_grad", {i, n}, fused);
  });
}

}  // namespace sinter::capture::rule
