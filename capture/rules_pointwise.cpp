#include "capture/rules.h"
#include "ops/fused/product_chain.h"

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
//   one shape and type, operands that are dense or broadcast, at most kChainSteps steps,
//   kChainInputs operands and kChainOutputs results. Cost: quadratic in the length of a chain,
//   which is bounded.

bool chainable(const Rewriter& r, const Node& n) {
  return chain_op_number(n.op) >= 0 && r.graph.values[n.out[0]].shape.numel() > 0;
}
bool gives(const Node& n, int value) { return std::ranges::find(n.out, value) != n.out.end(); }

// A program as it grows from nodes of a step: which value of the graph each of its values is.
struct Growing {
  ChainProgram program;
  std::vector<int> known;   // of each operand, then of each step
  bool has_results = true;  // so few that they have room, and at least one

  int8_t number_of(int value) const {
    return int8_t(std::ranges::find(known, value) - known.begin());
  }
};

// The program of `members`, pointwise nodes in order, of which all that none of them makes is an
// operand: `first`, if it is a value, then the others as they are read. `fits` says whether a value
// may be an operand. A node is a step for each gradient that it gives. Results are what others
// read; that of `first` comes last. Nothing if it is too long, or of several shapes or types.
template <class Fits>
std::optional<Growing> program_of(const Rewriter& r, const std::vector<int>& all,
    const std::vector<int>& members, int first, const Fits& fits) {
  Growing g;
  ChainProgram& p = g.program;
  if (first >= 0) g.known.push_back(first);
  for (const int m : members) {
    for (const int in : r.node(m).in) {
      const bool inside = std::ranges::any_of(members, [&](int k) { return gives(r.node(k), in); });
      if (inside || std::ranges::find(g.known, in) != g.known.end()) continue;
      if (g.known.size() == size_t(kChainInputs) || !fits(in)) return std::nullopt;
      g.known.push_back(in);
    }
  }
  p.n_inputs = int(g.known.size());
  const Value& one = r.graph.values[r.node(members[0]).out[0]];
  const auto add_result = [&](int value) {
    if (!r.is_gradient(value) && !r.read_elsewhere(value, all)) return;
    if (p.n_outputs == kChainOutputs) g.has_results = false;
    if (g.has_results) p.outputs[p.n_outputs++] = g.number_of(value);
  };
  for (const int m : members) {
    const Node& n = r.node(m);
    const Value& result = r.graph.values[n.out[0]];
    if (result.shape != one.shape || result.dtype != one.dtype) return std::nullopt;
    for (size_t o = 0; o < n.out.size(); ++o) {
      if (p.n_steps == kChainSteps) return std::nullopt;
      ChainProgram::Step& step = p.steps[p.n_steps++];
      step.op = int16_t(chain_op_number(n.op, int(o)));
      step.param = chain_param(n.op, n.attrs);
      for (size_t i = 0; i < n.in.size(); ++i) step.in[i] = g.number_of(n.in[i]);
    }
    g.known.insert(g.known.end(), n.out.begin(), n.out.end());
  }
  for (const int m : members) std::ranges::for_each(r.node(m).out, add_result);
  if (first >= 0) add_result(first);
  g.has_results = g.has_results && p.n_outputs > 0;
  return g;
}

std::vector<int> results_of(const Growing& g) {
  std::vector<int> values;
  for (int o = 0; o < g.program.n_outputs; ++o) values.push_back(g.known[g.program.outputs[o]]);
  return values;
}

// The chain of `members`, in order; nothing if it does not fit.
std::optional<Node> make_chain(const Rewriter& r, const std::vector<int>& members) {
  const Value& first = r.graph.values[r.node(members[0]).out[0]];
  const auto growing = program_of(r, members, members, -1, [&](int in) {
    return r.graph.values[in].dtype == first.dtype && broadcast_of(r.graph.meta(in), first.shape);
  });
  if (!growing || !growing->has_results || code_of(growing->program).registers > kChainRegisters)
    return std::nullopt;
  return Node{.op = &kPointwiseChainOp,
      .attrs = ChainAttrs{growing->program},
      .in = {growing->known.begin(), growing->known.begin() + growing->program.n_inputs},
      .out = results_of(*growing)};
}

