// Random graphs in f64: random ops, shapes, sharing and views, a loss, backward and an optimizer.
// Eager and fused must agree within the rounding of another order of summation, and two fused runs
// bit for bit. A draw in which a branch (ReLU, max, argmax) is decided by less than 1e-9 is skipped
// and counted, since rounding may then decide it. SINTER_FUZZ_GRAPHS=N runs N others (a soak), from
// SINTER_FUZZ_SEED on if it is given.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "tests/capture/random_program.h"
#include "tests/capture/step_util.h"
#include "tests/test_util.h"

namespace sinter {
namespace {

constexpr double kMargin = 1e-9;

struct Replica {
  const Program& program;
  std::vector<Tensor> parameters;
  std::unique_ptr<nn::Optimizer> optimizer;

  Replica(const Program& p, uint64_t seed, Device device) : program(p) {
    nn::NamedTensors named;
    for (size_t i = 0; i < p.parameter_shapes.size(); ++i) {
      Tensor t = sample_tensor(p.parameter_shapes[i], seed + i, -0.8, 0.8).to(device);
      t.set_requires_grad(true);
      t.autograd().name = str("p", i);
      parameters.push_back(t);
      named.push_back({str("p", i), t});
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
    for (const Program::Line& line : program.lines)
      values.push_back(run_line(line, values, margin));
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

void check_random_graphs(Device device, int most) {
  const char *wanted = std::getenv("SINTER_FUZZ_GRAPHS"), *first = std::getenv("SINTER_FUZZ_SEED");
  const int graphs = wanted ? std::atoi(wanted) : test::kSanitized ? most / 5 : most;
  const uint64_t base = first ? std::strtoull(first, nullptr, 10) : wanted ? 1000000 : 0;
  int skipped = 0, fused_groups = 0;
  for (int g = 0; g < graphs; ++g) {
    const uint64_t seed = base + uint64_t(g);
    const Program program = make_program(seed);
    Tensors in{sample_tensor(program.input_shape, seed * 3 + 1, -1, 1).to(device)};
    const int64_t rows = program.classes ? [&] {
      const NoGrad no_grad;
      Replica shape_run(program, seed, device);
      Tensors values{in[0]};
      values.insert(values.end(), shape_run.parameters.begin(), shape_run.parameters.end());
      for (const auto& line : program.lines) values.push_back(run_line(line, values, nullptr));
      return values.back().size(0);
    }()
                                         : 1;
    in.push_back(sample_labels(rows, std::max<int64_t>(program.classes, 1), seed).to(device));

    const auto weights_after = [&](auto&& step, Replica& run,
                                   std::vector<std::vector<double>>& trace, double* margin) {
      manual_seed(seed);
      for (int i = 0; i < 4; ++i) {
        restart_random_ops();
        trace.push_back(flat(step(in, margin)));
        trace.push_back(flat(run.parameters));
      }
    };
    double margin = INFINITY;
    std::vector<std::vector<double>> eager, fused, again;
    capture::Graph recorded, rewritten;  // what to look at when the assertion fails
    Replica eager_run(program, seed, device);
    weights_after(
        [&](const Tensors& x, double* m) { return eager_run(x, m); }, eager_run, eager, &margin);
    if (!(margin >= kMargin)) {
      ++skipped;
      continue;
    }
    for (auto* trace : {&fused, &again}) {
      Replica run(program, seed, device);
      capture::Step step([&](const Tensors& x) { return run(x); },
          {.parameters = [&](const capture::ParameterVisitor& visit) {
            for (const Tensor& p : run.parameters) visit(p);
          }});
      weights_after([&](const Tensors& x, double*) { return step(x); }, run, *trace, nullptr);
      ASSERT_EQ(step.stats().replays, 3) << "graph " << seed;
      recorded = step.captured()->recorded;
      rewritten = step.captured()->fused.graph;
      fused_groups += int(step.captured()->fused.groups.size());
    }
    ASSERT_EQ(fused, again) << "graph " << seed << ": two fused runs differ";
    for (size_t t = 0; t < eager.size(); ++t) {
      // f64 sums of fewer than 100 terms in another order err by about 1e-14; Adam scales a
      // gradient error e by at most lr e / eps = 1e6 e.
      const double bound = (program.adam ? 1e-8 : 1e-9) / 2;
      ASSERT_TRUE(test::close(fused[t], eager[t], {.of_each = bound, .absolute = bound}))
          << "graph " << seed << " trace " << t << "\n"
          << capture::dump(recorded) << capture::dump(rewritten);
    }
  }
  testing::Test::RecordProperty("skipped", skipped);
  std::printf("%d graphs, %d skipped for a branch margin below 1e-9, %d fused groups\n", graphs,
      skipped, fused_groups);
  EXPECT_LT(skipped, graphs / 4);
  EXPECT_GT(fused_groups, graphs) << "the graphs give the rules too little to do";
}
TEST(Fuzz, EagerEqualsFusedOnRandomGraphs) { check_random_graphs(kCpu, 2000); }
TEST(FuzzSimt, EagerEqualsFusedOnRandomGraphs) { check_random_graphs(kSimt, 50); }

}  // namespace
}  // namespace sinter
