// What the profiler costs, by Google Benchmark.
//
// Budgets: a disabled scope 3 ns, an enabled one 100 ns. Two threads that record are to take at
// most 1/1.6 of the time that one takes for a scope, and a profiled training step at batch 128 at
// most 2 % longer than a clean one: --benchmark_enable_random_interleaving=true takes their rounds
// in turn.
#include <benchmark/benchmark.h>

#include <array>
#include <cstdint>
#include <optional>

#include "core/parallel.h"
#include "nn/mlp.h"
#include "profiler/session.h"
#include "train/trainer.h"

namespace {

using namespace sinter::profiler;

void one_scope() {
  const Scope scope("bench");
  benchmark::ClobberMemory();
}

void read_clock(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(SteadyClock().now());
}
void disabled_scope(benchmark::State& state) {
  for (auto _ : state) one_scope();
}

void one_op() {
  Scope scope("bench", ScopeKind::op);
  scope.describe([] {
    ShapeText key;
    key.add("f32", std::array<int64_t, 2>{64, 784}).add("f32", std::array<int64_t, 2>{256, 784});
    return OpInfo{.shapes = key.intern()};
  });
  KernelSpan span;
}

std::optional<Session> g_session;

void begin_session(const benchmark::State&) {
  g_session.emplace(Options{.schedule = {.wait = 0, .active = 1}});
}
void end_session(const benchmark::State&) { g_session.reset(); }

// A session keeps all that it records, so the number of calls is a fixed one.
constexpr int kCalls = 20'000;

void recorded(benchmark::State& state, void (*body)()) {
  for (int i = 0; i < kCalls / 10; ++i) body();  // the thread's buffer is made
  for (auto _ : state) body();
}

void training_step(benchmark::State& state, bool profiled) {
  sinter::set_num_threads(sinter::available_cores());
  sinter::nn::Mlp model({784, 256, 128, 10});
  sinter::nn::Adam optimizer(model.named_parameters());
  sinter::Trainer trainer(model, optimizer, {.fused = false});
  const sinter::Tensors batch{cast(sinter::sample_tensor({128, 784}, 3, 0, 1), sinter::DType::f32),
      sinter::sample_labels(128, 10, 4)};
  std::optional<Session> session;
  if (profiled)
    session.emplace(
        Options{.schedule = {.wait = 0, .warmup = 5, .active = int(state.max_iterations)}});
  const auto step = [&] {
    trainer.step(batch);
    if (session) session->step();
  };
  for (int i = 0; i < 5; ++i) step();
  for (auto _ : state) step();
}

void often(benchmark::internal::Benchmark* benchmark) {
  benchmark->UseRealTime()->Repetitions(15)->ReportAggregatesOnly();
}
void in_session(benchmark::internal::Benchmark* benchmark) {
  benchmark->Iterations(kCalls)->Setup(begin_session)->Teardown(end_session)->ThreadRange(1, 2);
}

BENCHMARK(read_clock)->Apply(often)->MinTime(0.02);
BENCHMARK(disabled_scope)->Apply(often)->MinTime(0.02);
BENCHMARK_CAPTURE(recorded, scope, one_scope)->Apply(often)->Apply(in_session);
BENCHMARK_CAPTURE(recorded, op, one_op)->Apply(often)->Apply(in_session);
BENCHMARK_CAPTURE(training_step, clean, false)->Apply(often)->Iterations(40);
BENCHMARK_CAPTURE(training_step, profiled, true)->Apply(often)->Iterations(40);

}  // namespace

BENCHMARK_MAIN();
