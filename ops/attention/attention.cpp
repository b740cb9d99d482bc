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

#include <cmath>
#include <limits>

#include "ops/kernels.h"

// B batch, H heads of q, G of k and v, S rows, T keys, D depth
namespace sinter {
namespace {

template <const OpDef& op> void check(Operands in, const Attrs&) {
  const Tensor &q = in[in.size() > 3], &k = in[1 + (in.size() > 3)];
  const int64_t heads = q.size(1), groups = k.size(1);
  SINTER_CHECK(groups > 0 ? heads % groups == 0 : heads == 0, shape,
      str(op.text(), ": heads do not divide: q is ", q.describe(), ", k is ", k.describe(),
          "; H of q is ", heads, ", G of k is ", groups, ", and H must be a multiple of G"));
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
  Tensors out = apply(kAttentionBackwardOp,
      {grads[0], saved.in[0], saved.in[1], saved.in[2], saved.out[0], saved.out[1]}, saved.attrs,
      Role::dgrad);
  for (int i = 0; i < 3; ++i) {
    if (!saved.wants(i)) out[size_t(i)] = {};
  }
  return out;
}

// What both mean, in plain ops: products are pointwise ones with sums, over [B, G, H / G, S, T, D].
class InPlainOps {
 public:
  InPlainOps(const Tensor& q, const Tensor& k, const Attrs& attrs)
      : n_(q, k, attrs.as<AttentionAttrs>()) {}
  Tensor of_rows(const Tensor& t) const { return with_dims(t, n_.heads_of_group(), n_.rows, 1); }
  Tensor of_keys(const Tensor& t) const { return with_dims(t, 1, 1, n_.keys); }
  // [B, G, H / G, S, T], where a causal row does not read a key far below all others.
  Tensor scores(const Tensor& q, const Tensor& k) const {
    const Tensor s = scale(sum(of_rows(q) * of_keys(k), -1), n_.scale);
    if (!n_.causal) return s;
    std::vector<float> reads;
    for (int64_t r = 0; r < n_.rows; ++r)
      for (int64_t t = 0; t < n_.keys; ++t) reads.push_back(t <= r);
    return where(Tensor::from(reads, {n_.rows, n_.keys}, s.device()), s, constant_like(s, -1e30));
  }
  Tensor number_of_row(const Tensor& t) const {
    return reshape(t, {n_.batch, n_.groups, n_.heads_of_group(), n_.rows, 1});
  }

 private:
  Tensor with_dims(const Tensor& t, int64_t heads, int64_t rows, int64_t keys) const {
    return reshape(t, {n_.batch, n_.groups, heads, rows, keys, n_.depth});
  }
  AttentionSizes n_;
};
Tensors reference(Operands in, const Attrs& attrs) {
  const Tensor &q = in[0], &k = in[1];
  const DType type = wide(q.dtype());
  const Shape rows = Shape(std::span(q.shape().begin(), 3));
  if (k.size(2) == 0) {
    return {q * 0.0,
        broadcast_to(constant(-std::numeric_limits<double>::infinity(), type, q.device()), rows)};
  }
  const InPlainOps plain(q, k, attrs);
  const Tensor s = plain.scores(q, k), most = detach(max(s, -1, true)), e = exp(s - most),
               l = sum(e, -1, true);
  const Tensor weights = reshape(e / l, {s.size(0), s.size(1), s.size(2), s.size(3), s.size(4), 1});
  const Tensor lse = reshape(log(l) + most, rows);
  return {reshape(sum(weights * plain.of_keys(in[2]), -2), q.shape()),
      lse.dtype() == type ? lse : cast(lse, type)};
}
Tensors backward_reference(Operands in, const Attrs& attrs) {
  const Tensor &q = in[1], &k = in[2], &v = in[3];
  const InPlainOps plain(q, k, attrs);
  const Tensor lse = in[5].dtype() == q.dtype() ? in[5] : cast(in[5], q.dtype()),
               p = exp(plain.scores(q, k) - plain.number_of_row(lse)), d_o = plain.of_rows(in[0]),
               dp = sum(d_o * plain.of_keys(v), -1),
               ds = scale(p * (dp - plain.number_of_row(sum(in[0] * in[4], -1))),
                   attrs.as<AttentionAttrs>().scale);
  const auto column = [](const Tensor& t) {
    return reshape(t, {t.size(0), t.size(1), t.size(2), t.size(3), t.size(4), 1});
  };
  return {reshape(sum(column(ds) * plain.of_keys(k), 4), q.shape()),
      reshape(sum(column(ds) * plain.of_rows(q), Dims{2, 3}), k.shape()),
      reshape(sum(column(p) * d_o, Dims{2, 3}), v.shape())};
}

}  // namespace

const OpDef kAttentionOp = listed<kAttentionOp>({.formula = "o = softmax(scale q k^T) v, by heads",
    .attrs = attr_type<AttentionAttrs>(),
    .check = check<kAttentionOp>,
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
        .cost = backward_cost,
        .cpu = on_cpu::attention_backward,
        .strided = 0b1111,
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
  check_defined(kName, "q", q);
  check_defined(kName, "k", k);
  check_defined(kName, "v", v);
  const auto operands = [&] { return describe({{"q", &q}, {"k", &k}, {"v", &v}}); };
  SINTER_CHECK(q.rank() == 4 && k.rank() == 4 && v.rank() == 4, shape,
      str(kName, ": wrong rank: ", operands(),
          "; each has 4 dims, q[B, H, S, D], k and v[B, G, T, D]"),
      "transpose(reshape(x, {B, S, H, D}), 1, 2) gives the heads of x[B, S, H D]");
  const int64_t batch = q.size(0), heads = q.size(1), groups = k.size(1);
  SINTER_CHECK(k.size(0) == batch && v.size(0) == batch && v.size(1) == groups &&
                   k.size(2) == v.size(2) && k.size(3) == q.size(3),
      shape, str(kName, ": shapes differ: ", operands(), "; q[B, H, S, D], k and v[B, G, T, D]"));
  SINTER_CHECK(heads == groups || (options.enable_gqa && groups > 0 && heads % groups == 0), shape,
      str(kName, ": heads differ: ", operands(), "; H of q is ", heads, ", G of k is ", groups,
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
