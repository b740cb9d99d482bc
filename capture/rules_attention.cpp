#include <set>
#include <span>
#include <utility>

#include "capture/rules.h"

namespace sinter::capture {
namespace {

// Note [Attention in a step]
//   Written by hand, attention is a product, a softmax and a product, with a factor before or
//   behind the first; backward are four products round the softmax's gradient:
//
//       q' = c q                        dw = do v^T      dv = w^T do
//       s  = q' k^T, or c (q k^T)       ds = softmax_backward(dw, w)
//       w  = softmax(s)                 dq' = ds k       dk = ds^T q'
//       o  = w v                        dq = c dq'
//
//   `attention` gives o and a number of each row, from which its backward makes w anew. So s, w, dw
//   and ds, [S, T] of each head, are in no memory, and both directions change together or not at
//   all. Where heads share a k and v, the products of backward are summed over them, which is the
//   op's, too. Code, since a pattern has one direction, and since a product says the same with its
//   operands turned: who writes k^T as a view gets dk^T, whose memory is turned with all its views.

constexpr char kName[] = "attention";

Value exchanged(Value v, int a, int b) {
  std::swap(v.shape[a], v.shape[b]);
  std::swap(v.strides[a], v.strides[b]);
  return v;
}
// A matrix with its last two dims exchanged; heads [B, H, S, D] as rows [B, S, H, D], or back.
Value turned(Value v) { return exchanged(std::move(v), -1, -2); }
Value by_rows(Value v) { return exchanged(std::move(v), 1, 2); }

// The same elements of the same memory; where there is one, a stride says nothing.
bool same(const Value& a, const Value& b) {
  bool same =
      a.buffer == b.buffer && a.dtype == b.dtype && a.shape == b.shape && a.offset == b.offset;
  for (int d = 0; same && d < a.shape.rank(); ++d)
    same = a.shape[d] <= 1 || a.strides[d] == b.strides[d];
  return same;
}

class Search {
 public:
  explicit Search(Rewriter& r) : r_(r) {}

  // The group of which the softmax is node i, fused or told.
  bool fuse(int i) {
    softmax_ = i;
    weights_ = r_.node(i).out[0];
    if (!find_scores() || !find_out()) return false;
    std::vector<int> members{scores_, i, out_};
    for (const int scale : {before_, after_}) {
      if (scale >= 0) members.push_back(scale);
    }
    std::ranges::sort(members);
    Obstacle obstacle = in_the_way_;
    if (!obstacle) obstacle = unfit_shapes();
    if (!obstacle && r_.find_reader(weights_, kSoftmaxBackwardOp) >= 0) obstacle = find_backward();
    std::vector<int> all = members;
    all.insert(all.end(), back_.begin(), back_.end());
    std::ranges::sort(all);
    for (const int n : all) {
      const bool result = n == out_ || std::ranges::find(last_, n) != last_.end();
      if (!obstacle && !result)
        obstacle =
            r_.other_reader(str("what ", r_.node(n).text(), " gives"), r_.node(n).out[0], all);
    }
    for (const Gradient& g : grads_) {
      if (!obstacle && g.turned) obstacle = fixed(g.value);
    }
    if (obstacle) return r_.miss(kName, members, std::move(obstacle));
    return replace(members);
  }

 private:
  struct Gradient {
    int value = -1;
    bool turned = false;
  };

  bool is_product(int n) const { return n >= 0 && r_.node(n).op == &kMatmulOp; }
  bool is_scale(int n) const { return n >= 0 && r_.node(n).text() == "scale"; }
  double factor(int n) const { return *r_.node(n).attrs.fields()[0].as<double>(); }
  bool is_transposed(int n, int side) const {
    const auto& attrs = r_.node(n).attrs.as<MatmulAttrs>();
    return side == 0 ? attrs.trans_a : attrs.trans_b;
  }
  // What a product multiplies.
  Value matrix(int n, int side) const {
    const Value& v = at(r_.node(n).in[side]);
    return is_transposed(n, side) ? turned(v) : v;
  }
  // That, or it turned, as a value of the step.
  int value(int n, int side, bool turn = false) {
    const int v = r_.node(n).in[side];
    if (is_transposed(n, side) == turn) return v;
    return r_.graph.add_value(turned(at(v)));
  }
  const Value& at(int value) const { return r_.graph.values[value]; }

