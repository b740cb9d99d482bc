// Rules of the loss.
#include "capture/rule_kit.h"

namespace sinter::capture::rule {

// ---- softmax_xent: log_softmax, nll and both backwards in one pass over the rows
void softmax_xent(Rewriter& r) {
  each_node(r, [&](int i) {
    const Node log_softmax = r.node(i);
    if (log_softmax.op != &kLogSoftmaxOp) return false;
    const int logp = log_softmax.out[0];
    const int nll = find_reader(r, logp, &kNllOp);
    if (nll < 0 || r.node(nll).in[0] != logp) return false;
    const Node loss = r.node(nll);
    const double smoothing = loss.attrs.as<NllAttrs>().label_smoothing;
    const int back = find_reader(r, logp, &kLogSoftmaxBackwardOp);
    std::vector<int> members{i, nll};
    Node fused{.op = &op_named("softmax_xent"),
        .in = {log_softmax.in[0], loss.in[1], -1},
        .out = loss.out};
    SoftmaxXentAttrs attrs{.label_smoothing = smoothing, .grad = false};
    if (back >= 0) {
      const int dlogp = r.node(back).in[0];
      const int nll_back = r.producer(dlogp);
      if (nll_back < 0 || r.node(nll_back).op != &kNllBackwardOp ||
          r.node(nll_back).in[1] != loss.in[1] ||
          r.node(nll_back).attrs.as<NllBackwardAttrs>().label_smoothing != smoothing) {
        r.miss("softmax_xent", {i, nll, back},
            "the gradient of log_softmax does not come from this loss alone", 3);
        return false;
      }
      members.insert(members.end(), {nll_back, back});
      if (const std::string other = others(r, dlogp, {back}); !other.empty()) {
        r.miss("softmax_xent", members,
            cat("the gradient of the log-probabilities is read by ", other), 3);
        return false;
      }
      fused.in[2] = r.node(nll_back).in[0];
      fused.out.push_back(r.node(back).out[0]);
      attrs.grad = true;
    }
    if (const std::string other = others(r, logp, members); !other.empty()) {
      r.miss("softmax_xent", members, cat("the log-probabilities are read by ", other),
          static_cast<int>(members.size()) - 1);
      return false;
    }
    // Rounded for bf16 products, and read otherwise by the bias gradient alone: made bf16 at once,
    // for both.
    const int dz = attrs.grad ? fused.out[1] : -1,
              rounding = attrs.grad ? find_reader(r, dz, &kCastOp) : -1;
    const int bias = rounding < 0 ? -1 : find_reader(r, dz, &kSumRowsOp);
    if (rounding >= 0 && r.graph.values[r.node(rounding).out[0]].dtype == DType::bf16 &&
        others(r, dz, {rounding, bias}).empty()) {
      attrs.low = true;
      const int rounded = fused.out[1] = r.node(rounding).out[0];
      fused.attrs = attrs;
      members.push_back(rounding);
      const int bias_sum = bias < 0 ? -1 : r.node(bias).out[0];
      if (!r.fuse("softmax_xent", members, fused)) return false;
      if (bias >= 0) {
        const int reader = r.producer(bias_sum);
        Node sums = r.node(reader);
        sums.in[0] = rounded;
        r.replace(reader, std::move(sums));
      }
      return true;
    }
    fused.attrs = attrs;
    return r.fuse("softmax_xent", members, fused);
  });
}

// ---- classifier_head: z = linear(h, W, b); softmax_xent(z); the input gradient of both
void classifier_head(Rewriter& r) {
  each_node(r, [&](int i) {
    const Node linear = r.node(i);
    if (linear.op != &kLinearOp) return false;
    const int z = linear.out[0], n = find_reader(r, z, &kSoftmaxXentOp);
    if (n < 0 || r.node(n).in[0] != z || !r.node(n).attrs.as<SoftmaxXentAttrs>().grad) return false;
    const Node loss = r.node(n);
    const int dz = loss.out[1];
    const auto gives_dh = [&](const Node& node) {
      if ((node.op != &kInputGradActOp && node.op != &kMatmulOp) || node.in[0] != dz ||
          node.in[1] != linear.in[1])
        return false;
      return node.op == &kInputGradActOp ||
             (!node.attrs.as<MatmulAttrs>().trans_a && !node.attrs.as<MatmulAttrs>().trans_b);
    };
    int back = -1;
    for (const int reader : r.readers(dz)) back = gives_dh(r.node(reader)) ? reader : back;
    if (back < 0) return false;
    const Node& grad = r.node(back);
    const DType dtype = r.graph.values[linear.in[0]].dtype;
    const int64_t classes = r.graph.values[z].shape[1];
    const std::string other = others(r, z, {n});
    std::string why;
    if (!other.empty()) why = cat("the logits are also read by ", other);
    if (classes > kHeadClasses)
      why = cat("there are ", classes, " classes, more than ", kHeadClasses);
    if (r.graph.values[z].dtype != wide(dtype) || r.graph.values[dz].dtype != dtype ||
        r.graph.values[grad.out[0]].dtype != dtype)
      why = cat("logits are ", name_of(r.graph.values[z].dtype), ", their gradient ",
          name_of(r.graph.values[dz].dtype), ", operands ", name_of(dtype));
    if (dtype == DType::f64) why = "f64 has no kernel";
    if (!why.empty()) {
      r.miss("classifier_head", {i, n, back}, why, 2);
      return false;
    }
    const bool act = grad.op == &kInputGradActOp;
    Node fused{.op = &op_named("classifier_head"),
        .attrs = HeadAttrs{act ? grad.attrs.as<InputGradActAttrs>().act : Act::none,
            loss.attrs.as<SoftmaxXentAttrs>().label_smoothing},
        .in = {linear.in[0], linear.in[1], loss.in[1], loss.in[2],
            linear.in.size() > 2 ? linear.in[2] : -1, act ? grad.in[2] : -1},
        .out = {loss.out[0], dz, grad.out[0]},
        .module = {},
        .origin = {}};
    return r.fuse("classifier_head", {i, n, back}, fused);
  });
}

}  // namespace sinter::capture::rule
