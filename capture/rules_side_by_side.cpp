#include <utility>

#include "capture/rules.h"
#include "ops/fused/activation.h"

namespace sinter::capture {
namespace {

constexpr char kMergeLinear[] = "merge_linear";

// Note [Linears side by side]
//   Two products that share an operand are one product if their other operands are neighbours in
//   memory; it is another's neighbour in turn, so that q, k and v of attention are one. A block of
//   a gated unit has such pairs forward and backward:
//
//       g = x Wg^T      (g | u) = x (Wg)^T        Wg above Wu in one storage: g and u become the
//       u = x Wu^T                  (Wu)          column halves of one result
//
//       dWg = dg^T x    (dWg)                     dg and du are halves of one tensor: so
//       dWu = du^T x    (dWu) = (dg | du)^T x     dWg and dWu become row halves
//
//       dx = dg Wg + du Wu = (dg | du) (Wg)       the sum is inside the product
//                                      (Wu)
//
//   Biases come along if they are neighbours, too. The heads of q, k and v are views of halves, and
//   move with them: [B, S, H, D] and what is transposed of it step over rows, or inside of one.
//
//   gated_linear joins g, u and h = act(g) * u, wherever its weights lie; what backward reads of g
//   and u becomes halves, too. Code, since results move to other memory, which no pattern says: all
//   readers of a half must take its strides, and no result of the step may be left behind.
//   So it is decided first, and values are added and move as the group is fused.
//   Invariant: a value that moves keeps its shape, so nodes need not change.

// `b` begins where `a` ends, along `dim`: what holds both.
std::optional<Value> whole_of(const Rewriter& r, int a, int b, int dim) {
  Value whole = r.graph.values[a], next = r.graph.values[b];
  if (whole.shape.rank() != next.shape.rank() || whole.shape.rank() > 2) return {};
  const int64_t width = std::exchange(next.shape[dim], whole.shape[dim]);
  next.offset -= whole.shape[dim] * whole.strides[dim];
  next.name = whole.name;
  if (!(next == whole)) return {};
  whole.shape[dim] += width;
  whole.name.clear();
  return whole;
}

// Its number; `part` lies in it.
int number_of(Rewriter& r, const Value& whole, int part) {
  for (const int v : r.values_beside(part)) {
    Value other = r.graph.values[v];
    other.name.clear();
    if (other == whole) return v;
  }
  return r.graph.add_value(whole);
}

// A new value of which a and b may become the halves along `dim`.
int add_whole(Rewriter& r, int a, int b, int dim) {
  Shape shape = r.graph.values[a].shape;
  shape[dim] += r.graph.values[b].shape[dim];
  return r.graph.add_local(shape, r.graph.values[a].dtype, r.graph.device_of(a));
}

// Does a view of rows of `width` step over whole rows or inside of one, so that rows may lie
// further apart?
bool keeps_to_rows(const Value& view, int64_t width) {
  int64_t last = view.offset % width;  // column of a row
  for (int d = 0; d < view.shape.rank(); ++d)
    last += std::max<int64_t>(view.shape[d] - 1, 0) * (view.strides[d] % width);
  return last < width;
}

// `parts` become those of `whole` along `dim`, with the views of them, their own parts among these.
void place_parts(Rewriter& r, int whole, const std::vector<int>& parts, int dim) {
  const Value w = r.graph.values[whole];
  int64_t begin = 0;
  for (const int part : parts) {
    const int64_t width = std::max<int64_t>(r.graph.values[part].strides[0], 1);
    // A step over rows is one over rows of the whole.
    const auto wider = [&](int64_t step) { return step / width * w.strides[0] + step % width; };
    for (const int v : r.values_beside(part)) {
      Strides strides = r.graph.values[v].strides;
      for (int d = 0; d < strides.rank(); ++d) strides[d] = wider(strides[d]);
      r.move(v, w.buffer, strides, begin + wider(r.graph.values[v].offset));
    }
    r.move(part, w.buffer, w.strides, begin);
    begin += w.strides[dim] * r.graph.values[part].shape[dim];
  }
}

// What forbids that `value` becomes a half along `dim`. Its views, as the halves of a whole, go
// with it.
Obstacle fixed_in_place(const Rewriter& r, int value, int dim) {
  const auto read_by = [&](const std::string& who, const char* remedy) {
    return Obstacle{
        str("halves of a row cannot be read by ", who), str("let ", remedy, " %", value)};
  };
  const int64_t width = std::max<int64_t>(r.graph.values[value].strides[0], 1);
  for (const int v : r.values_beside(value)) {
    if (dim == 1 && !keeps_to_rows(r.graph.values[v], width))
      return read_by("a view of it across rows", "no op view rows together of");
  }
  if (r.is_output(value)) return read_by("the caller: a result of the step", "the step not return");
  for (const int n : r.readers(value)) {
    const Node& node = r.node(n);
    for (size_t i = 0; dim == 1 && i < node.in.size(); ++i) {
      if (r.graph.overlap(node.in[i], value) &&
          !node.op->takes_strides(i, node.in.size(), node.attrs))
        return read_by(print_node(r.graph, node), "no other op read");
    }
  }
  return {};
}
Obstacle fixed_in_place(const Rewriter& r, int a, int b, int dim) {
  const Obstacle first = fixed_in_place(r, a, dim);
  return first ? first : fixed_in_place(r, b, dim);
}

bool has_bias(const Node& linear) { return linear.in.size() > 2 && linear.in[2] >= 0; }

Obstacle biases() { return {"the linears have biases", "make both without a bias"}; }

// Attention's gradients from number `first` on.
bool merge_gradients_of_layers(Rewriter& r, int i, size_t first) {
  Node node = r.node(i);
  if (node.op != &kAttentionBackwardOp) return false;
  const auto& attrs = node.attrs.as<AttentionAttrs>();
  const auto shape_of = [&](size_t j) { return r.graph.values[node.out[j]].shape; };
  if (!attrs.by_rows || attrs.merged > 0 || shape_of(first)[1] != shape_of(1)[1]) return false;
  int parts[3], weights[3];  // a gradient as a matrix of rows, and what it is multiplied by
  for (size_t j = first; j < 3; ++j) {
    parts[j] = -1;
    for (const int n : r.readers(node.out[j])) {
      const Node& product = r.node(n);
      if (product.op != &kMatmulOp) continue;
      if (const auto& m = product.attrs.as<MatmulAttrs>(); m.trans_a || m.trans_b) continue;
      parts[j] = product.in[0];
      weights[j] = product.in[1];
    }
    if (parts[j] < 0 || r.graph.values[parts[j]].shape.rank() != 2 ||
        r.graph.values[parts[j]].shape.numel() != shape_of(j).numel() ||
        fixed_in_place(r, parts[j], 1))
      return false;
    if (j > first && !whole_of(r, weights[j - 1], weights[j], 0)) return false;
  }
  Shape shape = shape_of(first);
  shape[2] += int64_t(2 - first) * shape_of(1)[2];
  const int whole =
      r.graph.add_local(shape, r.graph.values[parts[1]].dtype, r.graph.device_of(parts[1]));
  Value rows = r.graph.values[whole];
  rows.shape = {shape[0] * shape[1], shape[2] * shape[3]};
  rows.strides = contiguous_strides(rows.shape);
  const int matrix = r.graph.add_value(rows);
  node.out.resize(first);
  node.out.push_back(whole);
  node.attrs.set("merged", int64_t(3 - first));
  r.replace(i, std::move(node));
  place_parts(r, matrix, {parts + first, parts + 3}, 1);
  return true;
}

}  // namespace

// Note [Linears side by side]: two linears of one input, or the gradients of their weights.
bool rule::merge_products(Rewriter& r, int i) {
  const Node first = r.node(i);
  const bool forward = first.op == &kLinearOp;
  if (!forward && !is_weight_grad(first)) return false;
  const size_t shared = forward ? 0 : 1, other = 1 - shared;
  const int operand_dim = forward ? 0 : 1, result_dim = 1 - operand_dim;
  for (const int n : r.readers(first.in[shared])) {
    const Node second = r.node(n);
    if (n == i || second.op != first.op || second.in[shared] != first.in[shared] ||
        !(second.attrs == first.attrs))
      continue;
    const int a = first.in[other], b = second.in[other];
    const bool biased = has_bias(first) && has_bias(second);
    const std::optional<Value> bias =
        biased ? whole_of(r, first.in[2], second.in[2], 0) : std::nullopt;
    const bool differ = biased ? !bias : has_bias(first) || has_bias(second);
    const std::optional<Value> operand = differ ? std::nullopt : whole_of(r, a, b, operand_dim);
    const Obstacle obstacle = differ ? biases()
                              : operand
                                  ? fixed_in_place(r, first.out[0], second.out[0], result_dim)
                                  : Obstacle{"their weights are not neighbours in one storage",
                                        str("make %", a, " and %", b, " slices of one tensor")};
    const bool alike = operand || (i < n && r.graph.values[a].shape == r.graph.values[b].shape);
    if (forward && obstacle && alike) r.miss(kMergeLinear, {i, n}, obstacle);
    if (obstacle) continue;
    const auto merge = [&] {
      const int whole = add_whole(r, first.out[0], second.out[0], result_dim);
      Node fused{.op = first.op,
          .attrs = first.attrs,
          .in = {first.in[0], first.in[1]},
          .out = {whole},
          .role = first.role};
      fused.in[other] = number_of(r, *operand, a);
      if (bias) fused.in.push_back(number_of(r, *bias, first.in[2]));
      if (!r.fuse(kMergeLinear, {i, n}, std::move(fused))) return false;
      place_parts(r, whole, {first.out[0], second.out[0]}, result_dim);
      return true;
    };
    if (r.tried(merge)) return true;
  }
  return false;
}

// dg and du side by side, so that one product reads both.
bool rule::merge_glu_gradients(Rewriter& r, int i) {
  Node glu = r.node(i);
  if (glu.text() != "glu_backward" || glu.attrs.as<ChainAttrs>().merged) return false;
  const int dg = glu.out[0], du = glu.out[1];
  if (fixed_in_place(r, dg, du, 1)) return false;
  glu.attrs.set("merged", true);
  const int whole = add_whole(r, dg, du, 1);
  glu.out = {whole};
  r.replace(i, std::move(glu));
  place_parts(r, whole, {dg, du}, 1);
  return true;
}

// dq, dk and dv of three layers side by side, or dk and dv alone, if their weights are neighbours:
// Note [Where attention's results lie].
bool rule::merge_attention_gradients(Rewriter& r, int i) {
  return merge_gradients_of_layers(r, i, 0) || merge_gradients_of_layers(r, i, 1);
}

// dx = dg Wg + du Wu
bool rule::merge_input_gradients(Rewriter& r, int i) {
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
    const std::vector<int> x = r.node(a).in, y = r.node(b).in;
    const std::optional<Value> dy = whole_of(r, x[0], y[0], 1), weight = whole_of(r, x[1], y[1], 0);
    if (!dy || !weight) continue;
    Node fused{.op = &kMatmulOp,
        .attrs = r.node(a).attrs,
        .in = {number_of(r, *dy, x[0]), number_of(r, *weight, x[1])},
        .out = sum.out,
        .role = Role::dgrad};
    if (r.fuse(kMergeLinear, {a, b, i}, std::move(fused))) return true;
  }
  return false;
}

