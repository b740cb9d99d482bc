// Device time without a device: a fake timeline under the fake clock, and reports written by hand.
#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "core/device/launch_hook.h"
#include "core/device/timing.h"
#include "profiler/device_trace.h"
#include "tests/profiler/scopes.h"
#include "tests/test_util.h"

namespace sinter::profiler {
namespace {

constexpr Device kCuda{Device::Type::cuda, 0};
constexpr Schedule kTwoSteps{.wait = 0, .warmup = 1, .active = 2};

// A device that runs what is launched in order, one thing at a time, and keeps records of it.
class FakeDevice final : public DeviceTimer {
 public:
  explicit FakeDevice(FakeClock& clock) : clock_(clock) {}

  // The host takes `api` ns to launch work of `ns`.
  void launch(std::string_view name, int64_t api, int64_t ns, DeviceWork work = DeviceWork::kernel,
      int launches = 1) {
    const HookedCall hooked(work, Device::Type::cuda, name, 64, true, launches);
    clock_.advance(api);
    const int64_t begin = std::max(free_at_, clock_.now());
    free_at_ = begin + ns;
    const bool lost = work == DeviceWork::graph || lose-- == 0;
    if (!lost) ran_.push_back({submitted_, 0, std::max(launches, 1), begin, free_at_});
  }
  // One call, and a record of each node of its graph.
  void replay(int64_t api, std::initializer_list<int64_t> nodes) {
    const HookedCall hooked(DeviceWork::graph, Device::Type::cuda, "cuda_graph");
    clock_.advance(api);
    free_at_ = std::max(free_at_, clock_.now());
    uint32_t node = 0;
    for (const int64_t ns : nodes) {
      const int64_t begin = free_at_;
      ran_.push_back({submitted_, ++node, 1, begin, free_at_ += ns});
    }
  }
  void op(StaticName name, int64_t disp, int64_t api, int64_t ns, const OpInfo& info = {}) {
    Scope scope(name, ScopeKind::op);
    scope.describe([&] { return info; });
    clock_.advance(disp);
    launch("kernel", api, ns);
  }

  void wait() noexcept override { clock_.advance(std::max<int64_t>(0, free_at_ - clock_.now())); }
  bool has_records() const override { return records; }
  void submitting(uint64_t launch) noexcept override { submitted_ = launch; }
  void begin(const HostClock&) override {
    has_begun = true;
    wait();
    ran_.clear();
  }
  Records end(const HostClock&) override {
    wait();
    return {.ran = std::exchange(ran_, {}), .dropped = dropped, .axis_ns = 100};
  }
  SmClock sm_clock() noexcept override {
    clock_.advance(sm_clock_ns);
    return {mhz, 2000};
  }

  bool records = true, has_begun = false;
  int64_t sm_clock_ns = 0;  // that reading it takes
  int lose = -1;            // so many launches from now
  int64_t dropped = 0;
  double mhz = 0;