// What the last of `members` reads besides whole results of the others, and may not as one of the
// chain: a view of one.
Obstacle view_inside(const Rewriter& r, const std::vector<int>& members) {
  for (const int in : r.node(members.back()).in) {
    const bool whole = std::ranges::any_of(members, [&](int m) { return gives(r.node(m), in); });
    if (whole || in < 0) continue;
    if (Obstacle obstacle = r.made_inside(members, in)) return obstacle;
  }
  return {};
}

// From node i over the pointwise readers of what its members make, as far as takes(members with one
// more) is true.
template <class Takes> std::vector<int> grown_from(const Rewriter& r, int i, const Takes& takes) {
  std::vector<int> members{i};
  for (size_t k = 0; k < members.size(); ++k) {
    for (const int made : r.node(members[k]).out) {
      for (const int n : r.readers(made)) {
        if (n <= members.back() || !chainable(r, r.node(n)) || !r.node(n).reads(made)) continue;
        members.push_back(n);
        if (!takes(members)) members.pop_back();
      }
    }
  }
  return members;
}

}  // namespace

// Note [Chains of pointwise ops]
bool rule::pointwise_chain(Rewriter& r, int i) {
  if (!chainable(r, r.node(i))) return false;
  std::optional<Node> best;
  std::vector<int> members = grown_from(r, i, [&](const std::vector<int>& longer) {
    if (Obstacle obstacle = view_inside(r, longer))
      return r.miss("pointwise_chain", longer, std::move(obstacle));
    std::optional<Node> fused = make_chain(r, longer);
    if (fused) best = std::move(fused);
    return fused.has_value();
  });
  return best && r.fuse("pointwise_chain", members, std::move(*best));
}