  // s, and what lies between it and the softmax.
  bool find_scores() {
    int n = r_.producer(r_.node(softmax_).in[0]);
    if (n >= 0 && !is_product(n) && !is_scale(n)) {
      for (const int operand : r_.node(n).in) {
        const int made = operand < 0 ? -1 : r_.producer(operand);
        if (!is_product(made) && !is_scale(made)) continue;
        in_the_way_ = {
            str("its scores go through ", r_.node(n).text(), ", by numbers that are data"),
            "softmax(scores, -1, true), if the mask is causal"};
        n = made;
        break;
      }
    }
    if (is_scale(n)) {
      after_ = n;
      n = r_.producer(r_.node(n).in[0]);
    }
    if (!is_product(n)) return false;
    scores_ = n;
    const int q = is_transposed(n, 0) ? -1 : r_.producer(r_.node(n).in[0]);
    if (is_scale(q) && after_ < 0) before_ = q;
    return true;
  }

  bool find_out() {
    const Value& w = at(weights_);
    for (const int n : r_.readers(weights_)) {
      if (r_.node(n).op == &kDropoutOp) {
        for (const int reader : r_.readers(r_.node(n).out[0])) {
          if (is_product(reader) && out_ < 0) out_ = reader;
        }
        in_the_way_ = {"dropout draws from its weights, which are in no memory",
            "no dropout inside attention"};
        if (out_ >= 0) return true;
      }
      if (!is_product(n)) continue;
      if (same(matrix(n, 0), w) && !is_transposed(n, 0)) out_ = n;
    }
    return out_ >= 0;
  }

  Obstacle unfit_shapes() const {
    const Value q = matrix(scores_, 0), k = turned(matrix(scores_, 1)), v = matrix(out_, 1);
    const bool four = q.shape.rank() == 4 && k.shape.rank() == 4 && v.shape.rank() == 4;
    if (!four)
      return {str("its operands have ", q.shape.rank(), ", ", k.shape.rank(), " and ",
                  v.shape.rank(), " dims; 4 each"),
          "q[B, H, S, D], k and v[B, G, T, D]"};
    const bool shared = k.shape[1] == q.shape[1] || k.shape[1] == 1;
    if (q.shape[0] != k.shape[0] || q.shape[0] != v.shape[0] || k.shape[1] != v.shape[1] || !shared)
      return {str("its products broadcast ", q.shape.str(), " to ", k.shape.str(), " and ",
                  v.shape.str()),
          "q[B, H, S, D], k and v[B, G, T, D]"};
    return v.shape[3] == q.shape[3] ? Obstacle()
                                    : Obstacle{str("a head of v has ", v.shape[3],
                                                   " columns, one of q and k ", q.shape[3]),
                                          "give both as many"};
  }

  // The product a b among the readers of a value, or b^T a^T; what it gives is that of operand i.
  bool take_gradient(int i, const Value& of, const Value& a, const Value& b, int reads) {
    for (const int n : r_.readers(reads)) {
      if (!is_product(n) || std::ranges::find(back_, n) != back_.end()) continue;
      const Value x = matrix(n, 0), y = matrix(n, 1);
      const bool straight = same(x, a) && same(y, b);
      if (!straight && !(same(x, turned(b)) && same(y, turned(a)))) continue;
      back_.push_back(n);
      Gradient g{r_.node(n).out[0], !straight};
      const Shape wanted = straight ? of.shape : turned(of).shape;
      if (at(g.value).shape != wanted) {  // heads share it
        const int sum = r_.only_reader(g.value);
        if (sum < 0 || r_.node(sum).op != &kSumOp) return false;
        back_.push_back(sum);
        g.value = in_shape(r_.node(sum).out[0], wanted);
        if (g.value < 0) return false;
      }
      last_.push_back(back_.back());
      grads_[i] = g;
      return true;
    }
    return true;
  }

