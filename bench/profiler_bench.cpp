// What the profiler costs, and whether it tells the time, by Google Benchmark; exits 1 where a
// median is over its budget.
//
// Budgets: a disabled scope 3 ns, an enabled one 100 ns, and 2 % of error where work of a known
// length, three scopes deep, is reported. Two threads that record are to take at most 1/1.6 of the
// time that one takes for a scope, and a profiled training step at batch 128 at most 2 % longer
// than a clean one: --benchmark_enable_random_interleaving=true takes their rounds in turn.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/parallel.h"
#include "nn/mlp.h"
#include "profiler/session.h"
#include "train/trainer.h"

namespace {

using namespace sinter::profiler;

int64_t now() { return SteadyClock().now(); }

void one_scope() {
  const Scope scope("bench");
  benchmark::ClobberMemory();
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

// Largest relative error, in percent, of the three levels' self times against what their spins
// measured themselves.
void known_work(benchmark::State& state) {
  constexpr int64_t kSpinNs[] = {400'000, 200'000, 100'000};
  double spun[3] = {};
  Session session({.schedule = {.wait = 0, .warmup = 2, .active = 20}});
  for (int step = 0; !session.done(); ++step, session.step()) {
    const auto work = [&](int level) {
      const int64_t begin = now();
      int64_t end = begin;
      while (end - begin < kSpinNs[level]) end = now();
      if (step >= 2) spun[level] += double(end - begin);
    };
    Scope outer("outer", ScopeKind::module);
    work(0);
    Scope middle("middle", ScopeKind::module);
    work(1);
    Scope inner("inner", ScopeKind::op);
    work(2);
  }
  const std::vector<Row> rows = session.finish().rows().rows;
  double worst = rows.size() == 3 ? 0 : 100;
  for (const Row& row : rows) {
    const int level = row.name == "outer" ? 0 : row.name == "middle" ? 1 : 2;
    worst = std::max(worst, 100 * std::abs(double(row.self_ns) / spun[level] - 1));
  }
  for (auto _ : state) {}
  state.counters["percent"] = worst;
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

// Notes whether the median of a benchmark is over its budget.
struct Budgets : benchmark::ConsoleReporter {
  Budgets() : ConsoleReporter(OO_None) {}  // no colours: they go to files, too
  bool kept = true;
  void ReportRuns(const std::vector<Run>& runs) override {
    ConsoleReporter::ReportRuns(runs);
    for (const Run& run : runs) {
      if (run.aggregate_name != "median") continue;
      const std::string name = run.run_name.function_name;
      const double ns = run.GetAdjustedCPUTime();  // whatever else runs here
      if ((name == "scope/disabled" && ns > 3) || (name == "scope/enabled" && ns > 100) ||
          (name == "known_work" && run.counters.at("percent") > 2)) {
        GetErrorStream() << name << ": over its budget\n";
        kept = false;
      }
    }
  }
};

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  const auto add = [](const char* name, auto... what) {
    return benchmark::RegisterBenchmark(name, what...)
        ->UseRealTime()
        ->Repetitions(15)
        ->ReportAggregatesOnly();
  };
  const auto loop = [](benchmark::State& state, auto body) {
    for (auto _ : state) body();
  };
  add("clock", loop, [] { benchmark::DoNotOptimize(now()); })->MinTime(0.02);
  add("scope/disabled", loop, one_scope)->MinTime(0.02);
  for (const auto& [name, body] : {std::pair{"scope/enabled", &one_scope}, {"op/enabled", &one_op}})
    add(name, recorded, body)
        ->Iterations(kCalls)
        ->Setup(begin_session)
        ->Teardown(end_session)
        ->Threads(1)
        ->Threads(2);
  add("known_work", known_work)->Iterations(1);
  for (const bool profiled : {false, true})
    add(profiled ? "step/profiled" : "step/clean", training_step, profiled)->Iterations(40);
  Budgets budgets;
  benchmark::RunSpecifiedBenchmarks(&budgets);
  return budgets.kept ? 0 : 1;
}
