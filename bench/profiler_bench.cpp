// What the profiler costs, and whether it tells the time: prints its figures and exits 1 if a budget is missed.
//
// Budgets: a disabled scope <= 3 ns and an enabled one <= 100 ns (medians of batches, less the empty loop); work of a known length, three
// scopes deep, is reported within 2 %. The cost of an op (scope, info with a cached shape, kernel span) is printed without a budget.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "profiler/session.h"
#include "profiler/stats.h"

namespace {

using namespace sinter::profiler;

int64_t now() { return SteadyClock().now(); }

// Median ns per call of body(), over batches of `calls`.
template <class F>
double ns_per_call(int batches, int calls, F&& body) {
  std::vector<double> samples;
  for (int b = 0; b < batches; ++b) {
    const int64_t t0 = now();
    for (int i = 0; i < calls; ++i) {
      body();
      asm volatile("" ::: "memory");  // keeps the loop, and keeps it a loop
    }
    samples.push_back(static_cast<double>(now() - t0) / calls);
  }
  return median(samples);
}

int64_t g_spun = 0;  // what spin() took by its own clock: it stops a little late

void spin(int64_t ns) {
  const int64_t t0 = now();
  int64_t t1 = t0;
  while (t1 - t0 < ns) t1 = now();
  g_spun += t1 - t0;
}

bool verdict(const std::string& what, double value, double limit, const char* unit) {
  const bool ok = value <= limit;
  std::printf("%-44s %8.2f %s  (budget %.0f)  %s\n", what.c_str(), value, unit, limit, ok ? "ok" : "MISSED");
  return ok;
}

double enabled_cost() {
  constexpr int kCalls = 2000;
  Session session({.schedule = {.wait = 0, .warmup = 2, .active = 20}});
  std::vector<double> samples;
  const double loop = ns_per_call(20, kCalls, [] {});
  for (; !session.done(); session.step()) {
    samples.push_back(ns_per_call(1, kCalls, [] { Scope scope("bench"); }));
  }
  session.finish();
  return median(samples) - loop;
}

double op_cost() {
  constexpr int kCalls = 2000;
  Session session({.schedule = {.wait = 0, .warmup = 2, .active = 20}});
  std::vector<double> samples;
  for (; !session.done(); session.step()) {
    samples.push_back(ns_per_call(1, kCalls, [] {
      Scope scope("bench", ScopeKind::op);
      scope.describe([] {
        ShapeKey key;
        key.add("f32", std::array<int64_t, 2>{64, 784}).add("f32", std::array<int64_t, 2>{256, 784});
        return OpInfo{.shape_key = key.intern()};
      });
      KernelSpan span;
    }));
  }
  session.finish();
  return median(samples);
}

// Largest relative error, in percent, of the three levels' self times against what their spins measured themselves.
double spin_error() {
  constexpr int64_t kSpinNs[] = {400'000, 200'000, 100'000};
  double spun[3] = {};
  Session session({.schedule = {.wait = 0, .warmup = 2, .active = 20}});
  for (int step = 0; !session.done(); ++step, session.step()) {
    auto work = [&](int level) {
      g_spun = 0;
      spin(kSpinNs[level]);
      if (step >= 2) spun[level] += static_cast<double>(g_spun);
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
    worst = std::max(worst, 100 * std::abs(static_cast<double>(row.self_ns) / spun[level] - 1));
  }
  return rows.rows.size() == 3 ? worst : 100;
}

}  // namespace

int main() {
  bool ok = true;
  const double loop = ns_per_call(200, 10000, [] {});
  const double clock = ns_per_call(200, 1000, [] { now(); });
  std::printf("%-44s %8.2f ns\n%-44s %8.2f ns\n", "empty loop", loop, "one reading of the clock", clock);
  ok &= verdict("scope, disabled", ns_per_call(200, 10000, [] { Scope scope("bench"); }) - loop, 3, "ns");
  ok &= verdict("scope, enabled", enabled_cost(), 100, "ns");
  std::printf("%-44s %8.2f ns\n", "op, enabled: scope + shape + kernel span", op_cost());
  ok &= verdict("known work, three deep: largest error", spin_error(), 2, "% ");
  return ok ? 0 : 1;
}
