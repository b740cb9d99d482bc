// What rows of softmax and its kin, of losses, norms, means and argmax give, by plain loops over
// numbers of 64 bits of mantissa: written from the formulas, and no line of ops/ in them. The f64
// results of these ops that tests hold kernels to are the ops' own: a formula that is wrong alike
// in all types shows here alone.
#pragma once

#include <functional>
#include <map>

#include "ops/fused/fused.h"
#include "ops/ops.h"

namespace sinter::plain {

using Real = long double;
using List = std::vector<Real>;
using Lists = std::vector<List>;

inline List list_of(const Tensor& t) {
  const std::vector<double> values = t.to_vector<double>();
  return {values.begin(), values.end()};
}

// x as a matrix [outer][n][inner] along dim; f(row, at) for each row, whose element c is
// list[at(c)].
template <class F> void for_rows(const Shape& shape, int64_t dim, const F& f) {
  const int d = int(dim < 0 ? dim + shape.rank() : dim);
  int64_t inner = 1, outer = 1;
  for (int i = 0; i < shape.rank(); ++i) (i < d ? outer : inner) *= i == d ? 1 : shape[i];
  for (int64_t row = 0; row < outer * inner; ++row) {
    f(size_t(row),
        [=](int64_t c) { return size_t((row / inner * shape[d] + c) * inner + row % inner); });
  }
}
// The same for the elements of a channel of x[N, C, ..].
template <class F> void for_channels(const Shape& shape, const F& f) {
  int64_t plane = 1;
  for (int i = 2; i < shape.rank(); ++i) plane *= shape[i];
  for (int64_t c = 0; c < shape[1]; ++c) {
    f(size_t(c), [=](int64_t i) { return size_t((i / plane * shape[1] + c) * plane + i % plane); });
  }
}
template <class Term> Real sum_over(int64_t n, const Term& term) {
  Real sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += term(i);
  return sum;
}

// Of row r of a matrix that is causal the columns 0..r; of another one, all.
inline int64_t living(const Shape& shape, size_t row, bool causal) {
  const int64_t n = shape[-1];
  return causal ? std::min(n, int64_t(row) % shape[-2] + 1) : n;
}
inline Lists of_softmax(const Tensor& in, bool log, bool causal = false) {
  const List x = list_of(in);
  List y(x.size(), log ? -INFINITY : 0);
  for_rows(in.shape(), -1, [&](size_t row, const auto& at) {
    const int64_t n = living(in.shape(), row, causal);
    Real most = -INFINITY;
    for (int64_t c = 0; c < n; ++c) most = std::max(most, x[at(c)]);
    const Real sum = sum_over(n, [&](int64_t c) { return std::exp(x[at(c)] - most); });
    for (int64_t c = 0; c < n; ++c) {
      const Real d = x[at(c)] - most;
      y[at(c)] = log ? d - std::log(sum) : std::exp(d) / sum;
    }
  });
  return {y};
}
// By the matrix of derivatives: dy_j/dx_i = y_j ([i = j] - y_i), of the logarithm [i = j] - e^y_i.
inline Lists of_softmax_backward(const Tensors& in, bool log, bool causal) {
  const List dy = list_of(in[0]), y = list_of(in[1]);
  List dx(y.size());
  for_rows(in[1].shape(), -1, [&](size_t row, const auto& at) {
    const int64_t n = living(in[1].shape(), row, causal);
    for (int64_t i = 0; i < n; ++i) {
      dx[at(i)] = sum_over(n, [&](int64_t j) {
        const Real p = log ? std::exp(y[at(i)]) : y[at(i)];
        return dy[at(j)] * (log ? 1 : y[at(j)]) * ((i == j ? 1 : 0) - p);
      });
    }
  });
  return {dx};
}

// The target of class c: 1 - s at the label, and s / C at every class.
inline Real target(int64_t c, Real label, double s, int64_t classes) {
  if (label == kNoLabel) return 0;
  return (Real(c) == label ? 1 - Real(s) : 0) + Real(s) / Real(classes);
}
inline Lists of_nll(const Tensors& in, double s) {
  const List x = list_of(in[0]), label = list_of(in[1]);
  const int64_t n = in[0].size(1);
  List loss(label.size());
  for_rows(in[0].shape(), 1, [&](size_t r, const auto& at) {
    loss[r] = -sum_over(n, [&](int64_t c) { return target(c, label[r], s, n) * x[at(c)]; });
  });
  return {loss};
}
inline Lists of_nll_backward(const Tensors& in, double s, int64_t n) {
  const List g = list_of(in[0]), label = list_of(in[1]);
  List dx;
  for (size_t r = 0; r < label.size(); ++r)
    for (int64_t c = 0; c < n; ++c) dx.push_back(-g[r] * target(c, label[r], s, n));
  return {dx};
}
// Of logits; the gradient where there is one of the loss.
inline Lists of_cross_entropy(const Tensors& in, double s) {
  const List p = of_softmax(in[0], false)[0], logp = of_softmax(in[0], true)[0],
             label = list_of(in[1]), dloss = in.size() > 2 ? list_of(in[2]) : List();
  const int64_t n = in[0].size(1);
  List loss(label.size()), dz(p.size());
  for_rows(in[0].shape(), 1, [&](size_t r, const auto& at) {
    loss[r] = 0;
    for (int64_t c = 0; c < n; ++c) {
      const Real t = target(c, label[r], s, n);
      if (t != 0) loss[r] -= t * logp[at(c)];
      if (!dloss.empty()) dz[at(c)] = label[r] == kNoLabel ? 0 : (p[at(c)] - t) * dloss[r];
    }
    if (std::isnan(p[at(0)])) loss[r] = NAN;  // a NaN or an infinity elsewhere in the row
  });
  return in.size() > 2 ? Lists{loss, dz} : Lists{loss};
}

inline Lists of_mse(const Tensor& x, const Tensor& target, const Tensor& dloss) {
  const List a = list_of(x), b = list_of(target);
  const int64_t rows = x.size(0), n = rows ? x.numel() / rows : 0;
  const List g = dloss.defined() ? list_of(dloss) : List(size_t(rows));
  List loss, dx;
  for (int64_t r = 0; r < rows; ++r) {
    const auto d = [&](int64_t c) { return a[size_t(r * n + c)] - b[size_t(r * n + c)]; };
    loss.push_back(sum_over(n, [&](int64_t c) { return d(c) * d(c); }) / Real(n));
    for (int64_t c = 0; c < n; ++c) dx.push_back(g[size_t(r)] * 2 * d(c) / Real(n));
  }
  return {dloss.defined() ? dx : loss};
}

// The mean, the sum of squared deviations, and 1 / sqrt(squares / n + eps).
struct Moments {
  Real mean, squares, rstd;
};
template <class At> Moments moments(const List& x, int64_t n, const At& at, double eps) {
  if (n == 0) return {0, 0, 1 / std::sqrt(Real(eps))};
  const Real mean = sum_over(n, [&](int64_t i) { return x[at(i)]; }) / Real(n);
  const Real squares = sum_over(n, [&](int64_t i) { return std::pow(x[at(i)] - mean, 2); });
  return {mean, squares, 1 / std::sqrt(squares / Real(n) + Real(eps))};
}

inline Lists of_layer_norm(const Tensors& in, double eps) {
  const List x = list_of(in[0]), weight = list_of(in[1]), bias = list_of(in[2]);
  const int64_t n = in[0].size(-1);
  List y(x.size()), mean, rstd;
  for_rows(in[0].shape(), -1, [&](size_t, const auto& at) {
    const Moments m = moments(x, n, at, eps);
    for (int64_t c = 0; c < n; ++c)
      y[at(c)] = (x[at(c)] - m.mean) * m.rstd * weight[size_t(c)] + bias[size_t(c)];
    mean.push_back(m.mean);
    rstd.push_back(m.rstd);
  });
  return {y, mean, rstd};
}
// Of n = (x - mean) rstd and y = n weight + bias, where mean and rstd are functions of x:
// dx_i = rstd (g_i - mean(g) - n_i mean(g n)), g = dy weight. `n` values at(i) of a row or channel.
template <class At, class G>
void norm_backward(
    const List& x, int64_t n, const At& at, Real mean, Real rstd, const G& g, List& dx) {
  const auto normal = [&](int64_t i) { return (x[at(i)] - mean) * rstd; };
  const Real mean_g = sum_over(n, g) / Real(n);
  const Real mean_gn = sum_over(n, [&](int64_t i) { return g(i) * normal(i); }) / Real(n);
  for (int64_t i = 0; i < n; ++i) dx[at(i)] = rstd * (g(i) - mean_g - normal(i) * mean_gn);
}
inline Lists of_layer_norm_backward(const Tensors& in) {
  const List dy = list_of(in[0]), x = list_of(in[1]), weight = list_of(in[2]),
             mean = list_of(in[3]), rstd = list_of(in[4]);
  List dx(x.size());
  for_rows(in[1].shape(), -1, [&](size_t r, const auto& at) {
    norm_backward(
        x, in[1].size(-1), at, mean[r], rstd[r],
        [&](int64_t c) { return dy[at(c)] * weight[size_t(c)]; }, dx);
  });
  return {dx};
}
inline Lists of_layer_norm_weight_grad(const Tensors& in) {
  const List dy = list_of(in[0]), x = list_of(in[1]), mean = list_of(in[2]), rstd = list_of(in[3]);
  const auto n = size_t(in[1].size(-1));
  List dweight(n);
  for (size_t i = 0; i < x.size(); ++i)
    dweight[i % n] += dy[i] * (x[i] - mean[i / n]) * rstd[i / n];
  return {dweight};
}

inline Lists of_rms_norm(const Tensors& in, double eps) {
  const List x = list_of(in[0]);
  const List weight = in.size() > 1 ? list_of(in[1]) : List(size_t(in[0].size(-1)), 1);
  const int64_t n = in[0].size(-1);
  List y(x.size()), rstd;
  for_rows(in[0].shape(), -1, [&](size_t, const auto& at) {
    const Real squares = sum_over(n, [&](int64_t c) { return x[at(c)] * x[at(c)]; });
    rstd.push_back(1 / std::sqrt(squares / Real(n) + Real(eps)));
    for (int64_t c = 0; c < n; ++c) y[at(c)] = x[at(c)] * rstd.back() * weight[size_t(c)];
  });
  return {y, rstd};
}
// By the derivatives of y_j = g_j x_j rstd: dx_i = sum of dy_j w_j (rstd [i = j] - x_i x_j
// rstd^3/n).
inline Lists of_rms_norm_backward(const Tensors& in) {
  const List dy = list_of(in[0]), x = list_of(in[1]), rstd = list_of(in[2]);
  const int64_t n = in[1].size(-1);
  const List weight = in.size() > 3 ? list_of(in[3]) : List(size_t(n), 1);
  List dx(x.size());
  for_rows(in[1].shape(), -1, [&](size_t r, const auto& at) {
    for (int64_t i = 0; i < n; ++i) {
      dx[at(i)] = sum_over(n, [&](int64_t j) {
        const Real slope = x[at(i)] * x[at(j)] * rstd[r] * rstd[r] * rstd[r] / Real(n);
        return dy[at(j)] * weight[size_t(j)] * ((i == j ? rstd[r] : 0) - slope);
      });
    }
  });
  return {dx};
}
inline Lists of_rms_norm_weight_grad(const Tensors& in) {
  const List dy = list_of(in[0]), x = list_of(in[1]), rstd = list_of(in[2]);
  const auto n = size_t(in[1].size(-1));
  List dweight(n);
  for (size_t i = 0; i < x.size(); ++i) dweight[i % n] += dy[i] * x[i] * rstd[i / n];
  return {dweight};
}

inline Lists of_embedding(const Tensors& in) {
  const List token = list_of(in[0]), weight = list_of(in[1]);
  const int64_t d = in[1].size(1);
  List y;
  for (const Real t : token)
    for (int64_t c = 0; c < d; ++c) y.push_back(weight[size_t(int64_t(t) * d + c)]);
  return {y};
}
inline Lists of_embedding_weight_grad(const Tensors& in, int64_t rows) {
  const List dy = list_of(in[0]), token = list_of(in[1]);
  const auto d = size_t(in[0].size(-1));
  List dweight(size_t(rows) * d);
  for (size_t i = 0; i < dy.size(); ++i) dweight[size_t(token[i / d]) * d + i % d] += dy[i];
  return {dweight};
}

inline Lists of_tril(const Tensor& in, int64_t diagonal) {
  List y = list_of(in);
  const auto rows = size_t(in.size(-2)), cols = size_t(in.size(-1));
  for (size_t i = 0; i < y.size(); ++i) {
    if (int64_t(i % cols) > int64_t(i / cols % rows) + diagonal) y[i] = 0;
  }
  return {y};
}

// The results, then the running statistics.
inline Lists of_batch_norm(const Tensors& in, const BatchNormAttrs& a) {
  const List x = list_of(in[0]), weight = list_of(in[1]), bias = list_of(in[2]);
  List y(x.size()), mean, rstd, running_mean = list_of(in[3]), running_var = list_of(in[4]);
  const int64_t n = in[0].numel() / in[0].size(1);
  for_channels(in[0].shape(), [&](size_t c, const auto& at) {
    const Moments m = moments(x, n, at, a.eps);
    for (int64_t i = 0; i < n; ++i) y[at(i)] = (x[at(i)] - m.mean) * m.rstd * weight[c] + bias[c];
    mean.push_back(m.mean);
    rstd.push_back(m.rstd);
    if (n == 0) return;
    const Real share = Real(a.momentum);
    running_mean[c] = (1 - share) * running_mean[c] + share * m.mean;
    running_var[c] = (1 - share) * running_var[c] + share * m.squares / Real(n - 1);
  });
  return {y, mean, rstd, running_mean, running_var};
}
inline Lists of_batch_norm_eval(const Tensors& in, double eps) {
  const List x = list_of(in[0]), weight = list_of(in[1]), bias = list_of(in[2]),
             mean = list_of(in[3]), var = list_of(in[4]);
  List y(x.size());
  for_channels(in[0].shape(), [&](size_t c, const auto& at) {
    for (int64_t i = 0; i < in[0].numel() / in[0].size(1); ++i)
      y[at(i)] = (x[at(i)] - mean[c]) / std::sqrt(var[c] + Real(eps)) * weight[c] + bias[c];
  });
  return {y};
}
inline Lists of_batch_norm_weight_grad(const Tensors& in) {
  const List dy = list_of(in[0]), x = list_of(in[1]), mean = list_of(in[2]), rstd = list_of(in[3]);
  List dweight(mean.size()), dbias(mean.size());
  for_channels(in[1].shape(), [&](size_t c, const auto& at) {
    for (int64_t i = 0; i < in[1].numel() / in[1].size(1); ++i) {
      dweight[c] += dy[at(i)] * (x[at(i)] - mean[c]) * rstd[c];
      dbias[c] += dy[at(i)];
    }
  });
  return {dweight, dbias};
}
// dx = rstd weight (dy - dbias / n - (x - mean) rstd dweight / n): both sums are operands.
inline Lists of_batch_norm_backward(const Tensors& in) {
  const List dy = list_of(in[0]), x = list_of(in[1]), weight = list_of(in[2]),
             mean = list_of(in[3]), rstd = list_of(in[4]), dweight = list_of(in[5]),
             dbias = list_of(in[6]);
  List dx(x.size());
  const int64_t n = in[1].numel() / in[1].size(1);
  for_channels(in[1].shape(), [&](size_t c, const auto& at) {
    for (int64_t i = 0; i < n; ++i) {
      const Real normal = (x[at(i)] - mean[c]) * rstd[c];
      dx[at(i)] = rstd[c] * weight[c] * (dy[at(i)] - (dbias[c] + normal * dweight[c]) / Real(n));
    }
  });
  return {dx};
}

inline Lists of_argmax(const Tensor& in, int64_t dim) {
  const List x = list_of(in);
  List index;
  for_rows(in.shape(), dim, [&](size_t, const auto& at) {
    int64_t best = 0;
    for (int64_t c = 1; c < in.size(int(dim)); ++c) best = x[at(c)] > x[at(best)] ? c : best;
    index.push_back(Real(best));
  });
  return {index};
}
inline Lists of_sum(const Tensor& in, const ReduceAttrs& a, bool mean) {
  const List x = list_of(in);
  const auto reduced = [&](int d) {
    const auto is_d = [&](int64_t dim) { return dim == d || dim + in.rank() == d; };
    return a.dims.rank() == 0 || std::any_of(a.dims.begin(), a.dims.end(), is_d);
  };
  int64_t kept = 1, terms = 1;
  for (int d = 0; d < in.rank(); ++d) (reduced(d) ? terms : kept) *= in.size(d);
  List y(static_cast<size_t>(kept));
  for (size_t i = 0; i < x.size(); ++i) {
    size_t to = 0, rest = i, step = 1;  // the place without the reduced dims
    for (int d = in.rank() - 1; d >= 0; --d) {
      const auto n = size_t(in.size(d));
      if (!reduced(d)) {
        to += rest % n * step;
        step *= n;
      }
      rest /= n;
    }
    y[to] += x[i] / (mean ? Real(terms) : 1);
  }
  return {y};
}

// The operands of attention, whose rows and keys are counted by (b, h, r) and (b, h, t).
struct AttentionLoops {
  List q, k, v;
  int64_t batch, heads, groups, rows, keys, depth;
  Real scale;
  bool causal;
  AttentionLoops(const Tensor& tq, const Tensor& tk, const Tensor& tv, const AttentionAttrs& a)
      : q(list_of(tq)),
        k(list_of(tk)),
        v(list_of(tv)),
        batch(tq.size(0)),
        heads(tq.size(1)),
        groups(tk.size(1)),
        rows(tq.size(2)),
        keys(tk.size(2)),
        depth(tq.size(3)),
        scale(Real(a.scale)),
        causal(a.causal) {}
  size_t row(int64_t b, int64_t h, int64_t r) const { return size_t((b * heads + h) * rows + r); }
  size_t of_q(size_t row, int64_t d) const { return row * size_t(depth) + size_t(d); }
  size_t of_k(int64_t b, int64_t h, int64_t t, int64_t d) const {
    return size_t(((b * groups + h * groups / heads) * keys + t) * depth + d);
  }
  int64_t read(int64_t r) const { return causal ? std::min(keys, r + 1) : keys; }
  template <class F> void each(const F& f) const {
    for (int64_t b = 0; b < batch; ++b)
      for (int64_t h = 0; h < heads; ++h)
        for (int64_t r = 0; r < rows; ++r) f(b, h, r, row(b, h, r));
  }
  List scores(int64_t b, int64_t h, int64_t r) const {
    List s;
    for (int64_t t = 0; t < read(r); ++t) {
      s.push_back(scale * sum_over(depth, [&](int64_t d) {
        return q[of_q(row(b, h, r), d)] * k[of_k(b, h, t, d)];
      }));
    }
    return s;
  }
};
// Heads [B, H, S, D] where the results are to lie: beside each other they are rows of [H of all,
// D].
inline Lists laid(const AttentionLoops& n, const AttentionAttrs& a, const Lists& results) {
  if (!a.by_rows) return results;
  Lists all;
  for (const List& heads : results) {
    const int64_t count = all.empty() ? n.heads : n.groups, rows = all.empty() ? n.rows : n.keys;
    List to;
    for (int64_t b = 0; b < n.batch; ++b)
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t h = 0; h < count; ++h)
          for (int64_t d = 0; d < n.depth; ++d)
            to.push_back(heads[size_t(((b * count + h) * rows + r) * n.depth + d)]);
    all.push_back(to);
  }
  if (a.merged == 0) return all;
  const auto apart = size_t(3 - a.merged);
  List whole;
  const auto of_q = size_t(n.heads * n.depth), of_k = size_t(n.groups * n.depth);
  for (size_t row = 0; row < size_t(n.batch * n.keys); ++row) {
    for (size_t i = apart; i < 3; ++i) {
      const size_t width = i == 0 ? of_q : of_k;
      whole.insert(whole.end(), all[i].begin() + std::ptrdiff_t(row * width),
          all[i].begin() + std::ptrdiff_t((row + 1) * width));
    }
  }
  all.resize(apart);
  all.push_back(whole);
  return all;
}
inline Lists of_attention(const Tensors& in, const AttentionAttrs& a) {
  const AttentionLoops n(in[0], in[1], in[2], a);
  List o(n.q.size()), lse(size_t(in[0].numel() / n.depth));
  n.each([&](int64_t b, int64_t h, int64_t r, size_t at) {
    const List s = n.scores(b, h, r);
    Real most = -INFINITY;
    for (const Real x : s) most = std::max(most, x);
    const auto count = int64_t(s.size());
    List e;
    for (const Real x : s) e.push_back(std::exp(x - most));
    const Real l = sum_over(count, [&](int64_t t) { return e[size_t(t)]; });
    lse[at] = count == 0 ? -INFINITY : std::log(l) + most;
    for (int64_t d = 0; d < n.depth && count > 0; ++d) {
      o[n.of_q(at, d)] =
          sum_over(count, [&](int64_t t) { return e[size_t(t)] * n.v[n.of_k(b, h, t, d)]; }) / l;
    }
  });
  return {laid(n, a, {o})[0], lse};
}
inline Lists of_attention_backward(const Tensors& in, const AttentionAttrs& a) {
  const AttentionLoops n(in[1], in[2], in[3], a);
  const List d_o = list_of(in[0]), o = list_of(in[4]), lse = list_of(in[5]);
  List dq(n.q.size()), dk(n.k.size()), dv(n.v.size());
  n.each([&](int64_t b, int64_t h, int64_t r, size_t at) {
    const List s = n.scores(b, h, r);
    const Real delta =
        sum_over(n.depth, [&](int64_t d) { return d_o[n.of_q(at, d)] * o[n.of_q(at, d)]; });
    for (int64_t t = 0; t < int64_t(s.size()); ++t) {
      const Real p = std::exp(s[size_t(t)] - lse[at]);
      const Real dp = sum_over(
          n.depth, [&](int64_t d) { return d_o[n.of_q(at, d)] * n.v[n.of_k(b, h, t, d)]; });
      for (int64_t d = 0; d < n.depth; ++d) {
        const size_t i = n.of_q(at, d), j = n.of_k(b, h, t, d);
        dq[i] += n.scale * p * (dp - delta) * n.k[j];
        dk[j] += n.scale * p * (dp - delta) * n.q[i];
        dv[j] += p * d_o[i];
      }
    }
  });
  return laid(n, a, {dq, dk, dv});
}