  // A dense value, which a sum gives without the dims that it summed, in the shape that its readers
  // see; -1: it has other elements.
  int in_shape(int value, const Shape& shape) {
    const Value found = at(value);
    if (found.shape.numel() != shape.numel() || !found.contiguous()) return -1;
    for (const int v : r_.values_beside(value)) {
      if (at(v).shape == shape && at(v).contiguous()) return v;
    }
    Value seen = found;
    seen.shape = shape;
    seen.strides = contiguous_strides(shape);
    return found.shape == shape ? value : r_.graph.add_value(std::move(seen));
  }

  Obstacle find_backward() {
    const Obstacle others{"its backward has other ops than attention's", "the loss read o alone"};
    const int softmax_back = r_.find_reader(weights_, kSoftmaxBackwardOp);
    d_weights_ = r_.producer(r_.node(softmax_back).in[0]);
    const Value v = matrix(out_, 1), k = turned(matrix(scores_, 1)), q = matrix(scores_, 0);
    if (!is_product(d_weights_) || !same(matrix(d_weights_, 1), turned(v))) return others;
    back_ = {d_weights_, softmax_back};
    if (!take_gradient(2, v, turned(at(weights_)), matrix(d_weights_, 0), weights_)) return others;
    int ds = r_.node(softmax_back).out[0];
    // The factor's own backward: behind s it comes first, before q last.
    const auto through_factor = [&](int value, int of) {
      const int n = value < 0 || of < 0 ? -1 : r_.only_reader(value);
      if (n < 0 || r_.node(n).text() != "scale_backward" || factor(n) != factor(of)) return -1;
      back_.push_back(n);
      return r_.node(n).out[0];
    };
    if (after_ >= 0 && (ds = through_factor(ds, after_)) < 0) return others;
    const Value s = at(ds);
    if (!take_gradient(1, k, turned(s), q, ds) || !take_gradient(0, q, s, k, ds)) return others;
    if (before_ >= 0 && grads_[0].value >= 0) {
      std::erase(last_, r_.producer(grads_[0].value));
      grads_[0].value = through_factor(grads_[0].value, before_);
      if (grads_[0].value < 0 || grads_[0].turned) return others;
      last_.push_back(back_.back());
    }
    return {};
  }

  // dk^T[D, T] becomes dk[T, D]: where its rows were the lines of memory, its columns are. A stride
  // is that of a row or of a column, or lies outside of a matrix; nothing else may be read.
  std::optional<Strides> strides_of_turned(int value, int64_t rows, int64_t columns) const {
    const Value& v = at(value);
    if (v.offset != 0) return {};
    Strides strides = v.strides;
    for (int d = 0; d < v.shape.rank(); ++d) {
      if (v.shape[d] <= 1 || v.strides[d] >= rows * columns) continue;
      const bool row = v.shape[d] == rows && v.strides[d] == columns,
                 column = v.shape[d] == columns && v.strides[d] == 1;
      if (!row && !column) return {};
      strides[d] = row ? 1 : rows;
    }
    return strides;
  }
  std::vector<int> with_views(int value) const {
    std::vector<int> values = r_.values_beside(value);
    values.push_back(value);
    return values;
  }
  Obstacle fixed(int value) const {
    const Shape shape = at(value).shape;
    for (const int v : with_views(value)) {
      Value after = at(v);
      const std::optional<Strides> strides = strides_of_turned(v, shape[-2], shape[-1]);
      bool may_turn = strides && !r_.is_output(v) && !r_.is_gradient(v);
      if (may_turn) after.strides = *strides;
      for (const int n : r_.readers(v)) {
        const Node& node = r_.node(n);
        for (size_t i = 0; may_turn && !after.contiguous() && i < node.in.size(); ++i)
          may_turn = node.in[i] != v || node.op->takes_strides(i, node.in.size(), node.attrs);
      }
      if (!may_turn)
        return {str("the gradient %", v, " must lie as it does"), "matmul(q, k, false, true)"};
    }
    return {};
  }

