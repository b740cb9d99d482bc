// What the fusion rules share, and the rules themselves, by family: rules_linear.cpp,
// rules_loss.cpp, rules_glu.cpp, rules_narrow.cpp, rules_update.cpp, rules_pointwise.cpp. Used by
// them and by the table in rules.cpp. A rule takes a graph and fuses every group that it finds.
#pragma once

#include <algorithm>

#include "capture/rewrite.h"
#include "ops/fused/fused.h"
#include "ops/structured.h"

namespace sinter::capture::rule {

// REQUIRES: it exists.
const OpDef& op_named(const std::string& name);

struct Activation {
  Act act;
  const OpDef *forward, *backward;
  Keep keep;  // what its backward reads besides y
};
// The activation whose forward or backward op this is, or null.
const Activation* activation_of(const OpDef* op, bool backward);

// Calls f(i) for every node in order, in passes, until a pass changes nothing: f is true if it
// changed something. A change may make room for a group that begins before it, and groups are best
// found from the front: so it goes on a little before the change. Going back to the beginning,
// every time, takes as long as the square of the graph.
template <class F>
void each_node(Rewriter& r, F&& f) {
  constexpr int kBack = 64;
  for (bool changed = true; changed;) {
    changed = false;
    for (int i = 0; i < static_cast<int>(r.graph.nodes.size()); ++i) {
      if (!r.alive(i) || !f(i)) continue;
      changed = true;
      i = std::max(i - kBack, 0) - 1;
    }
  }
}

// A node of this op that reads the value, or -1.
int find_reader(const Rewriter& r, int value, const OpDef* op);
// Who reads `value` besides the `expected` nodes, in words; empty if nobody does.
std::string others(const Rewriter& r, int value, const std::vector<int>& expected);
// matmul(dy^T, x)
bool is_weight_grad(const Node& node);

void linear_act(Rewriter& r);
void gather_linear_act(Rewriter& r);
void input_grad_act(Rewriter& r);
void weight_bias_grad(Rewriter& r);
void narrow_mlp(Rewriter& r);
void softmax_xent(Rewriter& r);
void classifier_head(Rewriter& r);
void glu(Rewriter& r);
void glu_backward(Rewriter& r);
void gated_linear(Rewriter& r);
void merge_linear(Rewriter& r);
void gated_linear_backward(Rewriter& r);
void clip_norm(Rewriter& r);
void weight_grad_update(Rewriter& r);
void multi_tensor_update(Rewriter& r);
void pointwise_chain(Rewriter& r);

}  // namespace sinter::capture::rule
