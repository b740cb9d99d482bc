// The comparison of two modes: what a user's own program gets of it.
#include "measure/comparison.h"

#include <gtest/gtest.h>
#include <sys/single_threaded.h>

#include "core/device/memory.h"
#include "core/parallel.h"
#include "measure/threads.h"
#include "measure/timer.h"
#include "tests/capture/step_util.h"
#include "tests/cuda_recorder.h"
#include "tests/test_util.h"

namespace sinter::measure {
namespace {

// The default step of a small MLP in both modes.
struct Small {
  TrainOptions options;
  Training eager, fused;
  capture::Step step;
  Tensors batch;
  explicit Small(Device device)
      : options{.sizes = {12, 8, 4}, .optimizer = "sgd", .momentum = 0, .device = device},
        eager(options),
        fused(options),
        step(fused.function(), fused.step_options("all")),
        batch(batch_of(options, 6, 1)) {}
  Comparison comparison() {
    return {.device = options.device,
        .eager = [this] { eager(batch); },
        .fused = [this] { step(batch); },
        .step = &step};
  }
};

TEST(Comparison, CapturesTheStepRunsInPairsAndReports) {
  Small small(kCpu);
  const Comparison comparison = small.comparison();
  const ComparisonOptions options{.steps = 2, .warmup = 0, .rounds = 3};
  EXPECT_EQ(options.describe(comparison), "3 pairs of rounds x 2 steps, 0 warm-up");
  const Outcome outcome = compare(comparison, options);
  EXPECT_EQ(outcome.eager_us.size(), 3u);
  EXPECT_EQ(outcome.fused_us.size(), 3u);
  EXPECT_TRUE(outcome.complete);
  EXPECT_EQ(outcome.eager.launches_per_step(), outcome.table.total.eager_launches);
  EXPECT_EQ(outcome.fused.launches_per_step(), outcome.table.total.fused_launches);
  EXPECT_FALSE(outcome.ratio.has_interval) << "three pairs give no factor";
  EXPECT_FALSE(outcome.table.rows.at(0).eager_us.empty());

  const std::string text = report(comparison, outcome, {.parity = "none"});
  test::expect_facts(text,
      {"Fused row", "TOTAL", "step ", "no factor", " launches (claimed ", "\nparity   none\n"});
  for (const char* detail : {"\ncapture ", "\nwork "}) {
    EXPECT_EQ(text.find(detail), std::string::npos) << text;
    test::expect_facts(report(comparison, outcome, {.details = true}), {detail});
  }
  test::expect_facts(report(comparison, outcome, {.explain = true}), {"group 1"});
  EXPECT_EQ(text.find("group 1"), std::string::npos) << text;
}

// On a card a calibration makes the eager steps behind it slower: Note [Records that stay].
TEST(Comparison, MeasuresWhatTheMachineCanDoBehindTheCleanRounds) {
  Small small(kCpu);
  Comparison comparison = small.comparison();
  int64_t steps = 0, steps_before = -1;
  comparison.eager = [&] {
    ++steps;
    small.eager(small.batch);
  };
  compare(comparison, {.steps = 2, .warmup = 1, .rounds = 3, .roofs = [&] {
                         steps_before = steps;
                         return std::nullopt;
                       }});
  EXPECT_GE(steps_before, 3 * (2 + 1));
  EXPECT_GT(steps, steps_before) << "the profiled rounds come last";
}

// Where blocks lie is another in each process: the interval is of several layouts.
TEST(Comparison, RunsItsRoundsInSeveralLayoutsOfMemory) {
  Small small(kCpu);
  Comparison comparison = small.comparison();
  std::vector<std::unique_ptr<Small>> made;
  std::vector<int> eager, fused;
  comparison.again = [&]() -> Twin {
    const size_t i = made.size();
    made.push_back(std::make_unique<Small>(kCpu));
    eager.push_back(0);
    fused.push_back(0);
    return {[&, i] {
              ++eager[i];
              made[i]->eager(made[i]->batch);
            },
        [&, i] {
          ++fused[i];
          made[i]->step(made[i]->batch);
        }};
  };
  const ComparisonOptions options{.steps = 2, .warmup = 1, .rounds = 8};
  EXPECT_EQ(options.describe(comparison),
      "8 pairs of rounds x 2 steps, 1 warm-up, in 3 layouts of memory");
  const Outcome outcome = compare(comparison, options);
  EXPECT_EQ(outcome.layouts, 3);
  EXPECT_EQ(outcome.eager_us.size(), 8u);
  // Three to warm up; of eight rounds the second layout has 1, 4 and 7, the third 2 and 5.
  EXPECT_EQ(eager, (std::vector<int>{3 + 3 * 3, 3 + 2 * 3}));
  EXPECT_EQ(fused, eager);
  EXPECT_EQ(time_rounds(comparison, options).layouts, 3);
  EXPECT_EQ(compare(comparison, {.steps = 1, .warmup = 0, .rounds = 5}).layouts, 1)
      << "there is no interval";
  EXPECT_EQ(made.size(), 4u);
}

TEST(Comparison, TheIntervalIsOverAllLayouts) {
  RoundTimes times{.eager_us = {}, .fused_us = std::vector<double>(60, 100)};
  for (int i = 0; i < 60; ++i) times.eager_us.push_back(i % 3 == 2 ? 160 : 150);
  EXPECT_EQ(times.factor_text(), "1.50x [1.50,1.50]");
  times.layouts = 3;
  EXPECT_EQ(times.factor_text(), "1.50x [1.50,1.60]");
  EXPECT_EQ(times.saving().high, 60);
}

// What glibc and libstdc++ go by. Alone in its process this fails without be_multithreaded().
TEST(Comparison, IsTimedAsInAProcessOfSeveralThreads) {
  Small small(kCpu);
  time_rounds(small.comparison(), {.steps = 1, .warmup = 0, .rounds = 1});
  EXPECT_FALSE(__libc_single_threaded);
}

// Whatever ran beside the test: it is not in the outcome.
void forget_others(Outcome& o) {
  o.distrusted.clear();
  for (profiler::Report* report : {&o.eager, &o.fused}) {
    report->disturbed.clear();
    report->clean_us.clear();
    report->steps.resize(1);
  }
}

// So few rounds give no interval that other programs could make wide: the profile says it.
TEST(Comparison, AProfileOfABusyMachineNamesNoLimit) {
  Small small(kCpu);
  const Comparison comparison = small.comparison();
  Outcome o = compare(comparison, {.steps = 1, .warmup = 0, .rounds = 1});
  forget_others(o);
  test::expect_facts(summary(comparison, o), {"limit    "});
  o.fused.disturbed = "one thread takes 5 us";
  EXPECT_EQ(summary(comparison, o).find("limit "), std::string::npos);
}

// A row that loses is said, with the rules that leave it out; one that may not lose is not.
TEST(Comparison, NamesTheRowsThatFusingMakesSlower) {
  Small small(kCpu);
  Comparison comparison = small.comparison();
  Outcome outcome = compare(comparison, {.steps = 1, .warmup = 0, .rounds = 1});
  const std::vector<double> slow{20, 21, 20, 20, 21, 20}, fast{10, 10.5, 10, 10, 10.5, 10};
  outcome.ratio = {.value = 1, .low = 1, .high = 1, .has_interval = true};
  forget_others(outcome);
  for (ComparedRow& row : outcome.table.rows) {
    if (row.verdict == "machine busy") row.verdict.clear();
    row.eager_us = row.fused_us = slow;
  }
  EXPECT_EQ(summary(comparison, outcome).find("note "), std::string::npos);
  ComparedRow& row = outcome.table.rows.at(0);
  row.eager_us = fast;
  test::expect_facts(summary(comparison, outcome),
      {"note     linear_act is slower fused, 0.50x [0.50,0.50]; without it: "
       "RuleSet(\"all,-linear_act\")\n"});
  comparison.rules_option = "--rules ";
  test::expect_facts(summary(comparison, outcome), {"without it: --rules all,-linear_act\n"});
  row.eager_us = {10, 30, 10, 30, 10, 30};
  EXPECT_EQ(summary(comparison, outcome).find("note "), std::string::npos) << "too unsteady";
}

// How long a step takes at least; what is beyond is other programs'.
void spin_us(double us) {
  for (const Timer timer; timer.us() < us;) {}
}

// No number that could be read as a factor: headline, rows, gain, JSON.
void expect_no_factor(const Comparison& comparison, const Outcome& o) {
  EXPECT_FALSE(o.ratio.has_interval);
  test::expect_facts(o.headline, {"s, machine busy: no factor, "});
  for (const ComparedRow& row : o.table.rows) {
    EXPECT_FALSE(row.ratio().has_interval);
    EXPECT_EQ(row.ratio_text(), row.verdict);
  }
  const std::string text = report(comparison, o, {.details = true});
  for (const char* word : {"x [", "\ngain ", "\nlimit ", "\nrows ", "pays back"})
    EXPECT_EQ(text.find(word), std::string::npos) << text;
}

// The clean rounds agree, and one profile has no verdict: nothing stands beside "machine busy".
TEST(Comparison, NoFactorStandsBesideAProfileWithoutAVerdict) {
  for (const bool eager_is_busy : {true, false}) {
    Small small(kCpu);
    Comparison comparison = small.comparison();
    const ComparisonOptions options{.steps = 4, .warmup = 0, .rounds = 6};
    int64_t calls[2] = {0, 0};
    const auto step = [&](bool is_eager, auto&& run) {
      const int64_t call = calls[size_t(is_eager)]++, clean = options.steps * options.rounds;
      // Beyond the clean rounds, and the looks that follow them.
      const bool unsteady = is_eager == eager_is_busy && call > clean + 10;
      spin_us(unsteady && call % 2 == 0 ? 30'000 : 3'000);
      run();
    };
    comparison.eager = [&] { step(true, [&] { small.eager(small.batch); }); };
    comparison.fused = [&] { step(false, [&] { small.step(small.batch); }); };
    const Outcome o = compare(comparison, options);
    EXPECT_FALSE((eager_is_busy ? o.eager : o.fused).busy().empty());
    expect_no_factor(comparison, o);
  }
}

TEST(Comparison, CleanStepsThatAreUnsteadyHaveNoFactor) {
  Small small(kCpu);
  Comparison comparison = small.comparison();
  int64_t calls = 0;
  comparison.eager = [&] {
    spin_us(++calls % 2 == 0 ? 3'000 : 1'000);
    small.eager(small.batch);
  };
  const ComparisonOptions options{.steps = 4, .warmup = 0, .rounds = 6};
  const RoundTimes times = time_rounds(comparison, options);
  EXPECT_FALSE(times.factor().is_shown());
  test::expect_facts(times.factor_text(), {"machine busy: no factor, "});
  expect_no_factor(comparison, compare(comparison, options));
}

// A profile that was made up: one row, and roofs of 100 GFLOP/s and 100 GB/s.
std::string limit_line(const Comparison& comparison, Outcome outcome, int64_t flops, int64_t bytes,
    bool roofs = true) {
  outcome.ratio = {.value = 2, .low = 1.9, .high = 2.1, .has_interval = true};
  forget_others(outcome);
  outcome.fused.traces.clear();  // so that the figures are those of the table's row
  outcome.fused.roofs.reset();   // this machine's
  if (roofs)
    outcome.fused.roofs =
        profiler::Roofs{.f32_gflops = 100, .cache_gbs = 100, .dram_gbs = 100, .op_ns = 500};
  ComparisonTable table;
  table.add({.fused = "some_op",
      .verdict = "same op",
      .eager_launches = 1,
      .fused_launches = 1,
      .fused_bytes = bytes,
      .fused_flops = flops,
      .eager_us = {20},
      .fused_us = {10}});
  outcome.table = table;
  const std::string text = summary(comparison, outcome);
  const size_t at = text.find("limit ");
  return text.substr(at, text.find('\n', at) - at);
}

TEST(Comparison, LimitSpeaksOfTheRoofThatLimitsTheRow) {
  Small small(kCpu);
  const Comparison comparison = small.comparison();
  const Outcome o = compare(comparison, {.steps = 1, .warmup = 0, .rounds = 1});
  const std::string begin = "limit    some_op: 100 % of the fused rows, ";
  // In 10 us 100 GB/s move 1 MB, and 100 GFLOP/s compute 1 MFLOP.
  EXPECT_EQ(limit_line(comparison, o, 620'000, 850'000), begin + "85 % of the copy roof");
  EXPECT_EQ(limit_line(comparison, o, 900'000, 850'000), begin + "90 % of the GEMM roof");
  EXPECT_EQ(limit_line(comparison, o, 100'000, 300'000), begin + "30 % of the copy roof");
  EXPECT_EQ(limit_line(comparison, o, 620'000, 850'000, false), begin + "85 GB/s");
  EXPECT_EQ(limit_line(comparison, o, 620'000, 10'000, false), begin + "62 GFLOP/s");
}

// TOTAL is what a reader finds who adds up the rows.
TEST(Comparison, TheTotalIsTheSumOfTheRows) {
  Small small(kCpu);
  const Outcome outcome = compare(small.comparison(), {.steps = 3, .warmup = 0, .rounds = 3});
  double eager = 0, fused = 0;
  for (const ComparedRow& row : outcome.table.rows) {
    eager += row.eager_time();
    fused += row.fused_time();
  }
  EXPECT_EQ(outcome.table.total.eager_time(), profiler::as_told(eager));
  EXPECT_EQ(outcome.table.total.fused_time(), profiler::as_told(fused));
}

// An outcome of 100 -> 50 us, whose rows add up to as much as said.
Outcome outcome_of(double eager_rows_us, double fused_rows_us) {
  Outcome o;
  o.ratio = {.value = 2, .low = 1.95, .high = 2.05, .has_interval = true};
  o.table.total.eager_us = {eager_rows_us};
  o.table.total.fused_us = {fused_rows_us};
  return o;
}

TEST(Comparison, RowsThatAgreeWithTheHeadlineSaySo) {
  EXPECT_EQ(rows_and_headline(outcome_of(98, 49)),
      "add up to 98.00 -> 49.00 us = 2.00x, within the headline's interval");
}

TEST(Comparison, RowsThatDoNotSaySoToo) {
  Outcome o = outcome_of(98, 40);
  EXPECT_EQ(rows_and_headline(o),
      "add up to 98.00 -> 40.00 us = 2.45x, not within the headline's interval: they are ops "
      "alone, in profiled rounds");
  o.ratio.has_interval = false;
  EXPECT_EQ(rows_and_headline(o), "") << "there is no headline to agree with";
}

// A step that takes long with several threads and no time with one, as beside a busy core.
TEST(Threads, ThatAreSlowerThanOneAreDistrusted) {
  const test::Scoped before(num_threads, set_num_threads, num_threads());
  const auto step = [] {
    for (const Timer timer; num_threads() > 1 && timer.us() < 300;) {}
  };
  set_num_threads(2);
  EXPECT_TRUE(why_distrusted(step, 300).starts_with("one thread takes "));
  EXPECT_EQ(num_threads(), 2);
  EXPECT_EQ(why_distrusted(step, 0), "");
  EXPECT_EQ(why_distrusted([] {}, 1e-6), "");
  set_num_threads(1);
  EXPECT_EQ(why_distrusted(step, 300), "") << "fewer than one there are not";
}

TEST(Comparison, WhatOneThreadDoesTwiceAsFastHasNoFactor) {
  const RoundTimes times{
      .eager_us = std::vector<double>(9, 20), .fused_us = std::vector<double>(9, 10)};
  EXPECT_EQ(times.factor_text(), "2.00x [2.00,2.00]");
  RoundTimes distrusted = times;
  distrusted.distrusted = "one thread takes 5.000 us";
  EXPECT_EQ(distrusted.factor_text(), "machine busy: no factor, one thread takes 5.000 us");
  EXPECT_FALSE(distrusted.factor().is_shown());
}

TEST(Comparison, StopsBetweenPairsOrSaysThatThereIsNone) {
  Small small(kCpu);
  int asked = 0;
  const Outcome two = compare(small.comparison(),
      {.steps = 1, .warmup = 0, .rounds = 9, .stopped = [&] { return ++asked > 2; }});
  EXPECT_EQ(two.eager_us.size(), 2u);
  EXPECT_EQ(two.fused_us.size(), 2u);
  EXPECT_THROW(
      compare(small.comparison(), {.steps = 1, .warmup = 0, .stopped = [] { return true; }}),
      Error);
}

TEST(ComparisonSimt, OneStepOfEachIsCountedAndNothingIsTimed) {
  Small small(kSimt);
  const Comparison comparison = small.comparison();
  EXPECT_EQ(ComparisonOptions().describe(comparison), "one step of each");
  const Outcome outcome = compare(comparison);
  EXPECT_TRUE(outcome.complete);
  EXPECT_TRUE(outcome.eager_us.empty());
  EXPECT_EQ(outcome.headline, "not timed on simt");
  EXPECT_EQ(outcome.fused.launches_per_step(), outcome.table.total.fused_launches);
}

TEST(StepTimes, AreOnePerStepOnTheCpuAndOnePerRoundElsewhere) {
  int steps = 0;
  EXPECT_EQ(step_times_us([&] { ++steps; }, kCpu, 5).size(), 5u);
  EXPECT_EQ(step_times_us([&] { ++steps; }, kSimt, 5).size(), 1u);
  EXPECT_EQ(steps, 10);
}

#if SINTER_HAS_CUDA
TEST(StepTimes, OfACardWaitForItAtTheEndsOfTheRoundOnly) {
  using Calls = std::vector<std::string>;
  cuda::FakeToolkit card;
  const Device device{Device::Type::cuda, 0};
  synchronize(device);  // opens it
  card.clear_log();
  const double us = round_us([&] { cuda::api().cudaGetLastError(); }, device, 1, 3);
  EXPECT_GT(us, 0);
  EXPECT_EQ(card.calls(),
      (Calls{"cudaGetLastError", "cudaStreamSynchronize", "cudaProfilerStart", "cudaGetLastError",
          "cudaGetLastError", "cudaGetLastError", "cudaStreamSynchronize", "cudaProfilerStop"}));
}
#endif

}  // namespace
}  // namespace sinter::measure