  bool replace(const std::vector<int>& members) {
    const int q = before_ >= 0 ? r_.node(before_).in[0] : value(scores_, 0),
              k = value(scores_, 1, true), v = value(out_, 1), o = r_.node(out_).out[0];
    const Shape shape = at(o).shape;
    const int scale = before_ >= 0 ? before_ : after_;
    const AttentionAttrs attrs{
        scale >= 0 ? factor(scale) : 1, r_.node(softmax_).attrs.as<SoftmaxAttrs>().causal};
    const int lse = r_.graph.add_local(
        {shape[0], shape[1], shape[2]}, wide(at(q).dtype), r_.graph.device_of(q));
    Node forward{.op = &kAttentionOp, .attrs = attrs, .in = {q, k, v}, .out = {o, lse}};
    Node backward;
    if (!back_.empty()) {
      backward = {.op = &kAttentionBackwardOp,
          .attrs = attrs,
          .in = {value(d_weights_, 0), q, k, v, o, lse},
          .role = Role::dgrad};
      const int operands[] = {q, k, v};
      for (int i = 0; i < 3; ++i) {
        const Gradient& g = grads_[i];
        const Value of = at(operands[i]);
        const bool fresh = g.value < 0 || g.turned;
        backward.out.push_back(
            fresh ? r_.graph.add_local(of.shape, of.dtype, r_.graph.device_of(q)) : g.value);
      }
    }
    const std::vector<int> gradients = backward.out;
    std::ranges::sort(back_);
    if (!r_.fuse_pair(kName, members, std::move(forward), back_, std::move(backward))) return false;
    for (size_t i = 0; i < gradients.size(); ++i) {
      if (grads_[i].turned) turn(grads_[i].value, at(gradients[i]).buffer);
    }
    return true;
  }
  void turn(int value, int buffer) {
    const Shape shape = at(value).shape;
    for (const int v : with_views(value))
      r_.move(v, buffer, *strides_of_turned(v, shape[-2], shape[-1]), 0);
  }

