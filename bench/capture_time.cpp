// How long capture takes, by the number of ops: comparing two recordings, rewriting, planning
// memory, splitting branches. It should grow with the number of ops, not with its square. Budget:
// 1,200 ops < 50 ms, 10,000 ops < 1 s.
#include <benchmark/benchmark.h>

#include "autograd/autograd.h"
#include "capture/branches.h"
#include "capture/plan.h"
#include "capture/recording.h"
#include "capture/rules.h"
#include "nn/clip.h"
#include "nn/mlp.h"
#include "nn/optim.h"
#include "ops/ops.h"

namespace sinter::capture {
namespace {

struct Recorded {
  Graph first, second;
};
// Two recordings of a step.
Recorded record_twice(
    const std::function<Tensors()>& step, const Tensors& inputs, const Tensors& parameters) {
  const auto record = [&] {
    Recording recording(inputs);
    return recording.finish(step(), parameters);
  };
  Recorded r;
  r.first = record();
  r.second = record();
  return r;
}

void run_capture(benchmark::State& state, const Recorded& recorded) {
  size_t launches = 0;
  for (auto _ : state) {
    if (!difference(recorded.first, recorded.second).empty())
      state.SkipWithError("the recordings differ");
    const Rewriter r = rewrite(recorded.second, RuleSet(), Device::Type::cpu);
    const Branches branches = split_branches(r.graph);
    benchmark::DoNotOptimize(plan_memory(r.graph).bytes);
    benchmark::DoNotOptimize(plan_memory(r.graph, &branches).bytes);
    launches = r.graph.nodes.size();
  }
  state.counters["ops"] = static_cast<double>(recorded.second.nodes.size());
  state.counters["launches"] = static_cast<double>(launches);
}

// A training step of a deep MLP with clipping and Adam: 8 ops a layer, and 5 a parameter.
void training_step(benchmark::State& state) {
  nn::Mlp net(std::vector<int64_t>(static_cast<size_t>(state.range(0)), 8),
      {.activation = "gelu", .dropout = 0.1});
  nn::Adam adam(net.named_parameters());
  const Tensor x = Tensor::ones({4, 8}), labels = Tensor::zeros({4}, DType::i32);
  const auto step = [&] {
    adam.zero_grad();
    const Tensor losses = cross_entropy(net(x), labels);
    backward(losses);
    nn::clip_grad_norm(net.parameters(), 1.0);
    adam.step(losses);
    return Tensors{losses};
  };
  run_capture(state, record_twice(step, {x, labels}, net.parameters()));
}
BENCHMARK(training_step)->Arg(83)->Arg(670)->Unit(benchmark::kMillisecond);

// The same without clipping, so that updates move into the products.
void sgd_step(benchmark::State& state) {
  nn::Mlp net(std::vector<int64_t>(static_cast<size_t>(state.range(0)), 8), {.activation = "relu"});
  nn::Sgd sgd(net.named_parameters());
  const Tensor x = Tensor::ones({4, 8}), labels = Tensor::zeros({4}, DType::i32);
  const auto step = [&] {
    sgd.zero_grad();
    const Tensor losses = cross_entropy(net(x), labels);
    backward(losses);
    sgd.step(losses);
    return Tensors{losses};
  };
  run_capture(state, record_twice(step, {x, labels}, net.parameters()));
}
BENCHMARK(sgd_step)->Arg(134)->Arg(1112)->Unit(benchmark::kMillisecond);

// A long chain of pointwise ops, forward and backward.
void pointwise_ops(benchmark::State& state) {
  const Tensor x = Tensor::ones({4, 8}), w = Tensor::ones({8}).set_requires_grad(true);
  const auto step = [&] {
    w.autograd().grad = {};
    Tensor y = x;
    for (int64_t i = 0; i < state.range(0); ++i) y = sinter::tanh(mul(y, w));
    backward(sum(y));
    return Tensors{};
  };
  run_capture(state, record_twice(step, {x}, {w}));
}
BENCHMARK(pointwise_ops)->Arg(170)->Arg(1430)->Unit(benchmark::kMillisecond);

// One weight for all layers, as in a recurrent net: a buffer that everything reads.
void shared_weight(benchmark::State& state) {
  const NoGrad no_grad;
  const Tensor x = Tensor::ones({4, 8}), w = Tensor::ones({8, 8});
  const auto step = [&] {
    Tensor y = x;
    for (int64_t i = 0; i < state.range(0); ++i) y = add(relu(linear(y, w)), x);
    return Tensors{y};
  };
  run_capture(state, record_twice(step, {x}, {}));
}
BENCHMARK(shared_weight)->Arg(400)->Arg(3333)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace sinter::capture

BENCHMARK_MAIN();
