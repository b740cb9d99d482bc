// What the profiler costs, and whether it tells the time: prints its figures and exits 1 if a
// budget is missed.
//
// Budgets: a disabled scope <= 3 ns and an enabled one <= 100 ns (medians of batches, less the
// empty loop); work of a known length, three scopes deep, is reported within 2 %; two threads that
// record get 1.6 times as much done as one; the default training step at batch 128 takes at most 2
// % longer. The cost of an op (scope, info with a cached shape, kernel span) is printed without a
// budget.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <thread>
#include <vector>

#include "bench/harness.h"
#include "core/parallel.h"
#include "profiler/session.h"
#include "profiler/stats.h"

namespace {

using namespace sinter::profiler;
using sinter::bench::ns_per_call, sinter::bench::within_budget;

int64_t now() { return SteadyClock().now(); }

int64_t g_spun = 0;  // what spin() took by its own clock: it stops a little late

void spin(int64_t ns) {
  const int64_t t0 = now();
  int64_t t1 = t0;
  while (t1 - t0 < ns) t1 = now();
  g_spun += t1 - t0;
}

// Median ns of body() while a session records.
template <class F> double recorded_cost(F&& body) {
  Session session({.schedule = {.wait = 0, .warmup = 2, .active = 20}});
  std::vector<double> samples;
  for (; !session.done(); session.step()) samples.push_back(ns_per_call(1, 2000, body));
  session.finish();
  return median(samples);
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

// Largest relative error, in percent, of the three levels' self times against what their spins
// measured themselves.
double spin_error() {
  constexpr int64_t kSpinNs[] = {400'000, 200'000, 100'000};
  double spun[3] = {};
  Session session({.schedule = {.wait = 0, .warmup = 2, .active = 20}});
  for (int step = 0; !session.done(); ++step, session.step()) {
    auto work = [&](int level) {
      g_spun = 0;
      spin(kSpinNs[level]);
      if (step >= 2) spun[level] += double(g_spun);
    };
    Scope outer("outer", ScopeKind::module);
    work(0);
    Scope middle("middle", ScopeKind::module);
    work(1);
    Scope inner("inner", ScopeKind::op);
    work(2);
  }
  double worst = 0;
  const Rows rows = session.finish().rows();
  for (const Row& row : rows.rows) {
    const int level = row.name == "outer" ? 0 : row.name == "middle" ? 1 : 2;
    worst = std::max(worst, 100 * std::abs(double(row.self_ns) / spun[level] - 1));
  }
  return rows.rows.size() == 3 ? worst : 100;
}

// Scopes per ns by two threads at once, over those by one.
double two_threads() {
  constexpr int kCalls = 20'000;
  const auto scopes = [] {
    for (int i = 0; i < kCalls; ++i) {
      const Scope scope("bench");
      asm volatile("" ::: "memory");
    }
  };
  std::vector<double> ratios;
  for (int round = 0; round < 9; ++round) {
    double ns[2];
    for (const int threads : {1, 2}) {
      Session session({.schedule = {.wait = 0, .warmup = 1, .active = 1}});
      std::atomic<int> waiting{threads};
      const auto work = [&] {
        scopes();  // its buffer is made
        --waiting;
        while (waiting > 0) {}
        scopes();
      };
      std::thread other;
      if (threads == 2) other = std::thread(work);
      scopes();
      --waiting;
      while (waiting > 0) {}
      const int64_t t0 = now();
      scopes();
      if (other.joinable()) other.join();
      ns[threads - 1] = double(now() - t0);
    }
    ratios.push_back(2 * ns[0] / ns[1]);
  }
  return median(ratios);
}

// What a session adds to the default training step, in percent: profiled and clean rounds in pairs.
double step_cost() {
  sinter::set_num_threads(sinter::available_cores());
  const auto trainer = sinter::bench::make_trainer({}, {.fused = false});
  const sinter::Tensors batch = sinter::bench::random_batch(128, 784);
  constexpr int kSteps = 40;
  const auto round = [&](bool profiled) {
    std::unique_ptr<Session> session;
    if (profiled)
      session = std::make_unique<Session>(
          Options{.schedule = {.wait = 0, .warmup = 5, .active = kSteps}});
    std::vector<double> ns;
    for (int i = 0; i < kSteps + 5; ++i) {
      const int64_t t0 = now();
      trainer->step(batch);
      if (i >= 5) ns.push_back(double(now() - t0));
      if (session) session->step();
    }
    return median(ns);
  };
  std::vector<double> profiled, clean;
  for (int pair = 0; pair < 15; ++pair) {
    for (const bool first : {pair % 2 == 0, pair % 2 == 1})
      (first ? profiled : clean).push_back(round(first));
  }
  return 100 * (paired_ratio(profiled, clean).value - 1);
}

}  // namespace

int main() {
  bool ok = true;
  const double loop = ns_per_call(200, 10000, [] {});
  const double clock = ns_per_call(200, 1000, [] { now(); });
  std::printf(
      "%-44s %8.2f ns\n%-44s %8.2f ns\n", "empty loop", loop, "one reading of the clock", clock);
  ok &= within_budget(
      "scope, disabled", ns_per_call(200, 10000, [] { Scope scope("bench"); }) - loop, 3, "ns");
  ok &= within_budget(
      "scope, enabled", recorded_cost([] { Scope scope("bench"); }) - loop, 100, "ns");
  std::printf(
      "%-44s %8.2f ns\n", "op, enabled: scope + shape + kernel span", recorded_cost(one_op));
  ok &= within_budget("known work, three deep: largest error", spin_error(), 2, "% ");
  ok &= within_budget("two threads recording, over one", two_threads(), 1.6, "x ", true);
  ok &= within_budget("training step at batch 128, profiled", step_cost(), 2, "% ");
  return ok ? 0 : 1;
}
