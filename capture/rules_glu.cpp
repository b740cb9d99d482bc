// Rules of gated linear units, and of linears side by side.
#include "capture/rule_kit.h"

namespace sinter::capture::rule {
namespace {

bool is_gate(const Activation* a) { return a && (a->act == Act::gelu || a->act == Act::gelu_tanh || a->act == Act::silu); }
const OpDef* mul_op() {
  static const OpDef* op = &op_named("mul");
  return op;
}

// `b` begins where `a` ends, row by row, in one buffer: the value that holds both, or -1.
int joined_rows(Graph& g, int a, int b) {
  const Value &x = g.values[a], &y = g.values[b];
  if (x.buffer != y.buffer || x.dtype != y.dtype || x.shape != y.shape || x.shape.rank() != 2 || !x.contiguous() || !y.contiguous()) return -1;
  if (y.offset != x.offset + x.shape.numel()) return -1;
  const Value whole{.buffer = x.buffer, .dtype = x.dtype, .shape = {2 * x.shape[0], x.shape[1]}, .strides = x.strides, .offset = x.offset};
  for (size_t v = 0; v < g.values.size(); ++v) {
    Value other = g.values[v];
    other.name.clear();
    if (other == whole) return static_cast<int>(v);
  }
  return g.add_value(whole);
}
// Makes a and b the column halves (dim 1) or row halves (dim 0) of `whole`.
void place_halves(Graph& g, int whole, int a, int b, int dim) {
  const Value w = g.values[whole];
  for (const int half : {0, 1}) {
    Value& v = g.values[half ? b : a];
    v.buffer = w.buffer;
    v.strides = w.strides;
    v.offset = w.offset + half * w.strides[dim] * v.shape[dim];
  }
}
// May `value` be moved to memory where its rows are not dense? `who` is the reader that forbids it.
bool takes_strides(const Rewriter& r, int value, std::string* who) {
  for (size_t v = 0; v < r.graph.values.size(); ++v) {
    if (static_cast<int>(v) == value || r.graph.values[v].buffer != r.graph.values[value].buffer) continue;
    *who = "a view of it";
    return false;
  }
  for (const int n : r.graph.readers(value)) {
    for (size_t i = 0; i < r.graph.nodes[n].in.size(); ++i) {
      if (r.graph.nodes[n].in[i] == value && !r.graph.nodes[n].op->takes_strides(i, r.graph.nodes[n].in.size())) {
        *who = print_node(r.graph, r.graph.nodes[n]);
        return false;
      }
    }
  }
  return !r.graph.is_output(value);
}

}  // namespace


// ---- glu: h = mul(act(g), u)
void glu(Rewriter& r) {
  each_node(r, [&](int i) {
    const Node gate = r.node(i);
    const Activation* a = activation_of(gate.op, false);
    if (!is_gate(a) || r.graph.values[gate.in[0]].shape.rank() != 2) return false;
    const int n = find_reader(r, gate.out[0], mul_op());
    if (n < 0) return false;
    const Node product = r.node(n);
    const int u = product.in[0] == gate.out[0] ? product.in[1] : product.in[0];
    if (u == gate.out[0] || r.graph.values[u].shape != r.graph.values[gate.in[0]].shape) return false;
    if (const std::string other = others(r, gate.out[0], {n}); !other.empty()) {
      r.miss("glu", {i, n}, cat("act(g) is also read by ", other), 1);
      return false;
    }
    return r.fuse("glu", {i, n}, {.op = &op_named("glu"), .attrs = GluAttrs{.act = a->act}, .in = {gate.in[0], u}, .out = product.out});
  });
}

// ---- glu_backward: t = mul(dh, u); du = mul(dh, act(g)); dg = act_backward(t, g)
void glu_backward(Rewriter& r) {
  each_node(r, [&](int i) {
    const Node back = r.node(i);
    const Activation* a = activation_of(back.op, true);
    if (!is_gate(a) || r.graph.values[back.in[1]].shape.rank() != 2) return false;
    const int t = back.in[0], g = back.in[1], first = r.graph.producer(t);
    if (first < 0 || r.node(first).op != mul_op()) return false;
    // Which operand of t is dh? The one that is also multiplied by act(g).
    for (const int which : {0, 1}) {
      const int dh = r.node(first).in[which], u = r.node(first).in[1 - which];
      for (const int n : r.graph.readers(dh)) {
        const Node& second = r.node(n);
        if (n == first || second.op != mul_op() || !second.reads(dh)) continue;
        const int gated = second.in[0] == dh ? second.in[1] : second.in[0];
        const int maker = r.graph.producer(gated);
        if (maker < 0 || r.node(maker).op != a->forward || r.node(maker).in[0] != g) continue;
        const Shape& shape = r.graph.values[g].shape;
        if (r.graph.values[u].shape != shape || r.graph.values[dh].shape != shape) continue;
        if (const std::string other = others(r, t, {i}); !other.empty()) {
          r.miss("glu_backward", {first, n, i}, cat("dh * u is also read by ", other), 2);
          continue;
        }
        Node fused{.op = &op_named("glu_backward"), .attrs = GluAttrs{.act = a->act}, .in = {dh, g, u}, .out = {back.out[0], second.out[0]}};
        if (r.fuse("glu_backward", {first, n, i}, fused)) return true;
      }
    }
    return false;
  });
}

// ---- merge_linear: two linears of one input, whose weights are neighbours in one storage, as one product; with their backward.
void merge_linear(Rewriter& r) {
  each_node(r, [&](int i) {  // forward
    const Node first = r.node(i);
    if (first.op != &kLinearOp) return false;
    for (const int n : r.graph.readers(first.in[0])) {
      const Node second = r.node(n);
      if (n == i || second.op != &kLinearOp || second.in[0] != first.in[0] || !(second.attrs == first.attrs)) continue;
      const bool bias = (first.in.size() > 2 && first.in[2] >= 0) || (second.in.size() > 2 && second.in[2] >= 0);
      const int weight = bias ? -1 : joined_rows(r.graph, first.in[1], second.in[1]);
      if (weight < 0) {
        if (i < n && r.graph.values[first.in[1]].shape == r.graph.values[second.in[1]].shape)
          r.miss("merge_linear", {i, n}, bias ? "they have biases" : "their weights are not neighbours in one storage", 1);
        continue;
      }
      std::string who;
      if (!takes_strides(r, first.out[0], &who) || !takes_strides(r, second.out[0], &who)) {
        r.miss("merge_linear", {i, n}, cat("halves of a row cannot be read by ", who), 1);
        continue;
      }
      const Value y = r.graph.values[first.out[0]];
      const int whole = r.graph.add_local({y.shape[0], 2 * y.shape[1]}, y.dtype, r.graph.device_of(first.out[0]));
      if (r.fuse("merge_linear", {i, n}, {.op = &op_named("merge_linear"), .attrs = first.attrs, .in = {first.in[0], weight}, .out = {whole}})) {
        place_halves(r.graph, whole, first.out[0], second.out[0], 1);
        return true;
      }
    }
    return false;
  });
  each_node(r, [&](int i) {  // dg and du side by side, so that one product reads both
    Node& node = r.node(i);
    if (node.op->text() != "glu_backward" || node.attrs.as<GluAttrs>().merged) return false;
    const int dg = node.out[0], du = node.out[1];
    std::string who;
    if (!takes_strides(r, dg, &who) || !takes_strides(r, du, &who)) return false;
    const Value half = r.graph.values[dg];
    const int whole = r.graph.add_local({half.shape[0], 2 * half.shape[1]}, half.dtype, r.graph.device_of(dg));
    GluAttrs attrs = node.attrs.as<GluAttrs>();
    attrs.merged = true;
    node.attrs = attrs;
    node.out = {whole};
    place_halves(r.graph, whole, dg, du, 1);
    return true;
  });
  // The value of which a and b are the column halves, or -1.
  const auto joined_cols = [&](int a, int b) {
    const Value &x = r.graph.values[a], &y = r.graph.values[b];
    for (size_t v = 0; v < r.graph.values.size() && x.buffer == y.buffer; ++v) {
      const Value& w = r.graph.values[v];
      const bool fits = w.buffer == x.buffer && w.shape.rank() == 2 && w.contiguous() && w.shape[0] == x.shape[0] && w.shape[1] == 2 * x.shape[1] &&
                        x.shape == y.shape && x.strides == w.strides && y.strides == w.strides && x.offset == w.offset && y.offset == x.offset + x.shape[1];
      if (fits) return static_cast<int>(v);
    }
    return -1;
  };
  each_node(r, [&](int i) {  // dW of both: matmul(dg^T, x), matmul(du^T, x)
    const Node first = r.node(i);
    if (!is_weight_grad(first)) return false;
    for (const int n : r.graph.readers(first.in[1])) {
      const Node second = r.node(n);
      if (n == i || !is_weight_grad(second) || second.in[1] != first.in[1] || !(second.attrs == first.attrs)) continue;
      const int whole_dy = joined_cols(first.in[0], second.in[0]);
      if (whole_dy < 0 || r.graph.is_output(first.out[0]) || r.graph.is_output(second.out[0])) continue;
      const Value dw = r.graph.values[first.out[0]];
      const int whole = r.graph.add_local({2 * dw.shape[0], dw.shape[1]}, dw.dtype, r.graph.device_of(first.out[0]));
      if (r.fuse("merge_linear", {i, n}, {.op = &kMatmulOp, .attrs = first.attrs, .in = {whole_dy, first.in[1]}, .out = {whole}, .role = Role::wgrad})) {
        place_halves(r.graph, whole, first.out[0], second.out[0], 0);
        return true;
      }
    }
    return false;
  });
  each_node(r, [&](int i) {  // dx = matmul(dg, Wg) + matmul(du, Wu)
    const Node sum = r.node(i);
    if (sum.op->text() != "add") return false;
    for (const int which : {0, 1}) {
      const int a = r.graph.producer(sum.in[which]), b = r.graph.producer(sum.in[1 - which]);
      if (a < 0 || b < 0 || a == b || r.node(a).op != &kMatmulOp || r.node(b).op != &kMatmulOp || !(r.node(a).attrs == r.node(b).attrs)) continue;
      const MatmulAttrs& m = r.node(a).attrs.as<MatmulAttrs>();
      if (m.trans_a || m.trans_b || r.only_reader(sum.in[0]) != i || r.only_reader(sum.in[1]) != i) continue;
      const int dy = joined_cols(r.node(a).in[0], r.node(b).in[0]);
      const int weight = dy < 0 ? -1 : joined_rows(r.graph, r.node(a).in[1], r.node(b).in[1]);
      if (weight < 0) continue;
      if (r.fuse("merge_linear", {a, b, i}, {.op = &kMatmulOp, .attrs = r.node(a).attrs, .in = {dy, weight}, .out = sum.out, .role = Role::dgrad})) return true;
    }
    return false;
  });
}

// ---- gated_linear: g = linear(x, Wg); u = linear(x, Wu); h = glu(g, u). Where backward reads g and u, they become halves of one tensor.
void gated_linear(Rewriter& r) {
  each_node(r, [&](int i) {
    const Node glu = r.node(i);
    if (glu.op != &kGluOp) return false;
    const int g = glu.in[0], u = glu.in[1], a = r.graph.producer(g), b = r.graph.producer(u);
    if (a < 0 || b < 0 || a == b || r.node(a).op != &kLinearOp || r.node(b).op != &kLinearOp || r.node(a).in[0] != r.node(b).in[0]) return false;
    const std::vector<int> members{std::min(a, b), std::max(a, b), i};
    const auto miss = [&](std::string why) {
      r.miss("gated_linear", members, std::move(why), 2);
      return false;
    };
    const auto has_bias = [&](int n) { return r.node(n).in.size() > 2 && r.node(n).in[2] >= 0; };
    if (has_bias(a) || has_bias(b)) return miss("the linears have biases");
    const Value x = r.graph.values[r.node(a).in[0]], half = r.graph.values[g];
    if (half.dtype != x.dtype) return miss(cat("the linears give ", name_of(half.dtype), " from ", name_of(x.dtype)));
    const bool keep = !others(r, g, {i}).empty() || !others(r, u, {i}).empty();
    Node fused{.op = &kGatedLinearOp, .attrs = GatedLinearAttrs{glu.attrs.as<GluAttrs>().act, keep}, .in = {r.node(a).in[0], r.node(a).in[1], r.node(b).in[1]},
               .out = glu.out};
    if (keep) {
      std::string who = "the caller: a result of the step";
      if (!takes_strides(r, g, &who) || !takes_strides(r, u, &who)) return miss(cat("halves of a row cannot be read by ", who));
      fused.out.push_back(r.graph.add_local({half.shape[0], 2 * half.shape[1]}, half.dtype, r.graph.device_of(g)));
    }
    if (!r.fuse("gated_linear", members, fused)) return false;
    if (keep) place_halves(r.graph, fused.out[1], g, u, 1);
    return true;
  });
}

// ---- gated_linear_backward: dh = matmul(dy, Wd); dg, du = glu_backward(dh, g, u)
void gated_linear_backward(Rewriter& r) {
  each_node(r, [&](int i) {
    const Node glu = r.node(i);
    const int product = glu.op == &kGluBackwardOp ? r.graph.producer(glu.in[0]) : -1;
    if (product < 0 || r.node(product).op != &kMatmulOp) return false;
    const Node& made = r.node(product);
    const MatmulAttrs& m = made.attrs.as<MatmulAttrs>();
    if (m.trans_a || m.trans_b || m.out != r.graph.values[made.in[0]].dtype) return false;
    if (const std::string other = others(r, glu.in[0], {i}); !other.empty()) {
      r.miss("gated_linear_backward", {product, i}, cat("dh is also read by ", other), 1);
      return false;
    }
    return r.fuse("gated_linear_backward", {product, i},
                  {.op = &kGatedLinearBackwardOp, .attrs = glu.attrs, .in = {made.in[0], made.in[1], glu.in[1], glu.in[2]}, .out = glu.out, .role = Role::dgrad});
  });
}

}  // namespace sinter::capture::rule
