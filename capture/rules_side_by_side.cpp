// Linears side by side. Code, since their results move: what were two tensors become the halves of
// one, which no pattern says.
#include "capture/rule_kit.h"

namespace sinter::capture::rule {
namespace {

// `b` begins where `a` ends, row by row, in one buffer: the value that holds both, or -1.
int joined_rows(Rewriter& r, int a, int b) {
  const Value &x = r.graph.values[a], &y = r.graph.values[b];
  if (x.buffer != y.buffer || x.dtype != y.dtype || x.shape != y.shape || x.shape.rank() != 2)
    return -1;
  if (!x.contiguous() || !y.contiguous() || y.offset != x.offset + x.shape.numel()) return -1;
  const Value whole{.buffer = x.buffer,
      .dtype = x.dtype,
      .shape = {2 * x.shape[0], x.shape[1]},
      .strides = x.strides,
      .offset = x.offset};
  for (const int v : r.values_beside(a)) {
    Value other = r.graph.values[v];
    other.name.clear();
    if (other == whole) return v;
  }
  return r.add_value(whole);
}

// The value of which a and b are the column halves, or -1.
int joined_cols(const Rewriter& r, int a, int b) {
  const Value &x = r.graph.values[a], &y = r.graph.values[b];
  if (x.buffer != y.buffer || x.shape != y.shape || x.shape.rank() != 2) return -1;
  if (x.strides != y.strides || y.offset != x.offset + x.shape[1]) return -1;
  for (const int v : r.values_beside(a)) {
    const Value& w = r.graph.values[v];
    const bool both = w.shape == Shape{x.shape[0], 2 * x.shape[1]} && w.offset == x.offset;
    if (both && w.contiguous() && w.strides == x.strides) return v;
  }
  return -1;
}

// Makes a and b the column halves (dim 1) or row halves (dim 0) of `whole`.
void place_halves(Rewriter& r, int whole, int a, int b, int dim) {
  const Value w = r.graph.values[whole];
  for (const int half : {0, 1}) {
    const int value = half ? b : a;
    r.move(value, w.buffer, w.strides,
        w.offset + half * w.strides[dim] * r.graph.values[value].shape[dim]);
  }
}

// May `value` be moved to memory where its rows are not dense? `who` is the reader that forbids it.
bool takes_strides(const Rewriter& r, int value, std::string* who) {
  if (!r.values_beside(value).empty()) {
    *who = "a view of it";
    return false;
  }
  for (const int n : r.readers(value)) {
    const Node& node = r.node(n);
    for (size_t i = 0; i < node.in.size(); ++i) {
      if (node.in[i] == value && !node.op->takes_strides(i, node.in.size())) {
        *who = print_node(r.graph, node);
        return false;
      }
    }
  }
  return !r.is_output(value);
}

}  // namespace

// ---- merge_linear: two linears of one input, whose weights are neighbours in one storage, as one
// product; with their backward.
void merge_linear(Rewriter& r) {
  each_node(r, [&](int i) {  // forward
    const Node first = r.node(i);
    if (first.op != &kLinearOp) return false;
    for (const int n : r.readers(first.in[0])) {
      const Node second = r.node(n);
      if (n == i || second.op != &kLinearOp || second.in[0] != first.in[0] ||
          !(second.attrs == first.attrs))
        continue;
      const bool bias =
          (first.in.size() > 2 && first.in[2] >= 0) || (second.in.size() > 2 && second.in[2] >= 0);
      const int weight = bias ? -1 : joined_rows(r, first.in[1], second.in[1]);
      if (weight < 0) {
        if (i < n && r.graph.values[first.in[1]].shape == r.graph.values[second.in[1]].shape)
          r.miss("merge_linear", {i, n},
              bias ? "they have biases" : "their weights are not neighbours in one storage", 1);
        continue;
      }
      std::string who;
      if (!takes_strides(r, first.out[0], &who) || !takes_strides(r, second.out[0], &who)) {
        r.miss("merge_linear", {i, n}, cat("halves of a row cannot be read by ", who), 1);
        continue;
      }
      const Value y = r.graph.values[first.out[0]];
      const int whole =
          r.add_local({y.shape[0], 2 * y.shape[1]}, y.dtype, r.graph.device_of(first.out[0]));
      if (r.fuse("merge_linear", {i, n},
              {.op = &op_named("merge_linear"),
                  .attrs = first.attrs,
                  .in = {first.in[0], weight},
                  .out = {whole}})) {
        place_halves(r, whole, first.out[0], second.out[0], 1);
        return true;
      }
    }
    return false;
  });
  each_node(r, [&](int i) {  // dg and du side by side, so that one product reads both
    const Node& node = r.node(i);
    if (node.op->text() != "glu_backward" || node.attrs.as<GluAttrs>().merged) return false;
    const int dg = node.out[0], du = node.out[1];
    std::string who;
    if (!takes_strides(r, dg, &who) || !takes_strides(r, du, &who)) return false;
    const Value half = r.graph.values[dg];
    const int whole =
        r.add_local({half.shape[0], 2 * half.shape[1]}, half.dtype, r.graph.device_of(dg));
    GluAttrs attrs = node.attrs.as<GluAttrs>();
    attrs.merged = true;
    Node merged = node;
    merged.attrs = attrs;
    merged.out = {whole};
    r.replace(i, std::move(merged));
    place_halves(r, whole, dg, du, 1);
    return true;
  });
  each_node(r, [&](int i) {  // dW of both: matmul(dg^T, x), matmul(du^T, x)
    const Node first = r.node(i);
    if (!is_weight_grad(first)) return false;
    for (const int n : r.readers(first.in[1])) {
      const Node second = r.node(n);
      if (n == i || !is_weight_grad(second) || second.in[1] != first.in[1] ||
          !(second.attrs == first.attrs))
        continue;
      const int whole_dy = joined_cols(r, first.in[0], second.in[0]);
      if (whole_dy < 0 || r.is_output(first.out[0]) || r.is_output(second.out[0])) continue;
      const Value dw = r.graph.values[first.out[0]];
      const int whole =
          r.add_local({2 * dw.shape[0], dw.shape[1]}, dw.dtype, r.graph.device_of(first.out[0]));
      if (r.fuse("merge_linear", {i, n},
              {.op = &kMatmulOp,
                  .attrs = first.attrs,
                  .in = {whole_dy, first.in[1]},
                  .out = {whole},
                  .role = Role::wgrad})) {
        place_halves(r, whole, first.out[0], second.out[0], 0);
        return true;
      }
    }
    return false;
  });
  each_node(r, [&](int i) {  // dx = matmul(dg, Wg) + matmul(du, Wu)
    const Node sum = r.node(i);
    if (sum.op->text() != "add") return false;
    for (const int which : {0, 1}) {
      const int a = r.producer(sum.in[which]), b = r.producer(sum.in[1 - which]);
      if (a < 0 || b < 0 || a == b || r.node(a).op != &kMatmulOp || r.node(b).op != &kMatmulOp ||
          !(r.node(a).attrs == r.node(b).attrs))
        continue;
      const MatmulAttrs& m = r.node(a).attrs.as<MatmulAttrs>();
      if (m.trans_a || m.trans_b || r.only_reader(sum.in[0]) != i || r.only_reader(sum.in[1]) != i)
        continue;
      const int dy = joined_cols(r, r.node(a).in[0], r.node(b).in[0]);
      const int weight = dy < 0 ? -1 : joined_rows(r, r.node(a).in[1], r.node(b).in[1]);
      if (weight < 0) continue;
      if (r.fuse("merge_linear", {a, b, i},
              {.op = &kMatmulOp,
                  .attrs = r.node(a).attrs,
                  .in = {dy, weight},
                  .out = sum.out,
                  .role = Role::dgrad}))
        return true;
    }
    return false;
  });
}

// ---- gated_linear: g = linear(x, Wg); u = linear(x, Wu); h = glu(g, u). Where backward reads g
// and u, they become halves of one tensor.
void gated_linear(Rewriter& r) {
  each_node(r, [&](int i) {
    const Node glu = r.node(i);
    if (glu.op != &kGluOp) return false;
    const int g = glu.in[0], u = glu.in[1], a = r.producer(g), b = r.producer(u);
    if (a < 0 || b < 0 || a == b || r.node(a).op != &kLinearOp || r.node(b).op != &kLinearOp ||
        r.node(a).in[0] != r.node(b).in[0])
      return false;
    const std::vector<int> members{std::min(a, b), std::max(a, b), i};
    const auto miss = [&](std::string why) {
      r.miss("gated_linear", members, std::move(why), 2);
      return false;
    };
    const auto has_bias = [&](int n) { return r.node(n).in.size() > 2 && r.node(n).in[2] >= 0; };
    if (has_bias(a) || has_bias(b)) return miss("the linears have biases");
    const Value x = r.graph.values[r.node(a).in[0]], half = r.graph.values[g];
    if (half.dtype != x.dtype)
      return miss(cat("the linears give ", name_of(half.dtype), " from ", name_of(x.dtype)));
    const bool keep = !others(r, g, {i}).empty() || !others(r, u, {i}).empty();
    Node fused{.op = &kGatedLinearOp,
        .attrs = GatedLinearAttrs{glu.attrs.as<GluAttrs>().act, keep},
        .in = {r.node(a).in[0], r.node(a).in[1], r.node(b).in[1]},
        .out = glu.out};
    if (keep) {
      std::string who = "the caller: a result of the step";
      if (!takes_strides(r, g, &who) || !takes_strides(r, u, &who))
        return miss(cat("halves of a row cannot be read by ", who));
      fused.out.push_back(
          r.add_local({half.shape[0], 2 * half.shape[1]}, half.dtype, r.graph.device_of(g)));
    }
    if (!r.fuse("gated_linear", members, fused)) return false;
    if (keep) place_halves(r, fused.out[1], g, u, 1);
    return true;
  });
}

}  // namespace sinter::capture::rule
