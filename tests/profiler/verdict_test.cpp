#include "profiler/verdict.h"

#include <gtest/gtest.h>

#include "profiler/report.h"
#include "profiler/thresholds.h"

namespace sinter::profiler {
namespace {

constexpr double kLess = 1 - 1e-9, kMore = 1 + 1e-9;

// A row that is 10 us at work and 1 us in dispatch, at some shares of the roofs.
RowFacts row(double compute, double memory) {
  return {.launches = 1,
      .busy_ns = 10e3,
      .host_ns = 1e3,
      .has_roofs = true,
      .roof = std::max(compute, memory),
      .compute_is_nearer = compute >= memory};
}
RowCode code(const RowFacts& facts) { return row_verdict(facts).code; }

TEST(Verdict, RowsAtBothSidesOfEveryThreshold) {
  EXPECT_EQ(code(row(kAboveRoof * kMore, 0)), RowCode::above_roof);
  EXPECT_EQ(code(row(kAboveRoof * kLess, 0)), RowCode::compute_bound);
  EXPECT_EQ(code(row(0, kAboveRoof * kMore)), RowCode::above_roof);
  EXPECT_EQ(code(row(kNearRoof, 0)), RowCode::compute_bound);
  EXPECT_EQ(code(row(kNearRoof * kLess, 0)), RowCode::mixed);
  EXPECT_EQ(code(row(0, kNearRoof)), RowCode::memory_bound);
  EXPECT_EQ(code(row(0, kNearRoof * kLess)), RowCode::mixed);
  EXPECT_EQ(code(row(kFarFromRoof, 0.1)), RowCode::mixed);
  EXPECT_EQ(code(row(kFarFromRoof * kLess, 0.1)), RowCode::latency_bound);

  RowFacts launch = row(0.7, 0);
  launch.host_ns = launch.busy_ns;
  EXPECT_EQ(code(launch), RowCode::compute_bound);
  launch.host_ns *= kMore;
  EXPECT_EQ(code(launch), RowCode::launch_bound);
  launch.replayed = true;  // no host time per row
  EXPECT_EQ(code(launch), RowCode::compute_bound);
}

TEST(Verdict, RowsInTheOrderOfTheirReasons) {
  RowFacts f = row(2, 2);
  EXPECT_EQ(code(f), RowCode::above_roof);
  f.busy = true;
  EXPECT_EQ(code(f), RowCode::unknown);
  f.has_roofs = false;
  EXPECT_EQ(code(f), RowCode::unknown);
  f.busy_ns = 0;
  EXPECT_EQ(code(f), RowCode::unknown);
  f.launches = 0;
  EXPECT_EQ(code(f), RowCode::meta);
  f.emulated = true;
  EXPECT_EQ(code(f), RowCode::emulated);
  f.invalid = true;
  EXPECT_EQ(code(f), RowCode::invalid);
  EXPECT_EQ(row_verdict(row(0.69, 0.1)).evidence, "69 % of the compute roof");
}

StepFacts step() { return {.has_roofs = true, .window_ns = 100e3, .self_ns = 80e3}; }
StepCode code(const StepFacts& facts) { return step_verdict(facts).code; }

TEST(Verdict, StepsAtBothSidesOfEveryThreshold) {
  StepFacts f = step();
  EXPECT_EQ(code(f), StepCode::mixed);
  for (const auto& [part, wanted] : {std::pair{&StepFacts::compute_ns, StepCode::compute_bound},
           {&StepFacts::memory_ns, StepCode::memory_bound},
           {&StepFacts::latency_ns, StepCode::latency_bound}}) {
    f = step();
    f.*part = kClassShare * f.self_ns;
    EXPECT_EQ(code(f), wanted);
    f.*part *= kLess;
    EXPECT_EQ(code(f), StepCode::mixed);
  }
  f = step();
  f.compute_ns = f.self_ns;
  f.host_ns = kHostShare * f.window_ns * kLess;
  EXPECT_EQ(code(f), StepCode::compute_bound);
  f.host_ns = kHostShare * f.window_ns;
  EXPECT_EQ(code(f), StepCode::overhead_bound);
  f.data_ns = kInputShare * f.window_ns * kLess;
  EXPECT_EQ(code(f), StepCode::overhead_bound);
  f.data_ns = kInputShare * f.window_ns;
  EXPECT_EQ(code(f), StepCode::input_bound);
  for (bool StepFacts::*why : {&StepFacts::emulated, &StepFacts::incomplete}) {
    StepFacts undecided = f;
    undecided.*why = true;
    EXPECT_EQ(code(undecided), StepCode::undecided);
  }
  f.busy = "machine busy: no verdict";
  EXPECT_EQ(step_verdict(f).evidence, f.busy);
  EXPECT_EQ(step_verdict(f).advice, "");
  f = step();
  f.has_roofs = false;
  EXPECT_EQ(code(f), StepCode::undecided);
  f.host_ns = f.window_ns;  // which needs no roofs
  f.on_cpu = false;
  f.busy_ns = 64e3;
  EXPECT_EQ(step_verdict(f).evidence,
      "host idle is 100 % of the window: the host needs 164us to issue 64us of work.");
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
