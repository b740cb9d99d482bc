// What a captured step costs beside its kernels: key lookup and guards, and the dispatch of one
// replayed launch. Budget: guards < 1 us.
#include <benchmark/benchmark.h>

#include "capture/step.h"
#include "nn/mlp.h"
#include "ops/ops.h"

namespace sinter {
namespace {

// A step of no ops: what is left is the key and the guards of the default model's six parameters.
void guards(benchmark::State& state) {
  nn::Mlp net({784, 256, 128, 10});
  capture::Step step(
      [](const Tensors& in) { return in; }, {.parameters = nn::parameter_visitor(net)});
  const Tensors in{Tensor::ones({128, 784}), Tensor::zeros({128}, DType::i32)};
  for (int i = 0; i < 3; ++i) step(in);
  for (auto _ : state) benchmark::DoNotOptimize(step(in));
  if (step.stats().replays == 0) state.SkipWithError("never replayed");
}
BENCHMARK(guards);

// Ten launches of one element each.
void ten_launches(benchmark::State& state) {
  capture::Step step(
      [](const Tensors& in) {
        Tensor x = in[0];
        for (int i = 0; i < 10; ++i) x = sum(x, {0}, true);
        return Tensors{x};
      },
      {.rules = capture::RuleSet("none")});
  const Tensors in{Tensor::ones({1})};
  for (int i = 0; i < 3; ++i) step(in);
  for (auto _ : state) benchmark::DoNotOptimize(step(in));
  if (step.captured()->executor->launches() != 10) state.SkipWithError("not ten launches");
}
BENCHMARK(ten_launches);

}  // namespace
}  // namespace sinter

BENCHMARK_MAIN();