 private:
  FakeClock& clock_;
  int64_t free_at_ = 0;
  uint64_t submitted_ = 0;
  std::vector<Ran> ran_;
};

struct Bench {
  FakeClock clock;
  FakeDevice device{clock};
  Session session;
  explicit Bench(Options options = {.schedule = kTwoSteps}, bool records = true)
      : session(with(std::move(options), *this, records)) {}
  static Options with(Options o, Bench& b, bool records) {
    b.device.records = records;
    o.device = kCuda;
    o.timer = &b.device;
    o.clock = &b.clock;
    return o;
  }
};

TEST(DeviceTime, EachLaunchTakesWhatTheDeviceRecorded) {
  Bench b;
  for (; !b.session.done(); b.session.step()) {
    b.device.op("linear", 1000, 4000, 9000);
    b.device.op("relu", 1000, 4000, 2000);
    b.device.launch("memcpy", 500, 300, DeviceWork::copy);
    b.clock.advance(20'000);
  }
  const Report report = b.session.finish();
  EXPECT_TRUE(report.incomplete.empty()) << report.incomplete[0];
  EXPECT_EQ(report.source, Source::cupti);
  const Rows rows = report.rows();
  EXPECT_EQ(find_row(rows, "linear")->device_ns, 2 * 9000);
  EXPECT_EQ(find_row(rows, "relu")->device_ns, 2 * 2000);
  EXPECT_EQ(find_row(rows, "memcpy")->cost.bytes(), 4 * 64);
  EXPECT_EQ(find_row(rows, "memcpy")->launches, 0);
  EXPECT_EQ(report.steps[1].launches, 2);
  EXPECT_EQ(report.steps[1].api_calls, 3);
  EXPECT_EQ(report.steps[1].copies, 1);
  EXPECT_EQ(report.overheads.axis_ns, 100);
  test::expect_facts(
      report.table(), {"busy 11.3us", "launched 2 = timed 2   memcpy 1   allocs 0   axis +-0.1us"});
}

TEST(DeviceTime, WhatWasLostIsToldWithItsCount) {
  const auto incomplete = [](auto&& spoil) {
    Bench b;
    spoil(b.device);
    for (; !b.session.done(); b.session.step()) {
      b.device.op("op", 10, 10, 10);
      b.clock.advance(100);
    }
    const Report report = b.session.finish();
    test::expect_facts(report.table(), {"INCOMPLETE"});
    EXPECT_EQ(report.verdict().code, StepCode::undecided);
    return report.incomplete.empty() ? "" : report.incomplete[0];
  };
  EXPECT_EQ(incomplete([](FakeDevice& d) { d.lose = 1; }), "1 launches were not timed");
  EXPECT_EQ(incomplete([](FakeDevice& d) { d.dropped = 3; }),
      "3 records dropped by CUPTI, whose buffers were full");
}

TEST(DeviceTime, ALibraryCallMayHideKernelsWhereNothingIsRecorded) {
  Bench b({.schedule = kTwoSteps}, false);
  for (; !b.session.done(); b.session.step()) {
    Scope scope("matmul", ScopeKind::op);
    b.device.launch("gemm", 10, 1000, DeviceWork::kernel, 0);
    b.device.launch("gemm", 10, 1000, DeviceWork::kernel, 2);
  }
  const Report report = b.session.finish();
  ASSERT_EQ(report.incomplete.size(), 1u);
  EXPECT_EQ(report.incomplete[0], "4 launches were not timed");
  EXPECT_EQ(report.source, Source::none);
  EXPECT_EQ(report.unproved, 2);
  EXPECT_EQ(report.steps[0].launches, 3);
  EXPECT_EQ(find_row(report.rows(), "matmul")->launches, 2 * 3);
  test::expect_facts(report.table(), {"busy -   idle -", " >=3 ", "launched >= 3, not proved"});
}

TEST(DeviceTime, ASlowClockIsTold) {
  const auto report = [](double mhz) {
    Bench b;
    for (; !b.session.done(); b.session.step()) {
      b.device.op("op", 10, 10, 1000);
      b.device.mhz = mhz;
    }
    return b.session.finish();
  };
  EXPECT_FALSE(report(1500).throttled());
  test::expect_facts(report(1500).table(), {"SM 1500 MHz, not throttled"});
  const Report slow = report(1499);
  EXPECT_TRUE(slow.throttled());
  EXPECT_TRUE(slow.table().starts_with("THROTTLED  ")) << slow.table();
  test::expect_facts(slow.table(), {"SM 1499 of 2000 MHz, THROTTLED"});
  EXPECT_EQ(report(0).table().find("MHz"), std::string::npos);
}

TEST(DeviceTime, AWaitIsASyncScopeAndTheRest) {
  Bench b;
  for (; !b.session.done(); b.session.step()) {
    b.device.op("op", 10, 10, 500);
    const HookedCall wait(DeviceWork::wait, Device::Type::cuda, "synchronize");
    b.device.wait();
  }
  const Rows rows = b.session.finish().rows();
  const Row* row = find_row(rows, "synchronize");
  ASSERT_TRUE(row);
  EXPECT_EQ(row->kind, ScopeKind::sync);
  EXPECT_EQ(row->self_ns, 2 * 500);
}

TEST(DeviceTime, AReplayGivesARowPerNode) {
  Bench b;
  for (; !b.session.done(); b.session.step()) {
    const Scope step("train_step");
    b.device.replay(2000, {20'000, 10'000});
    b.device.wait();
  }
  Report report = b.session.finish();
  report.rules = "all";
  report.nodes = {
      {.name = "linear_act", .made_of = "linear + relu", .cost = {100, 100, 0}, .phase = "forward"},
      {.name = "matmul", .role = Role::wgrad, .phase = "backward"}};
  report.clean_us = std::vector<double>(9, 40.0);
  EXPECT_TRUE(report.incomplete.empty()) << report.incomplete[0];
  EXPECT_EQ(report.source, Source::cupti);
  EXPECT_EQ(report.steps[0].launches, 2);
  EXPECT_EQ(report.steps[0].api_calls, 1);
  const Rows rows = report.rows();
  EXPECT_EQ(find_row(rows, "linear_act")->device_ns, 2 * 20'000);
  EXPECT_EQ(find_row(rows, "matmul(wgrad)")->device_ns, 2 * 10'000);
  // The phases are spans, as they are where the host runs op by op.
  EXPECT_EQ(find_row(rows, "forward")->kind, ScopeKind::annotation);
  EXPECT_EQ(find_row(rows, "forward")->device_total_ns, 2 * 20'000);
  EXPECT_EQ(find_row(rows, "backward")->calls, 2);
  EXPECT_EQ(find_row(rows, "train_step")->device_total_ns, 2 * 30'000);
  const Timeline t = report.timeline();
  EXPECT_TRUE(t.known);
  EXPECT_EQ(t.host_ns, 2 * 2000);
  test::expect_facts(report.table({.scopes = true}),
      {"\n        -         -      20.0us      1       -  annotation  forward\n",
          "replayed as a graph", "idle 2.0us = host 2.0 + gap 0 + sync 0 + data 0 (OK)",
          "API calls 1   launched 2 = timed 2"});
}

TEST(DeviceTime, AReplayWithoutItsNodesIsIncomplete) {
  Bench b;
  for (; !b.session.done(); b.session.step())
    b.device.launch("cuda_graph", 2000, 30'000, DeviceWork::graph);
  const Report report = b.session.finish();
  ASSERT_EQ(report.incomplete.size(), 1u);
  EXPECT_EQ(report.incomplete[0], "2 launches were not timed");
}

TEST(DeviceTime, WhatWasTimedOfALossyStepIsSaid) {
  Bench b;
  b.device.lose = 3;
  for (; !b.session.done(); b.session.step()) {
    b.device.op("op", 10, 10, 10);
    b.device.op("op", 10, 10, 10);
  }
  test::expect_facts(b.session.finish().table(), {"launched 2 != timed 1..2 "});
}

TEST(DeviceTime, APauseWaitsAndLeavesTheWaitToTheStepBefore) {
  Bench b;
  for (; !b.session.done();) {
    b.device.op("op", 10, 10, 5000);
    b.session.step();
    const Pause evaluation(&b.session);
    b.device.launch("kernel", 10, 100'000);
    b.device.wait();
  }
  const Report report = b.session.finish();
  ASSERT_EQ(report.steps.size(), 2u);
  for (const StepSample& step : report.steps) {
    EXPECT_EQ(step.ns(), 20);
    EXPECT_EQ(step.launches, 1);
  }
  EXPECT_EQ(report.steps[0].drain_ns, 5000);
  EXPECT_EQ(find_row(report.rows(), "op")->device_ns, 2 * 5000) << report.table();
}

// Replays return at once; the driver may take milliseconds to tell the clock.
TEST(DeviceTime, WhatStillRunsAtTheEndIsBusyWhileTheClockIsReadBehindIt) {
  Bench b;
  b.device.sm_clock_ns = 1'000'000;
  for (; !b.session.done(); b.session.step()) b.device.op("op", 10, 10, 5000);
  const Report report = b.session.finish();
  const Timeline timeline = report.timeline();
  EXPECT_EQ(timeline.busy_ns, 2 * 5000) << report.table();
  EXPECT_LT(timeline.window_ns, 2 * 5000 + 100);
}

// A replay that is recorded for the first time captures its graph, which is no part of a step.
TEST(DeviceTime, RecordsBeginBeforeTheWarmUp) {
  {
    const Bench b;
    EXPECT_TRUE(b.device.has_begun);
  }
  Bench waits({.schedule = {.wait = 1, .warmup = 1, .active = 1}});
  EXPECT_FALSE(waits.device.has_begun);
  waits.session.step();
  EXPECT_TRUE(waits.device.has_begun);
}

// A thread of its own launches in both turns; its buffer is read at the end, when the device has
// forgotten the first turn.
TEST(DeviceTime, ALaunchOfAnotherThreadIsTimedByItsOwnTurn) {
  Bench b({.schedule = {.wait = 0, .warmup = 1, .active = 1, .repeat = 2}});
  for (int step = 0; !b.session.done(); ++step, b.session.step()) {
    b.clock.advance(1000);
    std::thread([&] { b.device.op("op", 10, 10, step < 2 ? 5000 : 70'000); }).join();
  }
  const Report report = b.session.finish();
  EXPECT_TRUE(report.incomplete.empty()) << report.incomplete[0];
  const Row row = *find_row(report.rows(), "op");
  ASSERT_EQ(row.samples.size(), 2u);
  EXPECT_EQ(row.samples[0], 5000);
  EXPECT_EQ(row.samples[1], 70'000);
}

// Of the ops; a copy that is no op stands below them.
TEST(DeviceTime, SharesOfTheDeviceAddUpToAll) {
  Bench b;
  for (; !b.session.done(); b.session.step()) {
    {
      const Scope upload("upload", ScopeKind::op);
      b.device.launch("memcpy", 10, 3000, DeviceWork::copy);
    }
    b.device.launch("memcpy", 10, 1000, DeviceWork::copy);
    b.device.op("op", 10, 10, 4000);
  }
  Report report = b.session.finish();
  const Rows rows = report.rows();
  EXPECT_EQ(find_row(rows, "memcpy")->calls, 2) << "the one in an op is the op's";
  const std::string text = report.table({.row_limit = -1});
  double sum = 0;
  const std::vector<std::string> lines = test::lines_of(text);
  size_t i = 0;
  while (!lines.at(i).starts_with("CUDA%")) ++i;
  const size_t first = ++i;
  for (; lines.at(i).find(" - ") > 8; ++i) sum += std::stod(lines[i]);
  EXPECT_EQ(i - first, 2) << text;
  EXPECT_NEAR(sum, 100, 0.2) << text;
  test::expect_facts(lines[i], {" 1.0us", "  runtime ", "  memcpy"});
}

TEST(DeviceTime, EmulatedLaunchesAreCountedAndNotTimed) {
  FakeClock clock;
  const Options options{
      .schedule = kTwoSteps, .title = "simt eager", .device = {Device::Type::simt, 0}};
  Report report = recorded(clock, options, [&](int) {
    Scope scope("linear", ScopeKind::op);
    scope.describe([] { return OpInfo{.cost = {1000, 100, 100}}; });
    const KernelSpan none(false);
    for (int i = 0; i < 2; ++i) {
      const HookedCall hooked(DeviceWork::kernel, Device::Type::simt, "kernel");
      clock.advance(100);
    }
  });
  report.roofs = Roofs{.f32_gflops = 1, .cache_gbs = 1, .dram_gbs = 1};
  EXPECT_EQ(report.source, Source::emul);
  EXPECT_EQ(report.launches_per_step(), 2);
  EXPECT_EQ(report.table(), R"(simt eager  step#1..2 (2 active, 1 warmup)  simt  source emul
CUDA%  Self CUDA  Calls  Launch   kB  FLOP/B  Verdict   Name
    -          -      1       2  0.2    5.00  EMULATED  linear
times are the emulator's and mean nothing
launched 2   memcpy 0   allocs 0   0.001 MFLOP  0.2 kB
STEP: UNDECIDED - emulated time means nothing.
)");
}

// The launch tells its shape; registers only machine code has, so no occupancy is made up.
TEST(Footprint, OnTheEmulatorItIsTheLaunchsOwn) {
  FakeClock clock;
  const LaunchShape wide{
      .kernel = "sums<float>", .grid = {12, 8}, .block = 128, .shared_bytes = 16384};
  const LaunchShape last{.kernel = "last_sum<float>", .grid = {1}, .block = 32};
  const Options options{.schedule = kTwoSteps, .device = {Device::Type::simt, 0}};
  const Report report = recorded(clock, options, [&](int) {
    Scope scope("sum", ScopeKind::op);
    const KernelSpan none(false);
    for (const LaunchShape* shape : {&last, &wide, &wide})
      const HookedCall hooked(Device::Type::simt, *shape);
  });
  EXPECT_EQ(report.card, (Card{90, 132}));
  const std::vector<KernelSum> kernels = find_row(report.rows(), "sum")->kernels;
  ASSERT_EQ(kernels.size(), 2u);
  EXPECT_EQ(kernels[0].name, "sums<float>");
  EXPECT_EQ(kernels[0].launches, 4);
  EXPECT_EQ(kernels[0].footprint,
      (Footprint{
          .grid = {12, 8, 1}, .block = {128, 1, 1}, .static_shared = 0, .dynamic_shared = 16384}));
  EXPECT_FALSE(kernels[0].occupancy);
  test::expect_facts(report.table({.columns = "footprint"}),
      {"  Grid  Block  Regs   Shared  Occ%  Limit  Waves  Tail%  Kernel\n",
          "note: 2 of 2 kernels without occupancy: the emulator runs no machine code"});
  EXPECT_EQ(report.table().find("Occ%"), std::string::npos) << "only on request";
}

// ---- reports by hand
// -------------------------------------------------------------------------------------------------------------------

struct Kernel {
  int64_t api_t0, api_t1, dev_t0, dev_t1;
};
Report by_hand(int64_t window, std::vector<Kernel> kernels,
    std::vector<std::pair<ScopeKind, Kernel>> scopes = {}) {
  Report report;
  report.device = kCuda, report.title = "CUDA eager",
  report.schedule = {.wait = 0, .warmup = 0, .active = 1};
  report.steps = {{.number = 0, .round = 0, .t0 = 1000, .t1 = 1000 + window, .allocs = 0}};
  Trace trace{.thread = 0, .steps_here = true, .records = {}, .launches = {}, .memory = {}};
  for (const auto& [kind, k] : scopes)
    trace.records.push_back(
        {.t0 = 1000 + k.api_t0, .t1 = 1000 + k.api_t1, .name = "scope", .kind = kind});
  for (const Kernel& k : kernels) {
    trace.launches.push_back(
        timed_launch(1000 + k.api_t0, 1000 + k.api_t1, 1000 + k.dev_t0, 1000 + k.dev_t1));
  }
  report.traces = {trace};
  report.evaluate();
  return report;
}
std::array<int64_t, 5> parts(const Timeline& t) {
  return {t.busy_ns, t.host_ns, t.gap_ns, t.sync_ns, t.data_ns};
}

TEST(Timeline, EveryKindOfIdleTime) {
  using A = std::array<int64_t, 5>;
  EXPECT_EQ(parts(by_hand(100, {}).timeline()), (A{0, 100, 0, 0, 0}));
  // Before its call, inside it, and after it.
  EXPECT_EQ(parts(by_hand(100, {{20, 30, 45, 100}}).timeline()), (A{55, 30, 15, 0, 0}));
  // Started while the call still ran.
  EXPECT_EQ(parts(by_hand(100, {{20, 30, 25, 100}}).timeline()), (A{75, 25, 0, 0, 0}));
  // Asked for long before: the device had a gap.
  EXPECT_EQ(parts(by_hand(100, {{0, 2, 2, 40}, {2, 4, 50, 100}}).timeline()), (A{88, 2, 10, 0, 0}));
  // The host waited for the device, then for data.
  EXPECT_EQ(parts(by_hand(100, {{0, 2, 2, 40}, {90, 95, 95, 100}},
                {{ScopeKind::sync, {4, 45, 0, 0}}, {ScopeKind::data, {50, 80, 0, 0}}})
                      .timeline()),
      (A{43, 2 + 5 + 10 + 5, 0, 5, 30}));
  // A wait inside a data scope is data.
  EXPECT_EQ(parts(by_hand(100, {{90, 95, 95, 100}},
                {{ScopeKind::data, {10, 60, 0, 0}}, {ScopeKind::sync, {20, 40, 0, 0}}})
                      .timeline()),
      (A{5, 45, 0, 0, 50}));
  // Two streams at once are busy once; what lies outside the window does not count.
  EXPECT_EQ(
      parts(by_hand(100, {{-9, -5, -5, 10}, {-5, -4, 5, 60}, {0, 1, 30, 50}, {60, 70, 70, 120}})
                .timeline()),
      (A{90, 10, 0, 0, 0}));
}

TEST(Timeline, EachWindowHasTheDrainOfItsOwn) {
  Report report = by_hand(100, {{0, 5, 5, 200}, {300, 305, 305, 410}});
  report.steps[0].drain_ns = 100;
  report.steps.push_back(
      {.number = 1, .round = 0, .t0 = 1300, .t1 = 1400, .allocs = 0, .window = 1, .drain_ns = 10});
  const Timeline t = report.timeline();
  EXPECT_EQ(t.window_ns, 200 + 110) << "what lies between them is in neither";
  EXPECT_EQ(t.busy_ns, 195 + 105);
}

TEST(Timeline, IdlePartsAreExactlyWindowMinusBusyOnRandomTimelines) {
  std::mt19937_64 random(5);
  const auto below = [&](int64_t n) { return int64_t(random() % uint64_t(n)); };
  for (int round = 0; round < 300; ++round) {
    std::vector<Kernel> kernels;
    std::vector<std::pair<ScopeKind, Kernel>> scopes;
    for (int64_t i = below(12); i > 0; --i) {
      const int64_t api = below(900), call = api + below(50), dev = api + below(300);
      kernels.push_back({api, call, dev, dev + 1 + below(200)});
    }
    for (int64_t i = below(6); i > 0; --i) {
      const int64_t t = below(900);
      scopes.push_back({below(2) ? ScopeKind::data : ScopeKind::sync, {t, t + below(100), 0, 0}});
    }
    const Timeline t = by_hand(1000, kernels, scopes).timeline();
    ASSERT_EQ(t.idle_ns(), t.window_ns - t.busy_ns) << round;
    ASSERT_LE(t.busy_ns, t.window_ns);
    ASSERT_TRUE(t.data_ns >= 0 && t.sync_ns >= 0 && t.host_ns >= 0 && t.gap_ns >= 0) << round;
  }
}

TEST(Timeline, ZeroAndNegativeTimesAreInvalid) {
  EXPECT_EQ(by_hand(100, {{0, 1, 5, 5}}).incomplete.at(0), "1 device times are zero or negative");
  EXPECT_EQ(by_hand(100, {{0, 1, 9, 5}, {0, 1, -1000, 50}}).incomplete.at(0),
      "2 device times are zero or negative");
  const Report early = by_hand(100, {{10, 12, 5, 20}});
  EXPECT_TRUE(early.incomplete.empty());
  EXPECT_EQ(early.traces[0].launches[0].dev_t0, 1010);
  EXPECT_EQ(early.notes.at(0),
      "1 launches began on the device before the host asked for them, by the axis");
}

// The two tables of the guide: a step of the default MLP at batch 64, eager and replayed, on a
// timeline with its own times.
Roofs card() {
  return {.f32_gflops = 51'000,
      .cache_gbs = 6000,
      .dram_gbs = 3000,
      .cache_bytes = 50'000'000,
      .op_ns = 4400,
      .floor_ns = 1300,
      .node_gap_ns = 900};
}
struct Op {
  StaticName name;
  Role role;
  int calls;
  Cost cost;  // of all calls
  int64_t cpu, cuda;
};

TEST(DeviceTable, EagerGolden) {
  constexpr Op kOps[] = {{"linear", Role::fwd, 3, {30'070'000, 1'340'500, 0}, 5200, 4067},
      {"matmul", Role::wgrad, 3, {30'050'000, 1'338'900, 0}, 5100, 4200},
      {"sgd_update", Role::update, 6, {470'000, 2'821'800, 0}, 4400, 1700},
      {"relu", Role::fwd, 2, {24'576, 106'496, 0}, 4400, 1500}};
  Report report;
  report.device = kCuda, report.title = "CUDA eager",
  report.schedule = {.wait = 0, .warmup = 3, .active = 1};
  report.roofs = card();
  report.working_set = 2'500'000;
  report.mode = "eager";
  report.overheads.axis_ns = 300;
  Trace trace{.thread = 0, .steps_here = true, .records = {}, .launches = {}, .memory = {}};
  int64_t host = 1'000'000, device = 0;
  for (const Op& op : kOps) {
    for (int i = 0; i < op.calls; ++i) {
      const Cost cost{op.cost.flops / op.calls, op.cost.bytes_read / op.calls, 0};
      trace.records.push_back({.t0 = host,
          .t1 = host + op.cpu,
          .name = op.name,
          .info = {.cost = cost, .role = op.role},
          .step = 3,
          .kind = ScopeKind::op});
      const int64_t begin = std::max(device, host + op.cpu);
      device = begin + op.cuda;
      LaunchRecord launch = timed_launch(host + 2000, host + op.cpu, begin, device);
      launch.kernel = "k";
      launch.record = int32_t(trace.records.size()) - 1;
      launch.step = 3;
      trace.launches.push_back(launch);
      host += op.cpu;
    }
  }
  report.steps = {{.number = 3, .round = 0, .t0 = 1'000'000, .t1 = host + 9500, .allocs = 0}};
  report.traces = {trace};
  report.clean_us = {70, 71, 72, 73, 74, 75, 76};
  report.candidates = {{.rule = "linear_act",
                           .ops = "linear + relu",
                           .rows = {"linear", "relu"},
                           .times = 2,
                           .launches_saved = 2,
                           .bytes_saved = 196'608},
      {.rule = "multi_tensor_update",
          .ops = "sgd_update x6",
          .rows = {"sgd_update"},
          .launches_saved = 5}};
  report.evaluate();
  EXPECT_EQ(report.table({.columns = "CUDA total,p95,Self CPU,MFLOP,%roof,Pred,xpred,Flags"}),
      R"(CUDA eager  step#3..3 (1 active, 3 warmup)  cuda:0  source cupti
roofs: GEMM 51 TFLOP/s f32, copy 6.0 TB/s (2.5 MB fits L2 50 MB)
CUDA%  Self CUDA  CUDA total     p95  Self CPU  Calls  Launch  MFLOP    kB  FLOP/B  %roof   Pred  xpred  Verdict       Name           Flags
 33.2     12.6us      12.6us  12.6us    15.3us      3       3  30.05  1339   22.44    4.7  4.5us   2.8x  launch-bound  matmul(wgrad)
 32.1     12.2us      12.2us  12.2us    15.6us      3       3  30.07  1340   22.43    4.8  4.5us   2.7x  launch-bound  linear
 26.8     10.2us      10.2us  10.2us    26.4us      6       6   0.47  2822    0.17    4.6  8.3us   1.2x  launch-bound  sgd_update     MANY multi_tensor_update
  7.9      3.0us       3.0us   3.0us     8.8us      2       2   0.02   106    0.23    0.6  2.6us   1.1x  launch-bound  relu
ops 66.1 + rest of step 9.5 + drain 0.0 = profiled step 75.6us (OK)
busy 38.0us 50.3 %   idle 37.6us = host 37.6 + gap 0 + sync 0 + data 0 (OK)
clean median 73.0us [71.0,75.0], profiler 0.0us, distortion +3.6 %
launched 14 = timed 14   memcpy 0   allocs 0   axis +-0.3us
60.615 MFLOP  5607.7 kB
STEP: OVERHEAD-BOUND - host idle is 50 % of the window: the host needs 76us to
  issue 38us of work. Do: fuse, replay as a graph, or raise the batch;
  linear_act x2 (linear + relu): -2 launches, -196.6 kB.
)");
  test::expect_facts(report.table({.sort_by = "xpred"}), {"CUDA%"});
  EXPECT_EQ(report.table({.sort_by = "self_device_time_total"}),
      report.table({.sort_by = "self_cuda_time_total"}));
}

TEST(DeviceTable, ANodeThatFetchesDataIsARowBesideTheStep) {
  Report report;
  report.device = kCuda;
  Trace trace{.thread = 0, .steps_here = true, .records = {}, .launches = {}, .memory = {}};
  trace.launches.push_back({.api_t0 = 100, .api_t1 = 200, .kind = LaunchKind::graph});
  for (const uint32_t node : {1u, 2u}) {
    trace.launches.push_back(timed_launch(100, 200, 100 + 100 * node, 150 + 100 * node));
    trace.launches.back().graph_node = node;
  }
  report.steps = {{.t0 = 0, .t1 = 1000}};
  report.traces = {trace};
  report.evaluate();
  report.name_nodes(
      {{"gather_batch", "", Role::data, {0, 100, 400}}, {"linear", "", Role::fwd, {10, 20, 30}}});
  EXPECT_TRUE(report.incomplete.empty());
  EXPECT_EQ(report.steps[0].launches, 1);
  EXPECT_EQ(report.steps[0].timed, 1);
  EXPECT_EQ(report.steps[0].api_calls, 1);
  const Rows rows = report.rows();
  EXPECT_EQ(find_row(rows, "gather_batch")->kind, ScopeKind::data);
  EXPECT_EQ(find_row(rows, "linear")->kind, ScopeKind::op);
}

TEST(DeviceTable, ReplayGolden) {
  Report report;
  report.device = kCuda;
  report.title = "CUDA fused";
  report.schedule = {.wait = 0, .warmup = 3, .active = 1};
  report.roofs = card();
  report.working_set = 2'500'000;
  report.mode = "fused";
  report.rules = "all,-weight_grad_update";
  report.nodes = {{"linear_act", "linear + relu", Role::none, {29'930'000, 1'303'000, 0}},
      {"linear", "", Role::fwd, {160'000, 40'500, 0}},
      {"multi_tensor_update", "sgd_update x6", Role::none, {470'000, 2'821'800, 0}}};
  Trace trace{.thread = 0, .steps_here = true, .records = {}, .launches = {}, .memory = {}};
  const int64_t t = 1'000'000;
  trace.launches.push_back({.api_t0 = t,
      .api_t1 = t + 6900,
      .kernel = "cuda_graph",
      .step = 3,
      .kind = LaunchKind::graph});
  int64_t device = t + 6900;
  uint32_t node = 0;
  for (const int64_t ns : {13'800, 8200, 2300}) {
    trace.launches.push_back(timed_launch(t, t + 6900, device, device + ns));
    trace.launches.back().step = 3;
    trace.launches.back().graph_node = ++node;
    device += ns + 900;
  }
  report.steps = {{.number = 3, .round = 0, .t0 = t, .t1 = t + 10'400, .allocs = 0}};
  report.steps[0].drain_ns = device - (t + 10'400);
  report.traces = {trace};
  report.evaluate();
  EXPECT_EQ(report.table({.columns = "p95,MFLOP,%roof,Pred,xpred,Flags,Made of"}),
      R"(CUDA fused, replayed as a graph (no host time per row)
step#3..3 (1 active, 3 warmup)  cuda:0  source cupti
rules all,-weight_grad_update
roofs: GEMM 51 TFLOP/s f32, copy 6.0 TB/s (2.5 MB fits L2 50 MB)
CUDA%  Self CUDA     p95  Calls  Launch  MFLOP    kB  FLOP/B  %roof   Pred  xpred  Verdict        Name                 Flags          Made of
 56.8     13.8us  13.8us      1       1  29.93  1303   22.97    4.3  1.9us   7.3x  latency-bound  linear_act           HOT, SURPRISE  linear + relu
 33.7      8.2us   8.2us      1       1   0.16  40.5    3.95    0.1  1.3us   6.3x  latency-bound  linear               SURPRISE       -
  9.5      2.3us   2.3us      1       1   0.47  2822    0.17   20.4  1.8us   1.3x  latency-bound  multi_tensor_update                 sgd_update x6
host: replay 6.9 + rest of step 3.5 + drain 23.5 = profiled step 33.9us (OK)
busy 24.3us 71.7 %   idle 9.6us = host 6.9 + gap 1.8 + sync 0.9 + data 0 (OK)
API calls 1   launched 3 = timed 3   memcpy 0   allocs 0
30.560 MFLOP  4165.3 kB
STEP: LATENCY-BOUND - 100 % of self time is far below both roofs. Do: raise the
  batch.
)");
}

}  // namespace
}  // namespace sinter::profiler