namespace {

// Note [From a product to its end]
//   What is found is what Note [A product and its end] tells of (ops/fused/product_chain.h). The
//   rule begins at a product and grows over the readers of what it makes, as a chain does, while
//   they are pointwise, their operands are of the product's type and its shape, or broadcast to it,
//   and a place is left for all of them together. What others read of it, the product's result too,
//   is a result of the fused op. The program that comes out may have a name, linear_act say, and is
//   that rule's then; any other is product_chain's.

// A product as product_chain has it; nothing if node n is none.
std::optional<ProductChainAttrs> product_of(const Rewriter& r, const Node& n) {
  ProductChainAttrs a;
  if (n.op == &kConv2dOp) {
    const Conv2dAttrs& conv = n.attrs.as<Conv2dAttrs>();
    a = {ProductKind::conv2d, conv.stride_h, conv.stride_w, conv.pad_h, conv.pad_w};
  } else if (n.op == &kMatmulOp) {
    const MatmulAttrs& matmul = n.attrs.as<MatmulAttrs>();
    if (matmul.trans_a || matmul.trans_b) return std::nullopt;
    a.product = ProductKind::matmul;
  } else if (n.op != &kLinearOp) {
    return std::nullopt;
  }
  const Value& result = r.graph.values[n.out[0]];
  a.out = result.dtype;
  if (result.shape.numel() == 0) return std::nullopt;
  return a;
}

// The product with the program behind it as one node.
Node with_end(const Node& product, ProductChainAttrs attrs, const Growing& end) {
  attrs.program = end.program;
  Node node{.op = &kProductChainOp,
      .attrs = attrs,
      .in = product.in,
      .out = results_of(end),
      .role = product.role};
  node.in.resize(3, -1);  // the bias, or none
  node.in.insert(node.in.end(), end.known.begin() + 1, end.known.begin() + end.program.n_inputs);
  return node;
}

// A pointwise op reads what product i makes, but in a view that settle_shapes() had to leave: tells
// it, and why.
bool view_behind(Rewriter& r, int i) {
  const int sums = r.node(i).out[0];
  const auto elements = [&](int v) { return r.graph.values[v].shape.numel(); };
  const auto described = [&](int v) { return r.graph.meta(v).describe(); };
  for (const int n : r.readers(sums)) {
    const Node& reader = r.node(n);
    if (!chainable(r, reader) || reader.reads(sums)) continue;
    const int view =
        *std::ranges::find_if(reader.in, [&](int in) { return r.graph.overlap(in, sums); });
    const auto repeated = std::ranges::find_if(reader.in,
        [&](int in) { return elements(in) > 1 && elements(in) != elements(reader.out[0]); });
    std::string how = elements(view) == elements(sums) ? "in another order, " : "in part, ", beside;
    if (elements(view) == elements(sums) && r.graph.values[view].contiguous()) {
      if (repeated == reader.in.end()) continue;
      how.clear();
      beside = str(
          ", over which ", described(*repeated), " is repeated by dims that the product has not");
    }
    return r.miss("product_chain", {i, n},
        {str(reader.text(), " reads what ", r.node(i).text(), " gives, ", described(sums), ", ",
             how, "as ", described(view), beside),
            str("let ", reader.text(), " read %", sums, " itself, and operands of its shape")});
  }
  return false;
}

bool end_product(Rewriter& r, int i, profiler::StaticName label) {
  const std::optional<ProductChainAttrs> product = product_of(r, r.node(i));
  if (!product) return false;
  const int sums = r.node(i).out[0];
  const Value result = r.graph.values[sums];
  const auto fits = [&](int in) {
    return r.graph.values[in].dtype == result.dtype && broadcast_of(r.graph.meta(in), result.shape);
  };
  // The longest that may be one node; else the first of this label that may not, and why.
  struct {
    std::vector<int> members;
    Node node;
    Obstacle obstacle;
  } found;
  grown_from(r, i, [&](const std::vector<int>& longer) {
    const auto growing = program_of(r, longer, {longer.begin() + 1, longer.end()}, sums, fits);
    if (!growing) return false;
    if (!growing->has_results) return !r.obstacle_to(longer);  // too many now; they may join, too
    Node node = with_end(r.node(i), *product, *growing);
    Obstacle obstacle = r.obstacle_to(longer, &node);
    const bool joins = !obstacle;
    if (joins || (!found.node.op && node.text() == label.view()))
      found = {longer, std::move(node), std::move(obstacle)};
    return joins;
  });
  if (!found.node.op) return label == kProductChainOp.name && view_behind(r, i);
  if (found.obstacle) return r.miss(label.c_str(), found.members, std::move(found.obstacle));
  if (found.node.text() == label.view())
    return r.fuse(label.c_str(), found.members, std::move(found.node));
  // Without what others read of the product, this may be what the rule is for.
  ProductChainAttrs less = found.node.attrs.as<ProductChainAttrs>();
  if (less.program.n_outputs < 2 || found.node.out.back() != sums) return false;
  less.program.outputs[--less.program.n_outputs] = 0;
  return label_of_product(less) == label &&
         r.miss(label.c_str(), found.members,
             r.other_reader(str("what ", r.node(i).text(), " gives"), sums, found.members));
}

}  // namespace

Rule::Code rule::product_and_end(profiler::StaticName label) {
  return [label](Rewriter& r, int i) { return end_product(r, i, label); };
}

// dh = dy Wd, and glu_backward as its only reader.
bool rule::product_and_gate(Rewriter& r, int i) {
  const std::optional<ProductChainAttrs> product = product_of(r, r.node(i));
  if (!product || product->product != ProductKind::matmul) return false;
  const int dh = r.node(i).out[0], n = r.only_reader(dh);
  if (n < 0 || r.node(n).text() != "glu_backward" || r.node(n).in[0] != dh) return false;
  const Node &product_node = r.node(i), &gate = r.node(n);
  ProductChainAttrs attrs = *product;
  const auto& [program, merged] = gate.attrs.as<ChainAttrs>();
  attrs.program = program;
  attrs.merged = merged;
  Node fused{.op = &kProductChainOp,
      .attrs = attrs,
      .in = {product_node.in[0], product_node.in[1], -1, gate.in[1], gate.in[2]},
      .out = gate.out,
      .role = product_node.role};
  return r.fuse("gated_linear_backward", {i, n}, std::move(fused));
}

}  // namespace sinter::capture
