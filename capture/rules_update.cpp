// Rules of the optimizer's updates and of clipping.
#include "capture/rule_kit.h"

#include <algorithm>
#include <set>

#include "ops/update.h"

namespace sinter::capture::rule {
namespace {

bool is_update(const Node& node) { return node.op == &kSgdUpdateOp || node.op == &kAdamUpdateOp; }

const UpdateAttrs& update_attrs(const Node& node) { return node.attrs.as<UpdateAttrs>(); }

bool same_but_tail(UpdateAttrs a, UpdateAttrs b) {
  a.tail = b.tail = false;
  return a == b;
}

// The operands of the step, which end those of every update.
int step_operand(const Node& node, size_t i) { return node.in[node.in.size() - kStepOperands + i]; }

// Puts the step's operands of all `members` at the end of `fused`: one member at most has the
// losses and the random state, the last update of the step.
void join_steps(const Rewriter& r, const std::vector<int>& members, Node& fused) {
  UpdateAttrs attrs = update_attrs(r.node(members.front()));
  for (const int m : members) attrs.tail = attrs.tail || update_attrs(r.node(m)).tail;
  for (size_t i = 0; i < kStepOperands; ++i) {
    int operand = -1;
    for (const int m : members) operand = std::max(operand, step_operand(r.node(m), i));
    fused.in.push_back(operand);
  }
  fused.attrs = attrs;
}

// ---- weight_grad_update of all layers: one launch, as a list of tiles
void join_layers(Rewriter& r) {
  each_node(r, [&](int i) {
    const Node first = r.node(i);
    if (first.op != &kWeightGradUpdateOp) return false;
    const auto joins = [&](const Node& layer) {
      const bool same_optimizer = same_but_tail(update_attrs(layer), update_attrs(first)) &&
                                  (layer.in[kLayerState2] < 0) == (first.in[kLayerState2] < 0);
      return layer.op == first.op && same_optimizer &&
             step_operand(layer, 0) == step_operand(first, 0) &&
             r.graph.values[layer.in[0]].dtype == r.graph.values[first.in[0]].dtype;
    };
    Node fused{.op = first.op, .role = Role::update};
    std::vector<int> members;
    for (size_t n = static_cast<size_t>(i); n < r.graph.nodes.size(); ++n) {
      const Node& layer = r.graph.nodes[n];
      if (layer.op != first.op || !joins(layer)) continue;
      members.push_back(static_cast<int>(n));
      fused.in.insert(fused.in.end(), layer.in.begin(), layer.in.end() - kStepOperands);
    }
    join_steps(r, members, fused);
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
    std::vector<int> updates;
    for (const int grad : made.out) {
      int update = -1;
      for (const int n : r.readers(grad)) {
        if (is_update(r.node(n)) && r.node(n).in[kGrad] == grad) update = n;
      }
      if (update < 0) return false;
      if (const std::string other = others(r, grad, {update}); !other.empty()) {
        r.miss("weight_grad_update", {i, update},
            cat("the gradient of ", r.graph.values[r.node(update).in[kParam]].name,
                " is also read by ", other),
            1);
        return false;
      }
      updates.push_back(update);
    }
    const Node first = r.node(updates.front()), &last = r.node(updates.back());
    if (first.op != last.op || !same_but_tail(update_attrs(first), update_attrs(last)) ||
        step_operand(first, 0) != step_operand(last, 0)) {
      r.miss("weight_grad_update", {i, updates.back()}, "weight and bias have different optimizers",
          2);
      return false;
    }
    Node fused{.op = &kWeightGradUpdateOp, .in = {made.in[0], made.in[1]}, .role = Role::update};
    for (const int update : updates) {
      const std::vector<int>& in = r.node(update).in;
      fused.in.insert(fused.in.end(), {in[kParam], in[kState1], in[kState2], in[kLow]});
    }
    fused.in.resize(kLayerOperands, -1);
    join_steps(r, updates, fused);
    std::vector<int> members{i};
    members.insert(members.end(), updates.begin(), updates.end());
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
    const Node first = r.node(i);
    if (!is_update(first)) return false;
    const DType dtype = r.graph.values[first.in[kParam]].dtype;  // one launch per element type
    std::vector<int> members;
    Node fused{.op = &kMultiTensorUpdateOp, .role = Role::update};
    for (size_t n = static_cast<size_t>(i); n < r.graph.nodes.size(); ++n) {
      const Node& other = r.graph.nodes[n];
      if (other.op != first.op || r.graph.values[other.in[kParam]].dtype != dtype) continue;
      if (!same_but_tail(update_attrs(other), update_attrs(first)) ||
          step_operand(other, 0) != step_operand(first, 0))
        continue;
      members.push_back(static_cast<int>(n));
      fused.in.insert(fused.in.end(), other.in.begin(), other.in.begin() + kGroupOperands);
    }
    if (members.size() < 2) return false;
    join_steps(r, members, fused);
    return r.fuse("multi_tensor_update", members, fused);
  });
}

}  // namespace sinter::capture::rule
