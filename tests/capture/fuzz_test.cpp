// Random graphs in f64: random ops, shapes, sharing and views, a loss, backward and an optimizer. Eager and fused must agree within the
// rounding of another order of summation, and two fused runs bit for bit. A draw in which a branch (ReLU, max, argmax) is decided by less
// than 1e-9 is skipped and counted, since rounding may then decide it. SINTER_FUZZ_GRAPHS=N runs more (a soak).
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "core/rng.h"
#include "tests/capture/step_util.h"

namespace sinter {
namespace {

constexpr double kMargin = 1e-9;

class Draw {
 public:
  explicit Draw(uint64_t seed) : seed_(seed) {}
  int64_t below(int64_t n) { return static_cast<int64_t>(philox_word(seed_, 1234, next_++) % static_cast<uint64_t>(n)); }
  double real(double low, double high) { return low + (high - low) * uniform_from_bits(philox_word(seed_, 1234, next_++)); }
  bool chance(int percent) { return below(100) < percent; }

 private:
  uint64_t seed_, next_ = 0;
};

// A program over values numbered from 0 (input, then parameters, then results), so that it can run again and again.
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

double margin_of(const Tensor& t) {
  double least = INFINITY;
  for (const double v : t.to_vector<double>()) least = std::min(least, std::abs(v));
  return least;
}

Tensor run_line(const Program::Line& l, const Tensors& v, double* margin) {
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
    default: return sinter::exp(scale(sinter::tanh(a), 0.5));
  }
}

Program make_program(uint64_t seed) {
  Draw d(seed);
  Program p;
  p.input_shape = {1 + d.below(6), 2 + d.below(6)};
  const auto parameter = [&](const Shape& s) {
    p.parameter_shapes.push_back(s);
    return static_cast<int>(p.parameter_shapes.size());  // its number once all are known: parameters follow the input
  };
  // Values are numbered after all parameters are known: first draw lines with results as -(k + 2), then renumber.
  std::vector<std::pair<int, Shape>> pool{{0, p.input_shape}};
  const int n = 3 + static_cast<int>(d.below(9));
  for (int i = 0; i < n; ++i) {
    // Mostly the newest value, so that chains grow; sometimes an old one, so that values are shared.
    const auto [a, shape] = pool[d.chance(65) ? pool.size() - 1 : static_cast<size_t>(d.below(static_cast<int64_t>(pool.size())))];
    Program::Line line{.op = static_cast<int>(d.below(26)), .a = a, .b = -1, .c = -1, .number = d.real(-1.5, 1.5), .dims = {}};
    Shape out = shape;
    const auto partner = [&]() {  // a value of the same shape, or a row of parameters that broadcasts
      std::vector<int> same;
      for (const auto& [value, s] : pool) {
        if (s == shape) same.push_back(value);
      }
      if (d.chance(30)) return parameter({shape[1]});
      return same[static_cast<size_t>(d.below(static_cast<int64_t>(same.size())))];
    };
    switch (line.op) {
      case 0: case 1: case 2: case 3: line.b = partner(); break;
      case 23: case 24: {
        std::vector<int> same;
        for (const auto& [value, s] : pool) {
          if (s == shape) same.push_back(value);
        }
        line.b = same[static_cast<size_t>(d.below(static_cast<int64_t>(same.size())))];
        break;
      }
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
      default: break;
    }
    p.lines.push_back(line);
    pool.emplace_back(-static_cast<int>(p.lines.size()) - 1, out);
  }
  if (d.chance(60)) {  // a classifier head
    p.classes = 2 + d.below(5);
    const auto [a, shape] = pool.back();
    p.lines.push_back({.op = 14, .a = a, .b = parameter({p.classes, shape[1]}), .c = parameter({p.classes}), .number = 0, .dims = {}});
  }
  if (!p.classes) {  // so that the loss depends on a parameter
    p.lines.push_back({.op = 0, .a = pool.back().first, .b = parameter({1}), .c = -1, .number = 0, .dims = {}});
  }
  const int parameters = static_cast<int>(p.parameter_shapes.size());
  const auto renumber = [&](int& v) {
    if (v <= -2) v = 1 + parameters + (-v - 2);
  };
  for (Program::Line& line : p.lines) renumber(line.a), renumber(line.b), renumber(line.c);
  p.clip = d.chance(20);
  p.adam = d.chance(50);
  p.output_hidden = d.chance(30);
  return p;
}

struct Replica {
  const Program& program;
  std::vector<Tensor> parameters;
  std::unique_ptr<nn::Optimizer> optimizer;

