#include <set>

#include "capture/rules.h"
#include "ops/fused/fused.h"
#include "ops/optim/update.h"

namespace sinter::capture {
namespace {

// Note [Lists of updates]
//   A step ends with an update per parameter, W -= f(dW). Three rules make less of them, and are
//   code, since a pattern is no list of any length:
//
//     clip_norm            all squared norms, their sum, and the scaling of every gradient
//     weight_grad_update   dW = dy^T x (and db) and the updates that read them: no gradient is ever
//                          in memory
//     multi_tensor_update  the updates that are left, as one launch
//
//   Updates join only if they are of one step of one optimizer: the same op, attributes and step
//   state, and none but the last is the last update of a step, which also sums the losses and
//   counts the step on. Its operands are those of the whole launch (join_steps), which
//   Rewriter::fuse places where nothing is overtaken that must not be. Members of a list run side
//   by side, so none may write what another reads or writes, but for the step's state.

bool is_update(const Node& node) { return optimizer_of(*node.op) != nullptr; }

// The operands of the step, which end those of every update.
int step_operand(const Node& node, size_t i) { return node.in[node.in.size() - kStepOperands + i]; }

// Of any update op: is it the last one of a step of the optimizer whose state that is?
bool ends_step(const Node& node, int state) {
  return node.op && node.op->attrs == attr_type<UpdateAttrs>() &&
         node.attrs.as<UpdateAttrs>().tail && step_operand(node, 0) == state;
}

// Updates of one step of one optimizer, if no other one between them ends the step.
bool of_one_step(const Node& earlier, const Node& later) {
  if (earlier.op != later.op || ends_step(earlier, step_operand(later, 0)) ||
      step_operand(earlier, 0) != step_operand(later, 0))
    return false;
  UpdateAttrs x = later.attrs.as<UpdateAttrs>();
  x.tail = false;
  return x == earlier.attrs.as<UpdateAttrs>();
}

// Puts the step's operands of all `members` at the end of `fused`: one member at most has the
// losses and the random state, the last update of the step.
void join_steps(const Rewriter& r, const std::vector<int>& members, Node& fused) {
  const Node& first = r.node(members.front());
  UpdateAttrs attrs = first.attrs.as<UpdateAttrs>();
  if (const OptimizerRow* row = optimizer_of(*first.op)) attrs.optimizer = row->kind;
  for (const int m : members) attrs.tail = attrs.tail || r.node(m).attrs.as<UpdateAttrs>().tail;
  for (size_t i = 0; i < kStepOperands; ++i) {
    int operand = -1;
    for (const int m : members) operand = std::max(operand, step_operand(r.node(m), i));
    fused.in.push_back(operand);
  }
  fused.attrs = attrs;
}

// Node i and all later ones of its step that `joins` it, up to the first that may not run beside
// those before it, as one launch of `op`: the operands of each, then those of the step once. Not
// fewer than `least`.
template <class Joins>
bool join_list(Rewriter& r, int i, const OpDef& op, size_t least, const Joins& joins) {
  std::vector<int> members;
  Node fused{.op = &op, .role = Role::update};
  const int state = step_operand(r.node(i), 0);
  for (int n = i; n < int(r.graph.nodes.size()); ++n) {
    const Node& other = r.node(n);
    if (n == i || (of_one_step(r.node(i), other) && joins(n))) {
      Node alone = other;  // all may read the step's state beside the last, which writes it
      alone.in[alone.in.size() - kStepOperands] = -1;
      const auto clashes = [&](int m) {
        return std::ranges::binary_search(members, m) && r.graph.conflict(alone, r.node(m));
      };
      if (std::ranges::any_of(r.neighbours(n, i, n), clashes)) break;
      members.push_back(n);
      fused.in.insert(fused.in.end(), other.in.begin(), other.in.end() - kStepOperands);
    }
    if (ends_step(other, state)) break;
  }
  if (members.size() < least) return false;
  join_steps(r, members, fused);
  return r.fuse(op.name.c_str(), members, std::move(fused));
}

}  // namespace

// Note [Lists of updates]
bool rule::clip_norm(Rewriter& r, int i) {
  if (r.node(i).op != &kClipInPlaceOp) return false;
  const int total = r.node(i).in[1];
  std::vector<int> clips, grads, measured;
  for (const int n : r.readers(total)) {
    const Node& node = r.node(n);
    if (node.op == &kClipInPlaceOp && node.in[1] == total && node.attrs == r.node(i).attrs) {
      clips.push_back(n);
      grads.push_back(node.in[0]);
    } else if (node.op == &kAccumulateOp && node.in[0] == total) {
      measured.push_back(n);
    }
  }
  if (clips.front() != i) return false;  // tried at the first of them
  size_t norms = 0;
  for (const int grad : std::set<int>(grads.begin(), grads.end())) {
    const int norm = r.find_reader(grad, kSquaredNormOp);
    if (norm < 0) continue;
    measured.push_back(norm);
    ++norms;
  }
  std::vector<int> members = clips;
  members.insert(members.end(), measured.begin(), measured.end());
  std::ranges::sort(members);
  if (norms != grads.size() || members.size() != 3 * grads.size() - 1)
    return r.miss("clip_norm", members,
        {"the clipped gradients are not those whose norm was taken",
            "clip all gradients that the norm is of, and no others"});
  for (const int m : members) {
    for (const int out : r.node(m).out) {
      if (Obstacle other = r.other_reader("the norm", out, members))
        return r.miss("clip_norm", members, std::move(other));
    }
  }
  return r.fuse("clip_norm", members, {.op = &kClipNormOp, .attrs = r.node(i).attrs, .in = grads});
}

// Note [Lists of updates]: dW (and db) made and applied at once.
bool rule::weight_grad_update(Rewriter& r, int i) {
  const Node made = r.node(i);
  if (made.op != &kWeightBiasGradOp && !is_weight_grad(made)) return false;
  std::vector<int> members{i}, updates;
  for (const int grad : made.out) {
    int update = -1;
    for (const int n : r.readers(grad)) {
      if (is_update(r.node(n)) && r.node(n).in[kGrad] == grad) update = n;
    }
    if (update < 0) return false;
    updates.push_back(update);
    members.push_back(update);
    const std::string& name = r.graph.values[r.node(update).in[kParam]].name;
    if (r.find_reader(grad, kAllReduceOp) >= 0)
      return r.miss("weight_grad_update", {i, update},
          {str("the gradient of ", name, " is first summed over all ranks (all_reduce)"),
              "train in one process; here the update runs behind the sum"});
    if (Obstacle other = r.other_reader(str("the gradient of ", name), grad, {update}))
      return r.miss("weight_grad_update", {i, update}, std::move(other));
    if (r.node(update).any_written([&](int value) { return r.graph.reads(made, value); }))
      return r.miss("weight_grad_update", {i, update},
          {str("the gradient of ", name, " is made from what its update changes"),
              "give the product a copy(..)"});
  }
  const auto [earlier, later] = std::minmax(updates.front(), updates.back());
  if (earlier != later && !of_one_step(r.node(earlier), r.node(later)))
    return r.miss("weight_grad_update", members,
        {"weight and bias are updated by different optimizers, or steps of one",
            "update both by one step of one optimizer"});
  Node fused{.op = &kWeightGradUpdateOp, .in = {made.in[0], made.in[1]}, .role = Role::update};
  for (const int update : updates) {
    const std::vector<int>& in = r.node(update).in;
    fused.in.insert(fused.in.end(), {in[kParam], in[kState1], in[kState2], in[kLow], in[kSkipped]});
  }
  fused.in.resize(kLayerOperands, -1);
  join_steps(r, updates, fused);
  if (!r.fuse("weight_grad_update", members, std::move(fused))) return false;
  for (const int grad : made.out) r.take_gradient(grad, "weight_grad_update");
  return true;
}

// Note [Joining the updates of all layers]
//   On a device a launch per layer leaves most of it idle at small sizes, so weight_grad_update of
//   all layers becomes one launch over a list of tiles:
//
//       wgu(dy1, x1, W1, ..)   dX1 = dy1 W1   wgu(dy0, x0, W0, ..)
//                   \                          /
//                    wgu(dy1, x1, W1, .. , dy0, x0, W0, .. , step)
//
//   A layer joins the first one if it has the same optimizer and rows of the same type, for which
//   one kernel is compiled. The launch stands where the last one stood: only there is every dy
//   known, and every old W read (dX1 reads W1, so the update of W1 waits for it). On the CPU it
//   saves no more than a launch's dispatch, and tables lose a layer's own time: there four or more
//   join that stand side by side, with nothing but updates between, as those of a GPT do.
bool rule::join_layers(Rewriter& r, int i) {
  const Node first = r.node(i);
  if (first.op != &kWeightGradUpdateOp) return false;
  const DType dtype = r.graph.values[first.in[0]].dtype;
  // Nodes without an op were fused.
  const auto lets_pass = [&](const Node& node) {
    return !node.op || node.op == first.op || is_update(node);
  };
  int end = i + 1;  // of those side by side
  while (end < int(r.graph.nodes.size()) && lets_pass(r.node(end))) ++end;
  const bool on_cpu = r.device == Device::Type::cpu;
  return join_list(r, i, kWeightGradUpdateOp, on_cpu ? 4 : 2, [&](int n) {
    return (!on_cpu || n < end) && r.graph.values[r.node(n).in[0]].dtype == dtype;
  });
}

// Note [Lists of updates]: all that is left.
bool rule::multi_tensor_update(Rewriter& r, int i) {
  if (!is_update(r.node(i))) return false;
  const DType dtype = r.graph.values[r.node(i).in[kParam]].dtype;  // one launch per element type
  return join_list(r, i, kMultiTensorUpdateOp, 2,
      [&](int n) { return r.graph.values[r.node(n).in[kParam]].dtype == dtype; });
}

}  // namespace sinter::capture
