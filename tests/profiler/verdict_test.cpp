#include "profiler/verdict.h"

#include <gtest/gtest.h>

#include <array>

#include "profiler/report.h"
#include "profiler/thresholds.h"

namespace sinter::profiler {
namespace {

constexpr double kLess = 1 - 1e-9, kMore = 1 + 1e-9;

// A row of a card that is 10 us at work and 1 us on the host, at some shares of the roofs.
constexpr Ceiling kRoofs{.flops_per_ns = 1, .bytes_per_ns = 1};
Row row(double compute, double memory) {
  return {.launches = 1,
      .cost = {int64_t(1e12 * compute), int64_t(1e12 * memory), 0},
      .self_ns = 1000,
      .typical_ns = 10e3,
      .roof = std::max(compute, memory)};
}
Measurement card() {
  Measurement run;
  run.device = {Device::Type::cuda, 0};
  return run;
}
RowCode code(const Row& row, const Measurement& run = card(), const Ceiling& roofs = kRoofs,
    bool busy = false) {
  return row_verdict(row, run, roofs, busy).code;
}

TEST(Verdict, RowsAtBothSidesOfEveryThreshold) {
  for (const double roof : {kAboveRoof * kMore, kAboveRoof * kLess}) {
    const RowVerdict found = row_verdict(row(roof, 0), card(), kRoofs, false);
    EXPECT_EQ(found.code, RowCode::compute_bound) << "what is faster than its roof is bound by it";
    EXPECT_EQ(found.evidence.find("too low") != std::string::npos, roof > kAboveRoof);
    EXPECT_EQ(code(row(0, roof)), RowCode::memory_bound);
  }
  EXPECT_EQ(code(row(kNearRoof, 0)), RowCode::compute_bound);
  EXPECT_EQ(code(row(kNearRoof * kLess, 0)), RowCode::mixed);
  EXPECT_EQ(code(row(0, kNearRoof)), RowCode::memory_bound);
  EXPECT_EQ(code(row(0, kNearRoof * kLess)), RowCode::mixed);
  EXPECT_EQ(code(row(kFarFromRoof, 0.1)), RowCode::mixed);
  EXPECT_EQ(code(row(kFarFromRoof * kLess, 0.1)), RowCode::latency_bound);

  Row launch = row(0.7, 0);
  launch.self_ns = 10'000;
  EXPECT_EQ(code(launch), RowCode::compute_bound);
  launch.self_ns = 10'001;
  EXPECT_EQ(code(launch), RowCode::launch_bound);
  Measurement replayed = card();
  replayed.replayed = true;  // no host time per row
  EXPECT_EQ(code(launch, replayed), RowCode::compute_bound);
  // On the CPU: what is in kernels against what is outside of them.
  launch.typical_kernel_ns = 5000;
  EXPECT_EQ(code(launch, {}), RowCode::compute_bound);
  launch.typical_kernel_ns = 4999;
  EXPECT_EQ(code(launch, {}), RowCode::launch_bound);
  Row sum = row(0.7, 0);
  sum.role = Role::comm;  // what ranks send each other has no roof
  EXPECT_EQ(code(sum), RowCode::unknown);
}

TEST(Verdict, RowsInTheOrderOfTheirReasons) {
  Row r = row(2, 2);
  Measurement run = card();
  EXPECT_EQ(code(r), RowCode::compute_bound);
  EXPECT_EQ(code(r, run, kRoofs, true), RowCode::unknown);
  EXPECT_EQ(code(r, run, {}), RowCode::unknown);
  r.typical_ns = 0;
  EXPECT_EQ(code(r), RowCode::unknown);
  r.launches = 0;
  EXPECT_EQ(code(r), RowCode::meta);
  run.device = {Device::Type::simt, 0};
  EXPECT_EQ(code(r, run), RowCode::emulated);
  r.untimed = 1;
  EXPECT_EQ(code(r, run), RowCode::invalid);
  EXPECT_EQ(
      row_verdict(row(0.69, 0.1), card(), kRoofs, false).evidence, "69 % of the compute roof");
}

// A step of a card: 100 us of window, 80 of self time, in which `part` is in rows of that class.
Profile step(RowCode of, double part) {
  Profile p;
  p.device = {Device::Type::cuda, 0};
  p.roofline = kRoofs;
  p.idle = Timeline{.window_ns = 100'000};
  p.rows = {{.typical_ns = part, .verdict = {of}}, {.typical_ns = 80e3 - part}};
  return p;
}
StepCode code(const Profile& profile) { return step_verdict(profile).code; }

TEST(Verdict, StepsAtBothSidesOfEveryThreshold) {
  EXPECT_EQ(code(step(RowCode::mixed, 0)), StepCode::mixed);
  for (const auto& [of, wanted] : {std::pair{RowCode::compute_bound, StepCode::compute_bound},
           {RowCode::memory_bound, StepCode::memory_bound},
           {RowCode::latency_bound, StepCode::latency_bound}}) {
    EXPECT_EQ(code(step(of, kClassShare * 80e3)), wanted);
    EXPECT_EQ(code(step(of, kClassShare * 80e3 * kLess)), StepCode::mixed);
  }
  Profile p = step(RowCode::compute_bound, 80e3);
  p.idle->host_ns = int64_t(kHostShare * 100e3) - 1;
  EXPECT_EQ(code(p), StepCode::compute_bound);
  ++p.idle->host_ns;
  EXPECT_EQ(code(p), StepCode::overhead_bound);
  p.idle->data_ns = int64_t(kInputShare * 100e3) - 1;
  EXPECT_EQ(code(p), StepCode::overhead_bound);
  ++p.idle->data_ns;
  EXPECT_EQ(code(p), StepCode::input_bound);
  for (const auto& spoil : {+[](Profile& p) {
                              p.device = {Device::Type::simt, 0};
                            },
           +[](Profile& p) { p.incomplete = {"lost"}; }, +[](Profile& p) { p.idle.reset(); }}) {
    Profile undecided = p;
    spoil(undecided);
    EXPECT_EQ(code(undecided), StepCode::undecided);
  }
  p.disturbed = "one thread takes less";
  EXPECT_EQ(step_verdict(p).evidence, p.busy());
  EXPECT_EQ(step_verdict(p).advice, "");
  p = step(RowCode::mixed, 0);
  p.roofline.reset();
  EXPECT_EQ(code(p), StepCode::undecided);
  p.idle->host_ns = 100'000;  // which needs no roofs
  p.idle->busy_ns = 64'000;
  EXPECT_EQ(step_verdict(p).evidence,
      "host idle is 100 % of the window: the host needs 164us to issue 64us of work.");
}

// Most of a CPU's step is at a roof, and more than a quarter of it is dispatch: the roof bounds it,
// as the table shows it.
TEST(Verdict, DispatchDoesNotBoundAStepThatIsAtARoof) {
  Profile p;
  p.roofline = kRoofs;
  p.steps = {{.t1 = 100'000}};
  p.rows = {{.launches = 1,
                .typical_ns = 71e3,
                .typical_kernel_ns = 55e3,
                .verdict = {RowCode::memory_bound}},
      {.launches = 1, .typical_ns = 20e3, .typical_kernel_ns = 11e3}};
  EXPECT_EQ(code(p), StepCode::memory_bound);
  p.rows[0].verdict.code = RowCode::compute_bound;
  EXPECT_EQ(code(p), StepCode::compute_bound);
  p.rows[0].verdict.code = RowCode::latency_bound;
  EXPECT_EQ(code(p), StepCode::overhead_bound);
  EXPECT_EQ(step_verdict(p).evidence, "25 % of the step is dispatch.");
}

// Each verdict that says "fuse" says it where there is something to fuse.
TEST(Verdict, AFusedStepIsNotToldToFuse) {
  Profile overhead = step(RowCode::mixed, 0);
  overhead.idle->host_ns = 100'000;
  Profile on_cpu;
  on_cpu.roofline = kRoofs;
  on_cpu.steps = {{.t1 = 100'000}};
  on_cpu.rows = {{.launches = 1, .typical_ns = 90e3, .typical_kernel_ns = 10e3}};
  const std::pair<Profile, std::array<std::string, 2>> cases[] = {
      {step(RowCode::memory_bound, 80e3), {"fuse", ""}},
      {step(RowCode::latency_bound, 80e3),
          {"raise the batch, or fuse across layers", "raise the batch"}},
      {overhead,
          {"fuse, replay as a graph, or raise the batch", "replay as a graph, or raise the batch"}},
      {on_cpu, {"fuse, or raise the batch", "raise the batch"}}};
  for (const auto& [eager, advice] : cases) {
    EXPECT_EQ(step_verdict(eager).advice, advice[0]);
    Profile fused = eager, nothing_left = eager;
    fused.mode = "fused";
    EXPECT_EQ(step_verdict(fused).advice, advice[1]);
    nothing_left.candidates.emplace();
    EXPECT_EQ(step_verdict(nothing_left).advice, advice[1]);
  }
  overhead.mode = "fused";
  overhead.replayed = true;
  EXPECT_EQ(step_verdict(overhead).advice, "raise the batch");
}

TEST(Roofs, PredictTheLongerOfComputingAndMoving) {
  const Ceiling c{.flops_per_ns = 95, .bytes_per_ns = 21, .floor_ns = 650};
  // The rows of PROFILER's CPU table: 3 linears and 6 updates of the default MLP at batch 64.
  EXPECT_NEAR(c.predicted_ns(3, {30'070'000, 1'340'500, 0}), 318.4e3, 100);
  EXPECT_NEAR(c.predicted_ns(6, {470'000, 2'821'800, 0}), 138.3e3, 100);
  EXPECT_NEAR(c.share({30'050'000, 0, 0}, 461.5e3), 0.685, 1e-3);
  EXPECT_NEAR(c.share({0, 2'821'800, 0}, 158.7e3), 0.847, 1e-3);
  EXPECT_TRUE(c.compute_is_nearer({30'070'000, 1'340'500, 0}));
  EXPECT_FALSE(c.compute_is_nearer({470'000, 2'821'800, 0}));
  EXPECT_EQ(Ceiling{}.predicted_ns(3, {1, 1, 1}), 0);
  EXPECT_EQ(c.share({1, 1, 1}, 0), 0);
}

TEST(Roofs, TheWorkingSetChoosesTheCopyRateAndTheTypeTheProducts) {
  Report r;
  r.roofs = Roofs{.f32_gflops = 95,
      .bf16_gflops = 200,
      .cache_gbs = 40,
      .dram_gbs = 12,
      .cache_bytes = 16'000'000,
      .op_ns = 650,
      .floor_ns = 7};
  EXPECT_EQ(r.ceiling().bytes_per_ns, 12);  // unknown
  r.working_set = 16'000'000;
  EXPECT_EQ(r.ceiling().bytes_per_ns, 40);
  r.working_set = 16'000'001;
  EXPECT_EQ(r.ceiling().bytes_per_ns, 12);
  EXPECT_EQ(r.ceiling().flops_per_ns, 95);
  EXPECT_EQ(r.ceiling().floor_ns, 650);
  r.dtype = "bf16";
  EXPECT_EQ(r.ceiling().flops_per_ns, 200);
  r.device = {Device::Type::cuda, 0};
  EXPECT_EQ(r.ceiling().floor_ns, 7);
  r.device = {Device::Type::simt, 0};
  EXPECT_FALSE(r.ceiling().known());
}

}  // namespace
}  // namespace sinter::profiler