  Replica(const Program& p, uint64_t seed) : program(p) {
    nn::NamedTensors named;
    for (size_t i = 0; i < p.parameter_shapes.size(); ++i) {
      Tensor t = sample_tensor(p.parameter_shapes[i], seed + i, -0.8, 0.8);
      t.set_requires_grad(true);
      t.autograd().name = cat("p", i);
      parameters.push_back(t);
      named.push_back({cat("p", i), t});
    }
    if (p.adam) {
      optimizer = std::make_unique<nn::Adam>(named, nn::AdamOptions{.lr = 0.01});
    } else {
      optimizer = std::make_unique<nn::Sgd>(named, nn::SgdOptions{.lr = 0.01, .momentum = 0.9});
    }
  }

  Tensors operator()(const Tensors& in, double* margin = nullptr) {
    optimizer->zero_grad();
    Tensors values{in[0]};
    values.insert(values.end(), parameters.begin(), parameters.end());
    for (const Program::Line& line : program.lines) values.push_back(run_line(line, values, margin));
    const Tensor last = values.back();
    Tensor losses = program.classes ? cross_entropy(last, in[1]) : mean(mul(last, last));
    backward(losses);
    if (program.clip) nn::clip_grad_norm(parameters, 0.5);
    optimizer->step(losses);
    Tensors out{losses};
    if (program.output_hidden) out.push_back(values[values.size() - 2]);
    return out;
  }
};

std::vector<double> flat(const Tensors& tensors) {
  std::vector<double> out;
  for (const Tensor& t : tensors) {
    for (const double v : t.to_vector<double>()) out.push_back(v);
  }
  return out;
}

TEST(Fuzz, EagerEqualsFusedOnRandomGraphs) {
  const char* wanted = std::getenv("SINTER_FUZZ_GRAPHS");
  const int graphs = wanted ? std::atoi(wanted) : 2000;
  const uint64_t base = wanted ? 1000000 : 0;
  int skipped = 0, fused_groups = 0;
  for (int g = 0; g < graphs; ++g) {
    const uint64_t seed = base + static_cast<uint64_t>(g);
    const Program program = make_program(seed);
    Tensors in{sample_tensor(program.input_shape, seed * 3 + 1, -1, 1)};
    const int64_t rows = program.classes ? [&] {
      const NoGrad no_grad;
      Replica shape_run(program, seed);
      Tensors values{in[0]};
      values.insert(values.end(), shape_run.parameters.begin(), shape_run.parameters.end());
      for (const auto& line : program.lines) values.push_back(run_line(line, values, nullptr));
      return values.back().size(0);
    }() : 1;
    in.push_back(sample_labels(rows, std::max<int64_t>(program.classes, 1), seed));

    const auto weights_after = [&](auto&& step, Replica& run, std::vector<std::vector<double>>& trace, double* margin) {
      manual_seed(seed);
      for (int i = 0; i < 4; ++i) {
        restart_random_ops();
        trace.push_back(flat(step(in, margin)));
        trace.push_back(flat(run.parameters));
      }
    };
    double margin = INFINITY;
    std::vector<std::vector<double>> eager, fused, again;
    std::string graph_text;  // what to look at when the assertion fails
    Replica eager_run(program, seed);
    weights_after([&](const Tensors& x, double* m) { return eager_run(x, m); }, eager_run, eager, &margin);
    if (!(margin >= kMargin)) {
      ++skipped;
      continue;
    }
    for (auto* trace : {&fused, &again}) {
      Replica run(program, seed);
      capture::Step step([&](const Tensors& x) { return run(x); }, {.parameters = [&](const capture::ParameterVisitor& visit) {
                           for (const Tensor& p : run.parameters) visit(p);
                         }});
      weights_after([&](const Tensors& x, double*) { return step(x); }, run, *trace, nullptr);
      ASSERT_EQ(step.stats().replays, 2) << "graph " << seed;
      graph_text = capture::dump(step.captured()->recorded) + capture::dump(step.captured()->fused.graph);
      fused_groups += static_cast<int>(step.captured()->fused.groups.size());
    }
    ASSERT_EQ(fused, again) << "graph " << seed << ": two fused runs differ";
    for (size_t t = 0; t < eager.size(); ++t) {
      ASSERT_EQ(eager[t].size(), fused[t].size());
      for (size_t i = 0; i < eager[t].size(); ++i) {
        // f64 sums of fewer than 100 terms in another order err by about 1e-14; Adam scales a gradient error e by at most lr e / eps = 1e6 e.
        const double bound = (program.adam ? 1e-8 : 1e-9) * std::max(1.0, std::abs(eager[t][i]));
        ASSERT_LE(std::abs(eager[t][i] - fused[t][i]), bound) << "graph " << seed << " trace " << t << " element " << i << ": eager " << eager[t][i]
                                                              << ", fused " << fused[t][i] << "\n" << graph_text;
      }
    }
  }
  RecordProperty("skipped", skipped);
  std::printf("%d graphs, %d skipped for a branch margin below 1e-9, %d fused groups\n", graphs, skipped, fused_groups);
  EXPECT_LT(skipped, graphs / 4);
  EXPECT_GT(fused_groups, graphs) << "the graphs give the rules too little to do";
}

}  // namespace
}  // namespace sinter
