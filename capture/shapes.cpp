#include <algorithm>
#include <map>

#include "capture/rules.h"
#include "ops/ops.h"

namespace sinter::capture {

// Note [A value in another shape]
//   A layer of x[B, T, I] is a product of B T rows between two views, and what comes behind it
//   reads the second one:
//
//       recorded                             settled
//       %5[B T, O]  = linear(%3, W)          %5[B T, O] = linear(%3, W)
//       %6[B, T, O] = %5, a view             %9[B T, O] = relu(%5)
//       %7[B, T, O] = relu(%6)               %7[B, T, O] = %9, a view
//       %8[B T, O]  = %7, a view             .. = linear(%9, W2), as %8 is %9
//
//   A dense value in another shape has the same elements in the same order, and an op of single
//   elements does not care. So it is given the shape in which a product made an operand of it, or,
//   where none did, another op of single elements. Then no rule need know of views: the groups are
//   those of a step of two dims. Other operands come along where the new shape repeats them alike:
//   whole, a number, and rows or columns of what is whole in both shapes. Where one cannot, or only
//   a part of the product is read, the op stays as it was, and the rule of product_chain tells it.
//   A norm's backward is an op of rows, and comes along where these stay. Rows of another length
//   are left alone in four dims: those are images, whose own products take them as they are.

namespace {

// Of rows, of which it does not care how they are numbered.
bool is_of_rows(const Node& n) {
  return n.op == &kLayerNormBackwardOp || n.op == &kRmsNormBackwardOp;
}

// How many operands of an op of single elements, or of rows, have its result's shape, from the
// first on; 0 for other ops. Dropout's numbers are those of its elements, counted from first_row().
size_t operands_by_element(const Node& n) {
  if (n.op == &kCastOp || (n.op == &kDropoutOp && n.attrs.as<DropoutAttrs>().first_row == 0))
    return 1;
  if (is_of_rows(n)) return 2;
  const auto pointwise = pointwise_ops();
  return std::ranges::find(pointwise, n.op) == pointwise.end() ? 0 : n.in.size();
}

// The shape of an operand that is repeated to `to` as one of `shape` is to `from`; nothing if there
// is none. Dims of both are taken together in the smallest groups of as many elements, and of each
// group the operand must have all or one.
std::optional<Shape> repeated_alike(const Shape& shape, const Shape& from, const Shape& to) {
  const int missing = from.rank() - shape.rank();
  const auto size = [&](int d) { return d < missing ? 1 : shape[d - missing]; };
  Shape out;
  int t = 0;
  for (int f = 0; f < from.rank();) {
    int64_t own = size(f), before = from[f++], after = 1;
    const int first = t;
    while (before != after) {
      if (after < before) {
        after *= to[t++];
      } else {
        own *= size(f);
        before *= from[f++];
      }
    }
    if (own != 1 && own != before) return std::nullopt;
    for (int d = first; d < t; ++d) {
      if (out.rank() > 0 || own > 1) out.push_back(own > 1 ? to[d] : 1);
    }
  }
  while (out.rank() > 0 && t++ < to.rank()) out.push_back(1);
  return out;
}

class Shapes {
 public:
  explicit Shapes(Rewriter& r) : r_(r) {
    for (int n = 0; n < int(r.graph.nodes.size()); ++n) {
      if (r.alive(n)) settle(n);
      for (const int out : r.node(n).out) made_[r.graph.values[out].buffer] = {n, out};
    }
  }

 private:
  using Made = std::pair<int, int>;  // the node, its result

  // The dense value in another shape.
  int in_shape(int value, const Shape& shape) {
    Value wanted = r_.graph.values[value];
    if (wanted.shape == shape) return value;
    wanted.shape = shape;
    wanted.strides = contiguous_strides(shape);
    for (const int other : r_.values_beside(value)) {
      wanted.name = r_.graph.values[other].name;
      if (r_.graph.values[other] == wanted) return other;
    }
    wanted.name.clear();
    return r_.graph.add_value(std::move(wanted));
  }

  // What made the elements of a dense value, all of them and no others; or nullptr.
  const Made* maker(int value) const {
    const Value& v = r_.graph.values[value];
    const auto found = made_.find(v.buffer);
    if (!v.contiguous() || found == made_.end()) return nullptr;
    const Value& made = r_.graph.values[found->second.second];
    return made.contiguous() && made.dtype == v.dtype && made.offset == v.offset &&
                   made.shape.numel() == v.shape.numel()
               ? &found->second
               : nullptr;
  }

  void settle(int i) {
    const Node& n = r_.node(i);
    const size_t count = operands_by_element(n);
    if (count == 0) return;
    const Shape from = r_.graph.values[n.out[0]].shape;
    const auto other_shape = [&](int out) { return r_.graph.values[out].shape != from; };
    if (from.numel() <= 1 || std::ranges::any_of(n.out, other_shape)) return;
    const Made* like = nullptr;
    for (size_t k = 0; k < count; ++k) {
      const Made* const made = maker(n.in[k]);
      if (!made || r_.graph.values[made->second].shape.numel() != from.numel()) continue;
      const Node& other = r_.node(made->first);
      const bool product =
          other.op == &kLinearOp || other.op == &kMatmulOp || other.op == &kConv2dOp;
      if (product || (!like && operands_by_element(other) > 0)) like = made;
      if (product) break;
    }
    if (!like) return;
    const Shape to = r_.graph.values[like->second].shape;
    const bool other_rows = to.rank() == 0 || from.rank() == 0 || to[-1] != from[-1];
    if (to == from || ((from.rank() == 4 || is_of_rows(n)) && other_rows)) return;
    reshape(i, count, from, to);
  }

  void reshape(int i, size_t count, const Shape& from, const Shape& to) {
    Node n = r_.node(i);
    std::vector<Shape> shapes;
    for (size_t k = 0; k < count; ++k) {
      const Value& v = r_.graph.values[n.in[k]];
      const bool number = v.shape.numel() == 1 && v.shape.rank() <= to.rank();
      const auto shape = number ? v.shape : repeated_alike(v.shape, from, to);
      if (!shape || !v.contiguous()) return;
      shapes.push_back(*shape);
    }
    const std::vector<int> given = n.in;
    for (size_t k = 0; k < count; ++k) {
      const size_t first = size_t(std::ranges::find(given, given[k]) - given.begin());
      n.in[k] = first < k ? n.in[first] : in_shape(given[k], shapes[k]);
    }
    for (int& out : n.out) out = in_shape(out, to);
    r_.replace(i, std::move(n));
  }

  Rewriter& r_;
  std::map<int, Made> made_;  // by buffer, of the nodes so far
};

}  // namespace

void settle_shapes(Rewriter& r) { Shapes{r}; }

}  // namespace sinter::capture
