// Shorthands of the profiler's tests: ops that take a fake time.
#pragma once

#include "profiler/session.h"
#include "tests/profiler/fake_clock.h"

namespace sinter::profiler {

// An op that takes disp + kernel ns of the fake clock, in one launch.
inline void fake_op(
    FakeClock& clock, StaticName name, int64_t disp, int64_t kernel, const OpInfo& info = {}) {
  Scope scope(name, ScopeKind::op);
  scope.describe([&] { return info; });
  clock.advance(disp);
  KernelSpan span;
  clock.advance(kernel);
}

// What a session of these options records: body(step) for each of its steps.
template <class F> Report recorded(FakeClock& clock, Options options, F&& body) {
  options.clock = &clock;
  Session session(std::move(options));
  for (int step = 0; !session.done(); ++step, session.step()) body(step);
  return session.finish();
}

// What a card's records say of a launch: the host's call, then the device.
inline LaunchRecord timed_launch(int64_t api_t0, int64_t api_t1, int64_t dev_t0, int64_t dev_t1) {
  return {.api_t0 = api_t0,
      .api_t1 = api_t1,
      .dev_t0 = dev_t0,
      .dev_t1 = dev_t1,
      .source = Source::cupti};
}

inline const Row* find_row(const Rows& rows, std::string_view name) {
  for (const Row& row : rows.rows) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

}  // namespace sinter::profiler