// g = linear(x, Wg); u = linear(x, Wu); h = glu(g, u).
bool rule::gated_linear(Rewriter& r, int i) {
  const Node glu = r.node(i);
  if (glu.text() != "glu") return false;
  const int g = glu.in[0], u = glu.in[1], a = r.producer(g), b = r.producer(u);
  if (a < 0 || b < 0 || a == b || r.node(a).op != &kLinearOp || r.node(b).op != &kLinearOp ||
      r.node(a).in[0] != r.node(b).in[0])
    return false;
  const std::vector<int> members{std::min(a, b), std::max(a, b), i};
  const auto miss = [&](Obstacle obstacle) {
    return r.miss("gated_linear", members, std::move(obstacle));
  };
  if (has_bias(r.node(a)) || has_bias(r.node(b))) return miss(biases());
  const int x = r.node(a).in[0];
  const DType in = r.graph.values[x].dtype, out = r.graph.values[g].dtype;
  if (in != out)
    return miss({str("the linears give ", name_of(out), " from ", name_of(in)),
        str("make %", g, " and %", u, " ", name_of(in))});
  const bool keep = r.read_elsewhere(g, {i}) || r.read_elsewhere(u, {i});
  if (keep) {
    if (Obstacle obstacle = fixed_in_place(r, g, u, 1)) return miss(std::move(obstacle));
  }
  Node fused{.op = &kGatedLinearOp,
      .attrs = GatedLinearAttrs{act_of(glu.attrs.as<ChainAttrs>().program), keep},
      .in = {x, r.node(a).in[1], r.node(b).in[1]},
      .out = glu.out};
  if (keep) fused.out.push_back(add_whole(r, g, u, 1));
  if (!r.fuse("gated_linear", members, fused)) return false;
  if (keep) place_parts(r, fused.out[1], {g, u}, 1);
  return true;
}

}  // namespace sinter::capture
