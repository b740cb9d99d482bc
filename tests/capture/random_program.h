// Random programs in f64 for the fuzzers of capture/: random ops, shapes, sharing and views.
#pragma once

#include <cmath>
#include <utility>
#include <vector>

#include "core/rng.h"
#include "ops/ops.h"

namespace sinter {

class Draw {
 public:
  explicit Draw(uint64_t seed) : seed_(seed) {}
  int64_t below(int64_t n) { return int64_t(philox_word(seed_, 1234, next_++) % uint64_t(n)); }
  double real(double low, double high) {
    return low + (high - low) * uniform_from_bits(philox_word(seed_, 1234, next_++));
  }
  bool chance(int percent) { return below(100) < percent; }

 private:
  uint64_t seed_, next_ = 0;
};

// Ops of programs for any number of rows, in place of those that make rows of columns.
constexpr int kRowOfItself = 26, kColumnOfItself = 27;
// A number beside a tensor, and one that the step makes of it itself.
constexpr int kPlusNumber = 28, kTimesItsMean = 29;
// Of the heads that rows have: attention of a projection, and two batched products.
constexpr int kAttention = 30, kProductsOfHeads = 31, kOps = 32;

// A program over values numbered from 0 (input, then parameters, then results), so that it can run
// again and again.
struct Program {
  struct Line {
    int op, a, b, c;
    double number;
    Dims dims;
  };
  std::vector<Line> lines;
  std::vector<Shape> parameter_shapes;
  Shape input_shape;
  int64_t classes = 0;  // > 0: the last value are logits
  bool clip = false, adam = false, output_hidden = false;
};

inline double margin_of(const Tensor& t) {
  double least = INFINITY;
  for (const double v : t.to_vector<double>()) least = std::min(least, std::abs(v));
  return least;
}

// a[R, H D] as heads [1, H, R, D], and such a tensor as rows.
inline Tensor heads_of(const Tensor& a, int64_t heads) {
  return transpose(reshape(a, {1, a.size(0), heads, a.size(1) / heads}), 1, 2);
}
inline Tensor rows_of(const Tensor& heads) {
  return reshape(transpose(heads, 1, 2), {heads.size(2), heads.size(1) * heads.size(3)});
}
inline Tensor attend(const Tensor& a, const Tensor& weight, int64_t heads, bool causal) {
  const int64_t columns = a.size(1);
  const Tensor all = linear(a, weight);
  const auto part = [&](int64_t i) {
    return heads_of(contiguous(slice(all, 1, i * columns, (i + 1) * columns)), heads);
  };
  return rows_of(scaled_dot_product_attention(part(0), part(1), part(2), {.causal = causal}));
}

inline Tensor run_line(const Program::Line& l, const Tensors& v, double* margin) {
  const auto near = [&](const Tensor& t) {
    if (margin) *margin = std::min(*margin, margin_of(t));
  };
  const Tensor& a = v[l.a];
  switch (l.op) {
    case 0: return add(a, v[l.b]);
    case 1: return sub(a, v[l.b]);
    case 2: return mul(a, v[l.b]);
    case 3: near(sub(a, v[l.b])); return maximum(a, v[l.b]);
    case 4: near(a); return relu(a);
    case 5: return gelu(a);
    case 6: return gelu_tanh(a);
    case 7: return silu(a);
    case 8: return sinter::tanh(a);
    case 9: return sigmoid(a);
    case 10: return softplus(a);
    case 11: return scale(a, l.number);
    case 12: return neg(a);
    case 13: near(a); return leaky_relu(a, 0.1);
    case 14: return linear(a, v[l.b], l.c < 0 ? Tensor{} : v[l.c]);
    case 15: return matmul(a, v[l.b], false, true);
    case 16: return softmax(a);
    case 17: return transpose(a);
    case 18: return slice(a, 1, l.dims[0], l.dims[1]);
    case 19: return reshape(a, l.dims);
    case 20: return add(a, broadcast_to(mean(a, {1}, true), a.shape()));
    case 21: return sub(a, mean(a, {0}));
    case 22: return dropout(a, 0.25);
    case 23: return mul(silu(a), v[l.b]);
    case 24: return mul(gelu_tanh(a), v[l.b]);
    case kRowOfItself: return sub(a, slice(a, 0, 0, std::min<int64_t>(1, a.size(0))));
    case kColumnOfItself: return mul(a, slice(a, 1, 0, 1));
    case kPlusNumber: return a + l.number;
    case kTimesItsMean: return mul(a, sigmoid(scale(mean(a), l.number)));
    case kAttention: return attend(a, v[l.b], l.dims[0], l.dims[1] > 0);
    case kProductsOfHeads: {
      const Tensor h = heads_of(a, l.dims[0]);
      return rows_of(matmul(sigmoid(matmul(h, h, false, true)), h));
    }
    default: return sinter::exp(scale(sinter::tanh(a), 0.5));
  }
}

// `rows`: 0 for a program of its own number of rows; else one that works for any number of rows,
// given as many here.
inline Program make_program(uint64_t seed, int64_t rows = 0) {
  Draw d(seed);
  Program p;
  p.input_shape = {1 + d.below(6), 2 + d.below(6)};
  if (rows > 0) p.input_shape[0] = rows;
  const auto parameter = [&](const Shape& s) {
    p.parameter_shapes.push_back(s);
    return int(
        p.parameter_shapes.size());  // its number once all are known: parameters follow the input
  };
  // Values are numbered after all parameters are known: first draw lines with results as -(k + 2),
  // then renumber.
  std::vector<std::pair<int, Shape>> pool{{0, p.input_shape}};
  const int n = 3 + int(d.below(9));
  for (int i = 0; i < n; ++i) {
    // Mostly the newest value, so that chains grow; sometimes an old one, so that values are
    // shared.
    const auto [a, shape] =
        pool[d.chance(65) ? pool.size() - 1 : size_t(d.below(int64_t(pool.size())))];
    Program::Line line{.op = int(d.below(kOps)),
        .a = a,
        .b = -1,
        .c = -1,
        .number = d.real(-1.5, 1.5),
        .dims = {}};
    if (rows > 0 && (line.op == 17 || line.op == 19))
      line.op = d.chance(50) ? kRowOfItself : kColumnOfItself;
    Shape out = shape;
    const auto partner =
        [&]() {  // a value of the same shape, or parameters that broadcast to it in any way
          std::vector<int> same;
          for (const auto& [value, s] : pool) {
            if (s == shape) same.push_back(value);
          }
          if (d.chance(40)) {
            const Shape kinds[] = {
                {shape[1]}, {}, {1}, {1, 1}, {1, shape[1]}, {shape[0], 1}};  // but of any rows
            return parameter(kinds[d.below(rows > 0 ? 5 : 6)]);
          }
          return same[size_t(d.below(int64_t(same.size())))];
        };
    switch (line.op) {
      case 0:
      case 1:
      case 2:
      case 3:
      case 23:
      case 24: line.b = partner(); break;
      case 14: {
        const int64_t width = 1 + d.below(8);
        line.b = parameter({width, shape[1]});
        line.c = d.chance(70) ? parameter({width}) : -1;
        out = {shape[0], width};
        break;
      }
      case 15: {
        const int64_t width = 1 + d.below(5);
        line.b = parameter({width, shape[1]});
        out = {shape[0], width};
        break;
      }
      case 17: out = {shape[1], shape[0]}; break;
      case 18: {
        const int64_t begin = d.below(shape[1]);
        const int64_t end = begin + 1 + d.below(shape[1] - begin);
        line.dims = {begin, end};
        out = {shape[0], end - begin};
        break;
      }
      case 19: {
        const int64_t total = shape.numel();
        int64_t rows = 1 + d.below(total);
        while (total % rows) --rows;
        line.dims = out = {rows, total / rows};
        break;
      }
      case kAttention: line.b = parameter({3 * shape[1], shape[1]}); [[fallthrough]];
      case kProductsOfHeads:
        line.dims = {shape[1] % 2 == 0 && d.chance(50) ? 2 : 1, d.below(2)};
        break;
      default: break;
    }
    p.lines.push_back(line);
    pool.emplace_back(-int(p.lines.size()) - 1, out);
  }
  if (d.chance(60)) {  // a classifier head
    p.classes = 2 + d.below(5);
    const auto [a, shape] = pool.back();
    p.lines.push_back({.op = 14,
        .a = a,
        .b = parameter({p.classes, shape[1]}),
        .c = parameter({p.classes}),
        .number = 0,
        .dims = {}});
  }
  if (!p.classes) {  // so that the loss depends on a parameter
    p.lines.push_back(
        {.op = 0, .a = pool.back().first, .b = parameter({1}), .c = -1, .number = 0, .dims = {}});
  }
  const int parameters = int(p.parameter_shapes.size());
  const auto renumber = [&](int& v) {
    if (v <= -2) v = 1 + parameters + (-v - 2);
  };
  for (Program::Line& line : p.lines) {
    renumber(line.a);
    renumber(line.b);
    renumber(line.c);
  }
  p.clip = d.chance(20);
  p.adam = d.chance(50);
  p.output_hidden = d.chance(30);
  return p;
}

}  // namespace sinter