  Rewriter& r_;
  Obstacle in_the_way_;
  int softmax_ = -1, weights_ = -1, scores_ = -1, before_ = -1, after_ = -1, out_ = -1,
      d_weights_ = -1;
  std::vector<int> back_;  // members
  std::vector<int> last_;  // of these, who gives what backward gives
  Gradient grads_[3];      // of q, k, v
};

// Note [Where attention's results lie]
//   A layer reads rows of its heads together, so a step that was written by hand copies o, and dq,
//   dk and dv; where q, k and v are columns of one product, their gradients are put into zeros of
//   its width and added up:
//
//       o [B, H, S, D]                                      o [B, S, H, D], by rows
//       %2 = copy(o, a view [B, S, H, D])                   %2 is that
//
//       dq, dk, dv [B, H, S, D]                             dqkv [B, S, 3 H, D], merged
//       %5 = copy(dq, a view), and of dk, dv
//       %8 = pad_slice(%5), and of dk, dv
//       %9 = add(add(%8, ..), ..)                           %9 is that
//
//   Where k and v alone are of one product, dk and dv are, as of a decoder that reads an encoder.
//
//   The kernels write heads wherever they lie, so the op gives what is read: attributes say which.
//   What reads o as heads, attention's own backward, reads a view of it then.

// A dense value's copy with dims 1 and 2 exchanged, and who makes it.
struct Copied {
  int node = -1, value = -1;
};
Copied copy_by_rows(const Rewriter& r, int value) {
  const Value rows = by_rows(r.graph.values[value]);
  for (const int n : r.readers(value)) {
    if (r.node(n).op == &kCopyOp && same(r.graph.values[r.node(n).in[0]], rows))
      return {n, r.node(n).out[0]};
  }
  return {};
}

bool o_by_rows(Rewriter& r, int i) {
  Node node = r.node(i);
  const int o = node.out[0];
  const Copied copied = copy_by_rows(r, o);
  if (copied.node < 0 || r.is_output(o) || r.is_gradient(o)) return false;
  for (const int n : r.readers(o)) {
    if (n != copied.node && (r.node(n).op != &kAttentionBackwardOp || r.node(n).in[4] != o))
      return false;
  }
  node.out[0] = copied.value;
  node.attrs.set("by_rows", true);
  if (!r.fuse(kName, {i, copied.node}, std::move(node))) return false;
  const Value heads = by_rows(r.graph.values[copied.value]);
  r.move(o, heads.buffer, heads.strides, heads.offset);
  return true;
}

bool gradients_by_rows(Rewriter& r, int i) {
  Node node = r.node(i);
  std::vector<int> members{i};
  for (int& out : node.out) {
    const Copied copied = copy_by_rows(r, out);
    Value rows = by_rows(r.graph.values[out]);
    const bool alike = rows.shape[1] == 1 || rows.shape[2] == 1,  // either way
        read = r.is_output(out) || r.is_gradient(out) || !r.readers(out).empty();
    rows.strides = contiguous_strides(rows.shape);
    if (copied.node >= 0 && r.only_reader(out) == copied.node && !r.is_gradient(out)) {
      members.push_back(copied.node);
      out = copied.value;
    } else if (alike || !read) {
      out = r.graph.add_value(rows);
    } else {
      return false;
    }
  }
  if (members.size() == 1) return false;
  node.attrs.set("by_rows", true);
  return r.fuse(kName, std::move(members), std::move(node));
}

// Those from number `first` on, whose padded ones are added up by an op less.
bool merge_gradients(Rewriter& r, int i, size_t first) {
  Node node = r.node(i);
  std::vector<int> members{i};
  std::set<int> adds;
  int64_t begin = 0;
  for (const int out : std::span(node.out).subspan(first)) {
    const int pad = r.only_reader(out);
    if (pad < 0 || r.node(pad).op != &kPadSliceOp || r.node(pad).in[0] != out) return false;
    const auto& at = r.node(pad).attrs.as<PadSliceAttrs>();
    const int64_t heads = r.graph.values[out].shape[2];
    if (at.dim != 2 || at.begin != std::exchange(begin, begin + heads)) return false;
    members.push_back(pad);
    const int add = r.only_reader(r.node(pad).out[0]);
    if (add < 0 || r.node(add).op->text() != "add") return false;
    adds.insert(add);
  }
  const int last = *adds.rbegin();
  if (adds.size() != 2 - first) return false;
  if (first == 0 && r.only_reader(r.node(*adds.begin()).out[0]) != last) return false;
  node.out.resize(first);
  node.out.push_back(r.node(last).out[0]);
  if (r.graph.values[node.out.back()].shape[2] != begin) return false;
  node.attrs.set("merged", int64_t(3 - first));
  members.insert(members.end(), adds.begin(), adds.end());
  return r.fuse(kName, std::move(members), std::move(node));
}

}  // namespace

bool rule::attention(Rewriter& r, int i) {
  return r.node(i).op == &kSoftmaxOp && Search(r).fuse(i);
}

// Note [Where attention's results lie].
bool rule::attention_by_rows(Rewriter& r, int i) {
  const Node& node = r.node(i);
  if (node.op != &kAttentionOp && node.op != &kAttentionBackwardOp) return false;
  const auto& attrs = node.attrs.as<AttentionAttrs>();
  if (attrs.merged > 0) return false;
  if (node.op == &kAttentionOp) return !attrs.by_rows && o_by_rows(r, i);
  return attrs.by_rows ? merge_gradients(r, i, 0) || merge_gradients(r, i, 1)
                       : gradients_by_rows(r, i);
}

}  // namespace sinter::capture
