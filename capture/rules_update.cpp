// Rules of the optimizer's updates and of clipping.
#include "capture/rule_kit.h"

#include <algorithm>
#include <array>
#include <set>

namespace sinter::capture::rule {
namespace {

bool is_update(const Node& node) { return node.op == &kSgdUpdateOp || node.op == &kAdamUpdateOp; }

UpdateAttrs update_attrs(const Node& node) {
  if (node.op == &kSgdUpdateOp) {
    const SgdAttrs& a = node.attrs.as<SgdAttrs>();
    return {.adam = false,
        .momentum = a.momentum,
        .weight_decay = a.weight_decay,
        .nesterov = a.nesterov,
        .tail = a.tail};
  }
  const AdamAttrs& a = node.attrs.as<AdamAttrs>();
  return {.adam = true,
      .weight_decay = a.weight_decay,
      .beta1 = a.beta1,
      .beta2 = a.beta2,
      .eps = a.eps,
      .decoupled = a.decoupled,
      .tail = a.tail};
}

// The operands of an update in one order, whatever the optimizer.
struct UpdateOperands {
  int param, grad, state1, state2, low, step_state, losses, rng;
  explicit UpdateOperands(const Node& n) {
    const auto at = [&](size_t i) { return i < n.in.size() ? n.in[i] : -1; };
    const bool adam = n.op == &kAdamUpdateOp;
    param = at(0), grad = at(1), state1 = at(2), state2 = adam ? at(3) : -1;
    const size_t rest = adam ? 4 : 3;
    low = at(rest), step_state = at(rest + 1), losses = at(rest + 2), rng = at(rest + 3);
  }
};

bool same_but_tail(UpdateAttrs a, UpdateAttrs b) {
  a.tail = b.tail = false;
  return a == b;
}

// ---- weight_grad_update of all layers: one launch, as a list of tiles
void join_layers(Rewriter& r) {
  each_node(r, [&](int i) {
    const Node first = r.node(i);
    if (first.op != &kWeightGradUpdateOp) return false;
    const auto attrs = [](const Node& n) { return n.attrs.as<UpdateAttrs>(); };
    const auto of_step = [](const Node& n) { return n.in.end() - kStepOperands; };
    Node fused{.op = first.op,
        .attrs = first.attrs,
        .in = {},
        .out = {},
        .role = Role::update,
        .module = {},
        .origin = {}};
    std::vector<int> members;
    std::array<int, kStepOperands> end{*of_step(first), -1, -1};
    for (size_t n = static_cast<size_t>(i); n < r.graph.nodes.size(); ++n) {
      const Node& layer = r.graph.nodes[n];
      if (layer.op != first.op || !same_but_tail(attrs(layer), attrs(first)) ||
          *of_step(layer) != end[0] ||
          r.graph.values[layer.in[0]].dtype != r.graph.values[first.in[0]].dtype)
        continue;
      members.push_back(static_cast<int>(n));
      fused.in.insert(fused.in.end(), layer.in.begin(), of_step(layer));
      for (size_t e = 1; e < end.size(); ++e)
        end[e] = std::max(end[e], of_step(layer)[static_cast<std::ptrdiff_t>(e)]);
      if (attrs(layer).tail) fused.attrs = layer.attrs;
    }
    fused.in.insert(fused.in.end(), end.begin(), end.end());
    return members.size() > 1 && r.fuse("weight_grad_update", members, fused);
  });
}

}  // namespace

// ---- clip_norm: the squared norms of all gradients, their sum, and the scaling
void clip_norm(Rewriter& r) {
  each_node(r, [&](int i) {
    if (r.node(i).op != &kClipInPlaceOp) return false;
    const int total = r.node(i).in[1];
    const auto clips = [&](const Node& node) {
      return node.op == &kClipInPlaceOp && node.in[1] == total && node.attrs == r.node(i).attrs;
    };
    std::vector<int> members, grads, measured;
    for (const int n : r.readers(total)) {
      if (clips(r.node(n))) {
        members.push_back(n);
        grads.push_back(r.node(n).in[0]);
      } else if (r.node(n).op == &kAccumulateOp && r.node(n).in[0] == total) {
        measured.push_back(n);
      }
    }
    if (members.front() != i) return false;  // tried at the first of them
    size_t norms = 0;
    for (const int grad : std::set<int>(grads.begin(), grads.end())) {
      for (const int n : r.readers(grad)) {
        if (r.node(n).op != &kSquaredNormOp || r.node(n).in[0] != grad) continue;
        measured.push_back(n);
        ++norms;
      }
    }
    std::sort(measured.begin(), measured.end());
    members.insert(members.end(), measured.begin(), measured.end());
    if (norms != grads.size() || members.size() != 3 * grads.size() - 1) {
      r.miss("clip_norm", members, "the clipped gradients are not those whose norm was taken",
          static_cast<int>(members.size()) - 1);
      return false;
    }
    for (const int m : members) {
      for (const int out : r.node(m).out) {
        if (const std::string other = others(r, out, members); !other.empty()) {
          r.miss("clip_norm", members, cat("the norm is also read by ", other),
              static_cast<int>(members.size()) - 1);
          return false;
        }
      }
    }
    return r.fuse("clip_norm", members,
        {.op = &op_named("clip_norm"), .attrs = r.node(i).attrs, .in = grads});
  });
}

// ---- weight_grad_update: dW (and db) made and applied at once
void weight_grad_update(Rewriter& r) {
  each_node(r, [&](int i) {
    const Node made = r.node(i);
    const bool with_bias = made.op->text() == "weight_bias_grad";
    if (!with_bias && !is_weight_grad(made)) return false;
    std::vector<int> members{i};
    std::vector<UpdateOperands> operands;
    UpdateAttrs attrs;
    for (const int grad : made.out) {
      int update = -1;
      for (const int n : r.readers(grad)) {
        if (is_update(r.node(n)) && r.node(n).in[1] == grad) update = n;
      }
      if (update < 0) return false;
      if (const std::string other = others(r, grad, {update}); !other.empty()) {
        r.miss("weight_grad_update", {i, update},
            cat("the gradient of ", r.graph.values[r.node(update).in[0]].name, " is also read by ",
                other),
            1);
        return false;
      }
      const UpdateAttrs a = update_attrs(r.node(update));
      const UpdateOperands o(r.node(update));
      if (!operands.empty() &&
          (!same_but_tail(a, attrs) || o.step_state != operands[0].step_state)) {
        r.miss("weight_grad_update", {i, update}, "weight and bias have different optimizers", 2);
        return false;
      }
      const bool tail = attrs.tail || a.tail;
      attrs = a;
      attrs.tail = tail;
      operands.push_back(o);
      members.push_back(update);
    }
    Node fused{.op = &op_named("weight_grad_update"),
        .attrs = attrs,
        .in = std::vector<int>(kLayerOperands + kStepOperands, -1),
        .role = Role::update};
    fused.in[0] = made.in[0], fused.in[1] = made.in[1];
    for (size_t k = 0; k < operands.size(); ++k) {
      const UpdateOperands& o = operands[k];
      const size_t at = k == 0 ? 2 : 6;
      fused.in[at] = o.param, fused.in[at + 1] = o.state1, fused.in[at + 2] = o.state2,
      fused.in[at + 3] = o.low;
      fused.in[10] = o.step_state;
      if (o.losses >= 0) fused.in[11] = o.losses;
      if (o.rng >= 0) fused.in[12] = o.rng;
    }
    if (!r.fuse("weight_grad_update", members, fused)) return false;
    for (const int grad : made.out) r.take_gradient(grad, "weight_grad_update");
    return true;
  });
  if (r.device != Device::Type::cpu)
    join_layers(r);  // there each layer is best updated while its gradient is in cache
}

// ---- multi_tensor_update: all that is left of the optimizer's updates
void multi_tensor_update(Rewriter& r) {
  each_node(r, [&](int i) {
    if (!is_update(r.node(i))) return false;
    const UpdateAttrs attrs = update_attrs(r.node(i));
    const int state = UpdateOperands(r.node(i)).step_state;
    const DType dtype = r.graph.values[r.node(i).in[0]].dtype;  // one launch per element type
    std::vector<int> members;
    for (size_t n = static_cast<size_t>(i); n < r.graph.nodes.size(); ++n) {
      const Node& other = r.graph.nodes[n];
      if (other.op != r.node(i).op || r.graph.values[other.in[0]].dtype != dtype) continue;
      if (same_but_tail(update_attrs(other), attrs) && UpdateOperands(other).step_state == state)
        members.push_back(static_cast<int>(n));
    }
    if (members.size() < 2) return false;
    Node fused{.op = &op_named("multi_tensor_update"), .role = Role::update};
    UpdateAttrs all = attrs;
    int losses = -1, rng = -1;
    for (const int m : members) {
      const UpdateOperands o(r.node(m));
      fused.in.insert(fused.in.end(), {o.param, o.grad, o.state1, o.state2, o.low});
      all.tail = all.tail || update_attrs(r.node(m)).tail;
      losses = std::max(losses, o.losses), rng = std::max(rng, o.rng);
    }
    fused.in.insert(fused.in.end(), {state, losses, rng});
    fused.attrs = all;
    return r.fuse("multi_tensor_update", members, fused);
  });
}

}  // namespace sinter::capture::rule
