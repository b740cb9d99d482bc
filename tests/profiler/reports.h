// Reports of the exports' tests: one step loop on `cpu`, and a hand-made device timeline whose
// times are whole us, so that readers that round agree with us exactly.
#pragma once

#include "tests/profiler/scopes.h"

namespace sinter::profiler {

inline constexpr std::string_view kOddName = "q\"uo\\te;\n\xff</script><!--\x1b";

// Four active steps of 15 us in two rounds: a module with an op of two launches, an op with a
// forward op, an odd name.
inline Report cpu_report() {
  FakeClock clock;
  ShapeText key;
  const int64_t dims[] = {64, 784};
  const StaticName shape = key.add("f32", dims).intern();
  const Options options{.schedule = {.wait = 0, .warmup = 1, .active = 2, .repeat = 2},
      .threads = 2,
      .mode = "eager"};
  return recorded(clock, options, [&](int) {
    {
      Scope module("Linear", ScopeKind::module);
      fake_op(clock, "linear", 1000, 6000,
          {.cost = {400'000, 2000, 1000},
              .uid = 7,
              .forward_uid = 7,
              .shapes = shape,
              .role = Role::fwd});
    }
    fake_op(clock, "matmul", 500, 4500,
        {.cost = {200'000, 1500, 500}, .uid = 8, .forward_uid = 7, .role = Role::wgrad});
    Scope odd(intern(kOddName));
    clock.advance(3000);
  });
}

// Three steps of 200 us on a device: kernels of 50, 10, 14 and 32 us and a copy of 10 us in each.
inline Report device_report() {
  Report r;
  r.title = "CUDA eager";
  r.schedule = {0, 0, 3, 1};
  r.device = {Device::Type::cuda, 0};
  r.mode = "eager";
  r.source = Source::cupti;
  Trace trace{.thread = 0, .steps_here = true};
  struct Op {
    StaticName name, kernel;
    uint64_t uid, forward;
    Role role;
    int64_t t0, t1, api0, api1, dev0, dev1;  // us after the step's begin
    LaunchKind kind = LaunchKind::kernel;
  };
  // relu and copy begin 1 us late, log_softmax 15 and matmul 27, which wait for the host.
  const Op ops[] = {
      {"linear", "gemm_128x64", 1, 1, Role::fwd, 10, 40, 20, 30, 30, 80},
      {"relu", "relu_kernel", 2, 2, Role::fwd, 42, 60, 50, 56, 81, 91},
      {"log_softmax", "softmax_kernel", 3, 3, Role::fwd, 62, 108, 100, 106, 106, 120},
      {"copy", "Memcpy HtoD", 4, 4, Role::none, 110, 118, 112, 116, 121, 131, LaunchKind::memcpy},
      {"matmul", "gemm_128x64", 5, 1, Role::wgrad, 140, 160, 150, 158, 158, 190},
  };
  for (uint32_t step = 0; step < 3; ++step) {
    const int64_t base = 1'000'000 + int64_t{200'000} * step;
    r.steps.push_back({.number = step, .round = 0, .t0 = base, .t1 = base + 200'000, .allocs = 0});
    for (const Op& op : ops) {
      const auto at = [base](int64_t us) { return base + 1000 * us; };
      trace.launches.push_back({.api_t0 = at(op.api0),
          .api_t1 = at(op.api1),
          .dev_t0 = at(op.dev0),
          .dev_t1 = at(op.dev1),
          .kernel = op.kernel,
          .record = int32_t(trace.records.size()),
          .step = step,
          .bytes = op.kind == LaunchKind::memcpy ? 4096 : 0,
          .kind = op.kind,
          .source = Source::cupti});
      trace.records.push_back({.t0 = at(op.t0),
          .t1 = at(op.t1),
          .name = op.name,
          .info = {.cost = {1'000'000, 3000, 1000},
              .uid = op.uid + 10 * step,
              .forward_uid = op.forward + 10 * step,
              .role = op.role},
          .step = step,
          .kind = ScopeKind::op});
    }
    trace.memory.push_back({base + 15'000, 1000 + step, step});
    trace.memory.push_back({base + 70'000, 500, step});
  }
  r.traces.push_back(std::move(trace));
  r.evaluate();
  return r;
}

// cpu_report(), of which fusing would save two launches.
inline Report advised_report() {
  Report report = cpu_report();
  report.candidates.emplace();
  report.candidates->push_back({.rule = "linear_act",
      .ops = "linear + relu",
      .rows = {"linear"},
      .times = 2,
      .launches_saved = 2});
  return report;
}

}  // namespace sinter::profiler