// By the op: of the operands, of any type and strides on the CPU, and the attributes its results,
// then the floating operands that it changes.
inline const auto& all() {
  using F = std::function<Lists(const Tensors&, const Attrs&)>;
  static const auto causal = [](const Attrs& a) { return a.as<SoftmaxAttrs>().causal; };
  static const std::map<const OpDef*, F> loops{
      {&kSoftmaxOp, [](auto& t, auto& a) { return of_softmax(t[0], false, causal(a)); }},
      {&kLogSoftmaxOp, [](auto& t, auto& a) { return of_softmax(t[0], true, causal(a)); }},
      {&kSoftmaxBackwardOp,
          [](auto& t, auto& a) { return of_softmax_backward(t, false, causal(a)); }},
      {&kLogSoftmaxBackwardOp,
          [](auto& t, auto& a) { return of_softmax_backward(t, true, causal(a)); }},
      {&kNllOp,
          [](auto& t, auto& a) { return of_nll(t, a.template as<NllAttrs>().label_smoothing); }},
      {&kNllBackwardOp,
          [](auto& t, auto& a) {
            const auto& attrs = a.template as<NllBackwardAttrs>();
            return of_nll_backward(t, attrs.label_smoothing, attrs.classes);
          }},
      {&kSoftmaxXentOp,
          [](auto& t, auto& a) {
            return of_cross_entropy(t, a.template as<SoftmaxXentAttrs>().label_smoothing);
          }},
      {&kMseOp, [](auto& t, auto&) { return of_mse(t[0], t[1], {}); }},
      {&kMseBackwardOp, [](auto& t, auto&) { return of_mse(t[1], t[2], t[0]); }},
      {&kLayerNormOp,
          [](auto& t, auto& a) { return of_layer_norm(t, a.template as<LayerNormAttrs>().eps); }},
      {&kLayerNormBackwardOp, [](auto& t, auto&) { return of_layer_norm_backward(t); }},
      {&kLayerNormWeightGradOp, [](auto& t, auto&) { return of_layer_norm_weight_grad(t); }},
      {&kRmsNormOp,
          [](auto& t, auto& a) { return of_rms_norm(t, a.template as<RmsNormAttrs>().eps); }},
      {&kRmsNormBackwardOp, [](auto& t, auto&) { return of_rms_norm_backward(t); }},
      {&kRmsNormWeightGradOp, [](auto& t, auto&) { return of_rms_norm_weight_grad(t); }},
      {&kEmbeddingOp, [](auto& t, auto&) { return of_embedding(t); }},
      {&kEmbeddingWeightGradOp,
          [](auto& t, auto& a) {
            return of_embedding_weight_grad(t, a.template as<EmbeddingGradAttrs>().rows);
          }},
      {&kTrilOp,
          [](auto& t, auto& a) { return of_tril(t[0], a.template as<TrilAttrs>().diagonal); }},
      {&kBatchNorm2dOp,
          [](auto& t, auto& a) { return of_batch_norm(t, a.template as<BatchNormAttrs>()); }},
      {&kBatchNorm2dEvalOp,
          [](auto& t, auto& a) {
            return of_batch_norm_eval(t, a.template as<BatchNormAttrs>().eps);
          }},
      {&kBatchNorm2dWeightGradOp, [](auto& t, auto&) { return of_batch_norm_weight_grad(t); }},
      {&kBatchNorm2dBackwardOp, [](auto& t, auto&) { return of_batch_norm_backward(t); }},
      {&kAttentionOp,
          [](auto& t, auto& a) { return of_attention(t, a.template as<AttentionAttrs>()); }},
      {&kAttentionBackwardOp,
          [](auto& t, auto& a) {
            return of_attention_backward(t, a.template as<AttentionAttrs>());
          }},
      {&kArgmaxOp, [](auto& t, auto& a) { return of_argmax(t[0], a.template as<DimAttrs>().dim); }},
      {&kSumOp, [](auto& t, auto& a) { return of_sum(t[0], a.template as<ReduceAttrs>(), false); }},
      {&kMeanOp, [](auto& t, auto& a) { return of_sum(t[0], a.template as<ReduceAttrs>(), true); }},
  };
  return loops;
}
inline bool has(const OpDef& op) { return all().contains(&op); }
// Nothing for an op that has no loops here.
inline Lists results(const OpDef& op, const Tensors& in, const Attrs& attrs) {
  return has(op) ? all().at(&op)(in, attrs) : Lists{};
}

}  // namespace sinter::plain
