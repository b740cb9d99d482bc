// attention: o = softmax(scale q k^T) v by an online softmax (Milakov and Gimelshein, arXiv
// 1805.02867; Rabe and Staats, arXiv 2112.05682; Dao et al., arXiv 2205.14135): a row keeps the
// maximum m and the sum l of e^(s - m) over the keys that it has seen, and what it summed so far is
// scaled where a tile of keys moves the maximum. So no [S, T] is in memory. lse = m + log l is
// saved for backward, which makes the weights anew, tile by tile: p = e^(s - lse).
//
//   dv = p^T do    dp = do v^T    ds = p (dp - rowsum(do o)) scale    dq = ds k    dk = ds^T q
//
// Causal keys beyond a row are not read, but for those of a tile that another of its rows reads: a
// NaN there may show.
#include "ops/attention/attention.h"

#include <array>
#include <cmath>

#include "ops/kernels.h"

// B batch, H heads of q, G of k and v, S rows, T keys, D depth
namespace sinter {
namespace {

template <const OpDef& op> void check(Operands in, const Attrs& attrs) {
  const Tensor &q = in[in.size() > 3], &k = in[1 + (in.size() > 3)];
  const int64_t heads = q.size(1), groups = k.size(1);
  SINTER_CHECK(groups > 0 ? heads % groups == 0 : heads == 0, shape,
      str(op.text(), ": heads do not divide: q is ", q.describe(), ", k is ", k.describe(),
          "; H of q is ", heads, ", G of k is ", groups, ", and H must be a multiple of G"));
  const auto& a = attrs.as<AttentionAttrs>();
  SINTER_CHECK(a.merged == 0 || (a.by_rows && (a.merged == 2 || q.size(2) == k.size(2))), shape,
      str(op.text(), ": merged: q is ", q.describe(), ", k is ", k.describe(),
          "; by rows, and as many rows as keys"));
}

// Of results [B, H, S, D].
Tensor result_of(const Tensor& like, const AttentionAttrs& attrs) {
  const Shape& s = like.shape();
  return Tensor::shape_only(
      attrs.by_rows ? Shape{s[0], s[2], s[1], s[3]} : s, like.dtype(), like.device());
}
Tensors infer(Operands in, const Attrs& attrs) {
  const Tensor& q = in[0];
  return {result_of(q, attrs.as<AttentionAttrs>()),
      Tensor::shape_only({q.size(0), q.size(1), q.size(2)}, wide(q.dtype()), q.device())};
}
Tensors backward_infer(Operands in, const Attrs& attrs) {
  const auto& a = attrs.as<AttentionAttrs>();
  Tensors all{result_of(in[1], a), result_of(in[2], a), result_of(in[3], a)};
  if (a.merged == 0) return all;
  Shape shape = all[size_t(3 - a.merged)].shape();
  shape[2] += (a.merged - 1) * all[1].size(2);
  all.resize(size_t(3 - a.merged));
  all.push_back(Tensor::shape_only(shape, in[1].dtype(), in[1].device()));
  return all;
}

Cost cost(Operands in, Operands out, const Attrs& attrs) {
  const AttentionSizes n(in[0], in[1], attrs.as<AttentionAttrs>());
  const int64_t of_head = n.pairs() * (4 * n.depth + 5) + n.rows * (n.depth + 2);
  return cost_of(n.batch * n.heads * of_head, in, out);
}
Cost backward_cost(Operands in, Operands out, const Attrs& attrs) {
  const AttentionSizes n(in[1], in[2], attrs.as<AttentionAttrs>());
  const int64_t of_head = n.pairs() * (10 * n.depth + 6) + n.rows * 2 * n.depth;
  return cost_of(n.batch * n.heads * of_head, in, out);
}

// Of o alone: lse, which the public function does not give, has none.
Tensors backward(const Saved& saved, Operands grads) {
  AttentionAttrs attrs = saved.as<AttentionAttrs>();
  const auto heads = [&](const Tensor& t) { return attrs.by_rows ? transpose(t, 1, 2) : t; };
  const Tensor d_o = heads(grads[0]), o = heads(saved.out[0]);
  attrs.by_rows = false;
  Tensors out = apply(kAttentionBackwardOp,
      {d_o, saved.in[0], saved.in[1], saved.in[2], o, saved.out[1]}, attrs, Role::dgrad);
  for (int i = 0; i < 3; ++i) {
    if (!saved.wants(i)) out[size_t(i)] = {};
  }
  return out;
}

// What both mean, in plain ops over [B, G, H / G, S, T, D]: products are pointwise, with sums.
struct InPlainOps {
  const AttentionSizes n;
  Tensor reads;  // [S, T, 1]: 1 where the row reads the key, else 0
  InPlainOps(const Tensor& q, const Tensor& k, const Attrs& attrs)
      : n(q, k, attrs.as<AttentionAttrs>()) {
    std::vector<double> all;
    for (int64_t r = 0; r < n.rows; ++r)
      for (int64_t t = 0; t < n.keys; ++t) all.push_back(!n.causal || t <= r);
    reads = cast(Tensor::from(all, {n.rows, n.keys, 1}), q.dtype()).to(q.device());
  }
  Tensor rows(const Tensor& t, int64_t depth) const {
    return reshape(t, {n.batch, n.groups, n.heads_of_group(), n.rows, 1, depth});
  }
  Tensor keys(const Tensor& t) const {
    return reshape(t, {n.batch, n.groups, 1, 1, n.keys, n.depth});
  }
  Tensor scores(const Tensor& q, const Tensor& k) const {
    return scale(sum(rows(q, n.depth) * keys(k), -1, true), n.scale);
  }
  // Of scores less a number of each row; no key that is not read overflows.
  Tensor weights(const Tensor& s) const { return exp(s * reads) * reads; }
};
Tensor as(const Tensor& t, DType dtype) { return t.dtype() == dtype ? t : cast(t, dtype); }
// Heads where the results are to lie.
Tensor laid(const Tensor& heads, const Attrs& attrs) {
  return attrs.as<AttentionAttrs>().by_rows ? contiguous(transpose(heads, 1, 2)) : heads;
}
Tensors reference(Operands in, const Attrs& attrs) {
  const Tensor& q = in[0];
  const Shape rows(std::span(q.shape().begin(), 3));
  const DType type = wide(q.dtype());
  const InPlainOps plain(q, in[1], attrs);
  if (plain.n.keys == 0) {  // of which there is no maximum
    const Tensor none = plain.rows(q, plain.n.depth) * plain.keys(in[1]) * plain.keys(in[2]);
    return {laid(reshape(sum(none, 4), q.shape()), attrs),
        broadcast_to(constant(-INFINITY, type, q.device()), rows)};
  }
  const Tensor s = plain.scores(q, in[1]), most = detach(max(s * plain.reads, 4, true)),
               e = plain.weights(s - most), l = sum(e, 4, true);
  return {laid(reshape(sum(e / l * plain.keys(in[2]), 4), q.shape()), attrs),
      as(reshape(log(l) + most, rows), type)};
}
Tensors backward_reference(Operands in, const Attrs& attrs) {
  const Tensor &q = in[1], &k = in[2];
  const InPlainOps plain(q, k, attrs);
  const int64_t depth = plain.n.depth;
  const Tensor p = plain.weights(plain.scores(q, k) - plain.rows(as(in[5], q.dtype()), 1)),
               d_o = plain.rows(in[0], depth), dp = sum(d_o * plain.keys(in[3]), -1, true),
               delta = sum(d_o * plain.rows(in[4], depth), -1, true),
               ds = scale(p * (dp - delta), plain.n.scale);
  Tensors all{laid(reshape(sum(ds * plain.keys(k), 4), q.shape()), attrs),
      laid(reshape(sum(ds * plain.rows(q, depth), Dims{2, 3}), k.shape()), attrs),
      laid(reshape(sum(p * d_o, Dims{2, 3}), k.shape()), attrs)};
  const auto apart = size_t(3 - attrs.as<AttentionAttrs>().merged);
  if (apart == 3) return all;
  const Tensor whole = cat(Tensors(all.begin() + ptrdiff_t(apart), all.end()), 2);
  all.resize(apart);
  all.push_back(whole);
  return all;
}

}  // namespace

const OpDef kAttentionOp = listed<kAttentionOp>({.formula = "o = softmax(scale q k^T) v, by heads",
    .attrs = attr_type<AttentionAttrs>(),
    .check = check<kAttentionOp>,
    .infer = infer,
    .cost = cost,
    .cpu = on_cpu::attention,
    .backward = backward,
    .saves_in = 0b111,
    .saves_out = 0b11,
    .strided = 0b111,
    .reference = reference});
const OpDef kAttentionBackwardOp = listed<kAttentionBackwardOp>(
    {.formula = "dv = p^T do, ds = p (do v^T - rowsum(do o)) scale, dq = ds k, dk = ds^T q",
        .attrs = attr_type<AttentionAttrs>(),
        .check = check<kAttentionBackwardOp>,
        .infer = backward_infer,
        .cost = backward_cost,
        .cpu = on_cpu::attention_backward,
        .strided = 0b11111,
        .reference = backward_reference});

Tensor attention(
    const Tensor& q, const Tensor& k, const Tensor& v, bool causal, std::optional<double> scale) {
  const bool known = q.defined() && q.rank() == 4 && q.size(3) > 0;
  return apply(kAttentionOp, {q, k, v},
      AttentionAttrs{scale   ? *scale
                     : known ? 1 / std::sqrt(double(q.size(3)))
                             : 1,
          causal})[0];
}

Tensor scaled_dot_product_attention(
    const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options) {
  constexpr const char* kName = "scaled_dot_product_attention";
  static constexpr Signature kTakes("q[B, H, S, D+] k[B, G, T, D] v[B, G, T, D]");
  kTakes.check(kName, std::array{q, k, v}, {});
  const int64_t batch = q.size(0), heads = q.size(1), groups = k.size(1);
  SINTER_CHECK(heads == groups || (options.enable_gqa && groups > 0 && heads % groups == 0), shape,
      str(kName, ": heads differ: ", describe({{"q", &q}, {"k", &k}, {"v", &v}}), "; H of q is ",
          heads, ", G of k is ", groups,
          options.enable_gqa ? ", and H must be a multiple of G" : ""),
      options.enable_gqa ? "" : "{.enable_gqa = true} if heads of q share those of k and v");
  const bool shared = heads != groups;
  // Heads that share a k and v: a dim of their own, along which these broadcast.
  const auto by_group = [&](const Tensor& t, int64_t n) {
    return shared ? reshape(t, {batch * groups, n, t.size(2), t.size(3)}) : t;
  };
  const double factor = options.scale ? *options.scale : 1 / std::sqrt(double(q.size(3)));
  const Tensor scores =
      matmul(by_group(q, heads / std::max<int64_t>(groups, 1)), by_group(k, 1), false, true) *
      factor;
  Tensor weights = softmax(scores, -1, options.causal);
  if (options.dropout > 0) weights = dropout(weights, options.dropout);
  const Tensor o = matmul(weights, by_group(v, 1));
  return shared ? reshape(o, {batch, heads, q.size(2), v.size(3)}) : o;
}

}  // namespace sinter
