// What the code of fusion rules shares, and the rules that are code: rules_loss.cpp,
// rules_side_by_side.cpp, rules_narrow.cpp, rules_update.cpp, rules_pointwise.cpp. Each takes a
// graph and fuses every group that it finds. Used by them, by the table in rules.cpp and by the
// matcher (pattern.h).
#pragma once

#include <algorithm>

#include "capture/rewrite.h"
#include "ops/fused/fused.h"
#include "ops/ops.h"

namespace sinter::capture::rule {

// REQUIRES: it exists.
const OpDef& op_named(const std::string& name);

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

void narrow_mlp(Rewriter& r);
void round_loss_gradient(Rewriter& r);
void gated_linear(Rewriter& r);
void merge_linear(Rewriter& r);
void clip_norm(Rewriter& r);
void weight_grad_update(Rewriter& r);
void multi_tensor_update(Rewriter& r);
void pointwise_chain(Rewriter& r);

}  // namespace sinter::capture::rule
