// Chains of pointwise ops. Code, since a chain is whatever ops happen to follow each other.
#include "capture/rule_kit.h"

#include <algorithm>

namespace sinter::capture::rule {
namespace {

// What a node adds to a chain: one step per result.
bool chainable(const Rewriter& r, const Node& n) {
  return chain_op_number(n.op) >= 0 && n.out.size() == 1 &&
         r.graph.values[n.out[0]].shape.numel() > 0;
}

// The chain of `members` (pointwise nodes or chains, in order), or false if it does not fit.
bool make_chain(const Rewriter& r, const std::vector<int>& members, Node& fused) {
  ChainProgram c;
  std::vector<int> known;  // graph value of each input, then of each step
  const Shape& shape = r.graph.values[r.graph.nodes[members[0]].out[0]].shape;
  const DType dtype = r.graph.values[r.graph.nodes[members[0]].out[0]].dtype;
  for (const int m : members) {
    for (const int in : r.graph.nodes[m].in) {
      const bool inside = std::any_of(
          members.begin(), members.end(), [&](int k) { return r.graph.nodes[k].out[0] == in; });
      if (inside || std::find(known.begin(), known.end(), in) != known.end()) continue;
      if (c.n_inputs == kChainInputs || r.graph.values[in].dtype != dtype ||
          !chain_takes(shape, r.graph.meta(in)))
        return false;
      known.push_back(in);
      ++c.n_inputs;
    }
  }
  for (const int m : members) {
    const Node& n = r.graph.nodes[m];
    if (c.n_steps == kChainSteps || r.graph.values[n.out[0]].shape != shape ||
        r.graph.values[n.out[0]].dtype != dtype)
      return false;
    ChainProgram::Step& step = c.steps[c.n_steps++];
    step.op = static_cast<int16_t>(chain_op_number(n.op));
    step.param = chain_param(n.op, n.attrs);
    for (size_t i = 0; i < n.in.size(); ++i)
      step.in[i] =
          static_cast<int8_t>(std::find(known.begin(), known.end(), n.in[i]) - known.begin());
    known.push_back(n.out[0]);
  }
  fused = Node{.op = &op_named("pointwise_chain"),
      .in = std::vector<int>(known.begin(), known.begin() + c.n_inputs)};
  for (int s = 0; s < c.n_steps; ++s) {
    const int value = known[c.n_inputs + s];
    if (!r.is_gradient(value) && others(r, value, members).empty()) continue;
    if (c.n_outputs == kChainOutputs) return false;
    c.outputs[c.n_outputs++] = static_cast<int8_t>(c.n_inputs + s);
    fused.out.push_back(value);
  }
  fused.attrs = ChainAttrs{c};
  return c.n_outputs > 0;
}

// What node n reads besides whole results of `members`, and may not as one of the chain: a view of
// one. In words, or "".
std::string view_inside(const Rewriter& r, const std::vector<int>& members, int n) {
  for (const int in : r.node(n).in) {
    const bool whole =
        std::any_of(members.begin(), members.end(), [&](int m) { return r.node(m).out[0] == in; });
    if (whole || in < 0) continue;
    if (std::string why = r.made_inside(members, in); !why.empty()) return why;
  }
  return "";
}

}  // namespace

// ---- pointwise_chain: neighbours among the pointwise ops, as one pass over tiles
void pointwise_chain(Rewriter& r) {
  each_node(r, [&](int i) {
    if (!chainable(r, r.node(i))) return false;
    // Grow from i over readers of what the chain makes, as long as it fits and the order allows.
    std::vector<int> members{i};
    Node best;
    for (size_t k = 0; k < members.size(); ++k) {
      for (const int n : r.readers(r.node(members[k]).out[0])) {
        if (n <= members.back() || !chainable(r, r.node(n)) ||
            !r.node(n).reads(r.node(members[k]).out[0]))
          continue;
        std::vector<int> longer = members;
        longer.push_back(n);
        if (std::string why = view_inside(r, members, n); !why.empty()) {
          r.miss("pointwise_chain", longer, std::move(why), static_cast<int>(longer.size()) - 1);
          continue;
        }
        Node fused;
        if (make_chain(r, longer, fused)) {
          members = std::move(longer);
          best = std::move(fused);
        }
      }
    }
    return members.size() > 1 && r.fuse("pointwise_chain", members, best);
  });
}

}  // namespace sinter::capture::rule
