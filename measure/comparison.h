// A comparison: one step, eager and fused, against each other, and a table of what changed.
//
//   measure::Comparison comparison{.eager = [&] { train_step(batch); }, .fused = [&] { step(batch);
//   },
//       .step = &step};
//   std::cout << measure::report(comparison, {}, measure::compare(comparison, {}));
//
// Clean rounds in pairs (A B B A), so that a slow moment of the machine hits both alike, give the
// factor; as many profiled rounds only apportion the time to the rows of the table. On the
// emulator one step of each is counted, and nothing is timed. Used by the programs `mnist compare`,
// `mnist bench` and `geglu`, and by a user's own. One thread; the caller checks parity itself
// (measure/parity.h).
#pragma once

#include <functional>
#include <optional>

#include "capture/step.h"
#include "measure/comparison_table.h"
#include "profiler/report.h"
#include "profiler/stats.h"

namespace sinter::measure {

// Both steps, one each, of models of their own.
struct Twin {
  std::function<void()> eager, fused;
};

struct Comparison {
  Device device = kCpu;
  std::string title = "step";
  std::function<void()> eager, fused;   // one step each
  const capture::Step* step = nullptr;  // what `fused` calls
  std::string rules = "all", dtype = "f32";
  // What stands before other rules where a user gives them to the program; "": they are a
  // capture::RuleSet.
  std::string rules_option{};
  // Where wanted: makes both steps anew while the others live, see Note [Layouts of memory].
  std::function<Twin()> again{};

  // REQUIRES: the fused step has run twice, as it has after compare().
  const capture::Captured& captured() const { return *step->captured(); }
  bool timed() const { return device.type != Device::Type::simt; }
};

struct ComparisonOptions {
  int64_t steps = 20, warmup = 3;  // of a round; those that warm up are not measured
  int64_t rounds = 9;              // pairs; fewer than 6 give no factor
  // What the machine can do, see measure::calibrated(); without it no share of a roof is told.
  // Asked behind the clean rounds, see Note [Records that stay].
  std::function<std::optional<profiler::Roofs>()> roofs{};
  // Asked before each pair of rounds: true ends the comparison with the pairs that are there.
  std::function<bool()> stopped{};

  // 1, or kLayouts on the CPU, where the comparison can make its steps again and there will be an
  // interval.
  int64_t layouts(const Comparison& comparison) const;
  // "9 pairs of rounds x 20 steps, 3 warm-up, in 3 layouts of memory"
  std::string describe(const Comparison& comparison) const;
};

// Note [Layouts of memory]
//   Where the weights lie decides which of them share a set of a cache. It moves the time of a
//   small step by about 1 %, and is another in each process. Rounds of one layout agree with each
//   other to less than that, so an interval of them alone does not hold what the next run finds. A
//   comparison that can make its steps again runs its rounds in three layouts, in turn; the
//   interval draws layouts anew, and then rounds of each.
//
//   A process of one thread is another case: until the first second one begins, glibc and libstdc++
//   count references and lock without atomic instructions, which makes the eager step 6 % shorter
//   (1.53x where it is 1.62x with threads). The trial of threads ends that for good, --threads 1
//   does not. So that all processes measure the same, and as a training with threads runs, every
//   comparison first starts a thread.
//
// Note [Records that stay]
//   Once CUPTI has recorded, it goes on looking at every call that the process makes of the card:
//   an eager step, which is many, takes longer from then on, and a replay, which is one, does not.
//   So nothing that records, a profile or a calibration, comes before the clean rounds. `mnist
//   compare` and bench/step time by one loop, step_times_us(), and about as many steps to a wait.
//   That compare said 294.5 us of an eager step on an H100, and bench/step 151.9, fits this: the
//   former had calibrated first. A card has not yet shown that they agree now.
inline constexpr int64_t kLayouts = 3;

// The median step of each round.
struct RoundTimes {
  std::vector<double> eager_us, fused_us;
  int64_t layouts = 1;  // round i ran in layout i % layouts
  // Why there is no factor although the rounds may agree, or "": "one thread takes 51.8 us", "the
  // middle half of the eager steps spans 46 % of the median, 25 % allowed".
  std::string distrusted{};

  // Of eager against fused. Error (usage): one of them is none.
  profiler::Estimate factor() const;  // without an interval where it is distrusted
  profiler::Estimate saving() const;
  std::string factor_text() const;  // "1.21x [1.19,1.23]", or why there is none
};
// The clean rounds by themselves; of one step alone where the other is none.
RoundTimes time_rounds(const Comparison& comparison, const ComparisonOptions& options);

// Where one of the profiles has no verdict as the machine was busy, it is distrusted as well, and
// no row has a factor.
struct Outcome : RoundTimes {     // of the clean rounds
  profiler::Report eager, fused;  // profiled rounds, one after the other
  bool complete = true;           // every step had the launches of its graph
  ComparisonTable table;
  profiler::Estimate ratio{};  // of the clean rounds
  std::string headline;        // "1402 -> 1157 us = 1.21x [1.19,1.23]"
};

// Throws interrupted if it was stopped before the first pair of rounds was over.
Outcome compare(const Comparison& comparison, const ComparisonOptions& options = {});

struct ReportText {
  std::string parity;          // a line of its own: "to the bit"
  bool details = false;        // with those of details()
  bool explain = false;        // with the explanation of each group and near miss
  std::string how_to_explain;  // where it is left out: how a user of the program gets it
  std::string next;            // what to try, as the program says it
  size_t width = 80;           // columns; 0: as wide as it is
};
// Groups that measuring has shown to be no faster.
int64_t kept_unfused(const capture::Rewriter& fused);
// "add up to 1390 -> 951.0 us = 1.46x, within the headline's interval" of the rows, or not within
// it; "" where there is no factor.
std::string rows_and_headline(const Outcome& outcome);
// Lines below the headline: what is left, what was counted, and a note of each row that fusing
// makes slower.
std::string summary(const Comparison& comparison, const Outcome& outcome);
// Lines for who asks: what made it faster, what the rows add up to, what capturing took, and the
// arithmetic.
std::string details(const Comparison& comparison, const Outcome& outcome);
// The headline, the summary, parity, what to try next, the table, what disturbed it, and what was
// not fused.
std::string report(
    const Comparison& comparison, const Outcome& outcome, const ReportText& text = {});

// How long steps take, in us: each by itself on the CPU. Elsewhere their mean, by the time from one
// wait for the device to the next: a wait behind every step would cost more than a short step does.
// A profiler that watches from outside (ncu, nsys) looks at nothing else, cuda::watch().
std::vector<double> step_times_us(const std::function<void()>& step, Device device, int64_t steps);
// Their median, after steps that warm up; `all` gets each of them.
double round_us(const std::function<void()>& step, Device device, int64_t warmup, int64_t steps,
    std::vector<double>* all = nullptr);

}  // namespace sinter::measure
