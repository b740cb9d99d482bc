#include "capture/rules.h"
#include "ops/fused/fused.h"

namespace sinter::capture {
namespace {

// Note [Chains of pointwise ops]
//   Pointwise ops that follow each other are one pass over tiles that stay in cache:
//
//       y = exp(x)      step 0                 z = sub(y, w)      step 1, reads y from the tile
//       a = tanh(z)     step 2                 a, and y if others read it, are written
//
//   Code, since a chain is whatever ops happen to follow each other, and no pattern says that. It
//   grows from one op over the readers of what it makes, as long as all fits the kernel's program:
//   one shape and type, dense operands or ones broadcast over rows, at most kChainSteps steps,
//   kChainInputs operands and kChainOutputs results. Cost: quadratic in the length of a chain,
//   which is bounded.

bool chainable(const Rewriter& r, const Node& n) {
  return chain_op_number(n.op) >= 0 && n.out.size() == 1 &&
         r.graph.values[n.out[0]].shape.numel() > 0;
}

// The chain of `members`, in order; nothing if it does not fit.
std::optional<Node> make_chain(const Rewriter& r, const std::vector<int>& members) {
  ChainProgram c;
  std::vector<int> known;  // graph value of each input, then of each step
  const Value& first = r.graph.values[r.node(members[0]).out[0]];
  const auto number_of = [&](int value) {
    return int8_t(std::ranges::find(known, value) - known.begin());
  };
  for (const int m : members) {
    for (const int in : r.node(m).in) {
      const bool inside =
          std::ranges::any_of(members, [&](int k) { return r.node(k).out[0] == in; });
      if (inside || number_of(in) < c.n_inputs) continue;
      if (c.n_inputs == kChainInputs || r.graph.values[in].dtype != first.dtype ||
          !chain_takes(first.shape, r.graph.meta(in)))
        return std::nullopt;
      known.push_back(in);
      ++c.n_inputs;
    }
  }
  for (const int m : members) {
    const Node& n = r.node(m);
    const Value& result = r.graph.values[n.out[0]];
    if (c.n_steps == kChainSteps || result.shape != first.shape || result.dtype != first.dtype)
      return std::nullopt;
    ChainProgram::Step& step = c.steps[c.n_steps++];
    step.op = int16_t(chain_op_number(n.op));
    step.param = chain_param(n.op, n.attrs);
    for (size_t i = 0; i < n.in.size(); ++i) step.in[i] = number_of(n.in[i]);
    known.push_back(n.out[0]);
  }
  Node fused{
      .op = &kPointwiseChainOp, .in = std::vector<int>(known.begin(), known.begin() + c.n_inputs)};
  for (const int m : members) {
    const int value = r.node(m).out[0];
    if (!r.is_gradient(value) && !r.read_elsewhere(value, members)) continue;
    if (c.n_outputs == kChainOutputs) return std::nullopt;
    c.outputs[c.n_outputs++] = number_of(value);
    fused.out.push_back(value);
  }
  if (c.n_outputs == 0) return std::nullopt;
  fused.attrs = ChainAttrs{c};
  return fused;
}

// What node n reads besides whole results of `members`, and may not as one of the chain: a view of
// one.
Obstacle view_inside(const Rewriter& r, const std::vector<int>& members, int n) {
  for (const int in : r.node(n).in) {
    const bool whole = std::ranges::any_of(members, [&](int m) { return r.node(m).out[0] == in; });
    if (whole || in < 0) continue;
    if (Obstacle obstacle = r.made_inside(members, in)) return obstacle;
  }
  return {};
}

}  // namespace

// Note [Chains of pointwise ops]
bool rule::pointwise_chain(Rewriter& r, int i) {
  if (!chainable(r, r.node(i))) return false;
  std::vector<int> members{i};
  std::optional<Node> best;
  for (size_t k = 0; k < members.size(); ++k) {
    const int made = r.node(members[k]).out[0];
    for (const int n : r.readers(made)) {
      if (n <= members.back() || !chainable(r, r.node(n)) || !r.node(n).reads(made)) continue;
      std::vector<int> longer = members;
      longer.push_back(n);
      if (Obstacle obstacle = view_inside(r, members, n)) {
        r.miss("pointwise_chain", longer, std::move(obstacle));
        continue;
      }
      std::optional<Node> fused = make_chain(r, longer);
      if (!fused) continue;
      members = std::move(longer);
      best = std::move(fused);
    }
  }
  return best && r.fuse("pointwise_chain", members, std::move(*best));
}

}  // namespace sinter::capture
