#include "measure/comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "capture/explain.h"
#include "capture/measure.h"
#include "core/device/launch_log.h"
#include "core/device/memory.h"
#include "core/device/timing.h"
#include "core/numbers.h"
#include "core/parallel.h"
#include "core/text_grid.h"
#include "measure/threads.h"
#include "measure/timer.h"
#include "profiler/session.h"
#include "profiler/thresholds.h"

namespace sinter::measure {
namespace {

const char* shown_device(Device device) {
  if (device.type == Device::Type::cuda) return "CUDA";
  return device == kCpu ? "CPU" : "simt";
}

// Distinct bytes that a step touches: external buffers and inputs, and the arena of a replay.
int64_t touched_bytes(const capture::Graph& graph, const capture::Captured* captured) {
  int64_t bytes = captured ? captured->executor->plan().bytes : 0;
  for (const capture::Buffer& buffer : graph.buffers) {
    if (buffer.kind != capture::Buffer::Kind::local) bytes += int64_t(buffer.bytes);
  }
  return bytes;
}

profiler::Report profiled_round(const Comparison& comparison, bool is_fused,
    const ComparisonOptions& options, const std::optional<profiler::Roofs>& roofs) {
  const capture::Captured* const captured = is_fused ? &comparison.captured() : nullptr;
  const capture::Graph& graph = captured ? captured->fused.graph : comparison.captured().recorded;
  const char* const mode = is_fused ? "fused" : "eager";
  const std::function<void()>& run = is_fused ? comparison.fused : comparison.eager;
  const bool timed = comparison.timed();
  profiler::Session session({.schedule = {.wait = 0,
                                 .warmup = timed ? int(options.warmup) : 0,
                                 .active = timed ? int(options.steps) : 1},
      .title = fmt::format("{} {}", shown_device(comparison.device), mode),
      .threads = num_threads(),
      .device = comparison.device,
      .mode = mode,
      .rules = is_fused ? comparison.rules : "",
      .dtype = comparison.dtype,
      .roofs = roofs,
      .resident_bytes = touched_bytes(graph, captured)});
  while (!session.done()) {
    run();
    session.step();
  }
  profiler::Report report = session.finish();
  if (captured) report.nodes = describe_nodes(*captured);
  return report;
}

bool is_stopped(const ComparisonOptions& options) { return options.stopped && options.stopped(); }

// A look at the steps after their rounds, whose time other programs may have multiplied: of a fused
// step, too, as its shorter ops wait for each other more often.
std::string why_slow(const Comparison& comparison, const RoundTimes& times) {
  std::string why;
  if (!times.eager_us.empty())
    why = why_distrusted(comparison.eager, profiler::median(times.eager_us));
  if (why.empty() && !times.fused_us.empty())
    why = why_distrusted(comparison.fused, profiler::median(times.fused_us));
  return why;
}

}  // namespace

// The pairs that give the factor, A B B A, with nothing recorded.
RoundTimes time_rounds(const Comparison& comparison, const ComparisonOptions& options) {
  be_multithreaded();
  std::vector<Twin> twins{{comparison.eager, comparison.fused}};
  RoundTimes out{.layouts = options.layouts(comparison)};
  while (int64_t(twins.size()) < out.layouts) {
    twins.push_back(comparison.again());
    for (int call = 0; call < 3; ++call) {  // the second captures
      twins.back().eager();
      twins.back().fused();
    }
  }
  std::vector<double> steps_us[2];  // eager, fused
  for (int64_t round = 0; round < options.rounds && !is_stopped(options); ++round) {
    const Twin& twin = twins[size_t(round % out.layouts)];
    for (const bool is_fused : {round % 2 == 1, round % 2 == 0}) {
      const std::function<void()>& run = is_fused ? twin.fused : twin.eager;
      if (!run) continue;
      (is_fused ? out.fused_us : out.eager_us)
          .push_back(round_us(
              run, comparison.device, options.warmup, options.steps, &steps_us[size_t(is_fused)]));
    }
  }
  if (comparison.device != kCpu) return out;
  out.distrusted = why_slow(comparison, out);
  for (const bool is_fused : {false, true}) {
    if (out.distrusted.empty() && options.rounds >= profiler::kMinPairs)
      out.distrusted = profiler::why_unsteady(
          is_fused ? "fused steps" : "eager steps", steps_us[size_t(is_fused)]);
  }
  return out;
}

namespace {

// Of a step, beyond one per op. On cuda a library may make a product of several kernels.
double more_launches(const capture::Captured& captured, const profiler::Measurement& fused) {
  return fused.launches_per_step() - double(captured.executor->launches());
}

std::string launches_note(const capture::Captured& captured, const Outcome& o) {
  if (!o.complete) return "   INCOMPLETE: a profiled step has other launches, or lost some";
  return more_launches(captured, o.fused) > 0 ? " (the library splits products)" : "";
}

// As many profiled pairs. Returns per pair the times of every launch of either step, for the
// table; nothing where they are bounds only, or a step had other launches than its graph.
std::vector<PairOfTimes> run_profiled_rounds(
    const Comparison& comparison, const ComparisonOptions& options, Outcome& o) {
  const capture::Captured& captured = comparison.captured();
  const bool cuda = comparison.device.type == Device::Type::cuda;
  std::vector<PairOfTimes> pairs;
  const auto roofs = options.roofs ? options.roofs() : std::nullopt;
  bool timed = comparison.timed();
  const int64_t rounds = timed ? int64_t(o.eager_us.size()) : 1;
  for (int64_t round = 0; round < rounds && (round == 0 || !is_stopped(options)); ++round) {
    PairOfTimes times;
    for (const bool is_fused : {round % 2 == 1, round % 2 == 0}) {
      const capture::Graph& graph = is_fused ? captured.fused.graph : captured.recorded;
      profiler::Report report = profiled_round(comparison, is_fused, options, roofs);
      (is_fused ? times.second : times.first) = launch_times_us(report, graph.nodes.size());
      timed = timed && report.source != profiler::Source::none;
      (is_fused ? o.fused : o.eager).append(std::move(report));
    }
    const double more = more_launches(captured, o.fused);
    o.complete = o.complete && !times.first.empty() && !times.second.empty() &&
                 (more == 0 || (cuda && more > 0));
    if (o.complete && timed) pairs.push_back(std::move(times));
  }
  return pairs;
}

std::string headline(const Comparison& comparison, const Outcome& o) {
  if (!comparison.timed()) return "not timed on simt";
  const Unit unit = unit_of_us(profiler::median(o.eager_us));
  const auto time = [&unit](const std::vector<double>& us) {
    return profiler::time_text(profiler::median(us) / unit.size);
  };
  return str(time(o.eager_us), " -> ", time(o.fused_us), " ", unit.name,
      o.ratio.is_shown() ? " = " : ", ", o.factor_text());
}

std::string work_line(const ComparisonTable& table) {
  const auto eager = double(table.total.eager_flops), fused = double(table.total.fused_flops);
  const Unit unit = eager < 1e10 ? Unit{1e6, "MFLOP"} : Unit{1e9, "GFLOP"};
  return fmt::format(
      "work     {:.3f} -> {:.3f} {} by formula\n", eager / unit.size, fused / unit.size, unit.name);
}

std::string capture_line(const Comparison& comparison, const Outcome& o) {
  const double capture_ms = comparison.step->stats().capture_ms;
  std::string pays_back;
  if (o.ratio.is_shown() && o.ratio.value > 1) {
    const double saved_us = o.saving().value;
    pays_back = ", pays back after " +
                count_of(std::llround(std::ceil(capture_ms * 1e3 / saved_us)), "replay");
  }
  const auto arena = double(comparison.captured().executor->plan().bytes);
  const Unit size = unit_of_bytes(arena);
  return fmt::format("capture  {:.1f} ms, shape-specialised{}; arena {:.1f} {}\n", capture_ms,
      pays_back, arena / size.size, size.name);
}

std::string with_unit(double us) {
  const Unit unit = unit_of_us(us);
  return profiler::time_text(us / unit.size) + " " + unit.name;
}

// "85 % of the copy roof", the roof that the row is nearer to, or its rate where none is known:
// with the figures of its profile.
std::string limit_text(const profiler::Report& fused, const ComparedRow& row) {
  profiler::Cost cost{row.fused_flops, row.fused_bytes, 0};
  double ns = row.fused_time() * 1e3;
  for (const profiler::Row& profiled : fused.rows().rows) {
    if (profiled.name != row.row || !(profiled.typical_ns > 0)) continue;
    cost = profiled.cost;
    ns = profiled.typical_ns;
  }
  const profiler::Ceiling roofs = fused.ceiling();
  if (roofs.known()) {
    return fmt::format("{:.0f} % of the {} roof", 100 * roofs.share(cost, ns),
        roofs.compute_is_nearer(cost) ? "GEMM" : "copy");
  }
  const auto flops = double(cost.flops), bytes = double(cost.bytes());
  return flops >= profiler::kFlopRateFrom * bytes ? fmt::format("{:.0f} GFLOP/s", flops / ns)
                                                  : fmt::format("{:.0f} GB/s", bytes / ns);
}

// Where the fused step's time goes now. Profiled rounds apportion.
std::string limit_line(const Outcome& o) {
  const ComparedRow* longest = nullptr;
  for (const ComparedRow& row : o.table.rows) {
    if (row.eager_us.empty() || row.fused_launches == 0) continue;
    if (!longest || row.fused_time() > longest->fused_time()) longest = &row;
  }
  if (!longest) return "";
  return fmt::format("limit    {}: {:.0f} % of the fused rows, {}\n", longest->fused,
      100 * longest->fused_time() / o.table.total.fused_time(), limit_text(o.fused, *longest));
}

// Where the eager one's went.
std::string gain_line(const Outcome& o) {
  const ComparedRow* gain = nullptr;
  double gain_us = 0;
  for (const ComparedRow& row : o.table.rows) {
    if (row.eager_us.empty() || row.fused_launches == 0 || !row.ratio().is_shown()) continue;
    if (row.eager_time() - row.fused_time() <= gain_us) continue;
    gain = &row;
    gain_us = row.eager_time() - row.fused_time();
  }
  if (!gain) return "gain     no row by itself is shown to be faster\n";
  const Unit size = unit_of_bytes(double(o.table.total.eager_bytes));
  return fmt::format("gain     most by {}: {}, {} -> {} launches, {:.1f} -> {:.1f} {}\n",
      gain->fused, with_unit(gain_us), gain->eager_launches, gain->fused_launches,
      double(gain->eager_bytes) / size.size, double(gain->fused_bytes) / size.size, size.name);
}

// Rows that fusing makes slower, each with the rules that leave it out.
std::string loss_lines(const Comparison& comparison, const ComparisonTable& table) {
  std::string out;
  for (const ComparedRow& row : table.rows) {
    const profiler::Estimate ratio = row.ratio();
    if (!ratio.is_shown() || ratio.value >= 1) continue;
    const std::string rules = str(comparison.rules, ",-", row.rule);
    out += fmt::format("note     {} is slower fused, {}; without it: {}\n", row.fused,
        row.ratio_text(),
        comparison.rules_option.empty() ? str("RuleSet(\"", rules, "\")")
                                        : comparison.rules_option + rules);
  }
  return out;
}

// What was not fused, and how sure that is.
std::string groups_lines(const capture::Rewriter& fused, const ReportText& text) {
  std::string out;
  const int64_t kept = kept_unfused(fused);
  if (kept > 0 || !fused.misses.empty()) {
    out += fmt::format("not fused: {}, {} not faster here{}\n",
        count_of(int64_t(fused.misses.size()), "near miss", "es"), count_of(kept, "group"),
        text.explain || text.how_to_explain.empty() ? "" : " (" + text.how_to_explain + ")");
  }
  if (const int64_t open = capture::undecided(fused); open > 0)
    out +=
        fmt::format("fused all the same: {}, no difference measured{}\n", count_of(open, "group"),
            text.explain || text.how_to_explain.empty() ? "" : " (" + text.how_to_explain + ")");
  return out;
}

}  // namespace

std::string rows_and_headline(const Outcome& o) {
  const ComparedRow& total = o.table.total;
  const double rows[] = {total.eager_time(), total.fused_time()};
  profiler::Estimate ratio = o.ratio;
  ratio.value = rows[0] / rows[1];
  if (!ratio.has_interval || ratio.is_noisy() || !(ratio.value > 0)) return "";
  const Unit unit = unit_of_us(rows[0]);
  const bool within = ratio.low <= ratio.value && ratio.value <= ratio.high;
  return fmt::format("add up to {} -> {} {} = {}, {}within the headline's interval{}",
      profiler::time_text(rows[0] / unit.size), profiler::time_text(rows[1] / unit.size), unit.name,
      profiler::times_text(ratio), within ? "" : "not ",
      within ? "" : ": they are ops alone, in profiled rounds");
}

namespace {

// Are times of it told?
bool is_decided(const Comparison& comparison, const Outcome& o) {
  return comparison.timed() && !o.ratio.is_noisy() && o.distrusted.empty() &&
         o.eager.busy().empty() && o.fused.busy().empty();
}

}  // namespace

std::string summary(const Comparison& comparison, const Outcome& o) {
  const ComparedRow& total = o.table.total;
  const bool decided = is_decided(comparison, o);
  return (decided ? limit_line(o) : "") +
         fmt::format(
             "counted  {} -> {} launches (claimed {}, counted {:.0f}), {:.2f} -> {:.2f} MB "
             "moved{}\n",
             total.eager_launches, total.fused_launches, comparison.captured().executor->launches(),
             o.fused.launches_per_step(), double(total.eager_bytes) * 1e-6,
             double(total.fused_bytes) * 1e-6, launches_note(comparison.captured(), o)) +
         (decided ? loss_lines(comparison, o.table) : "");
}

std::string details(const Comparison& comparison, const Outcome& o) {
  const std::string rows = rows_and_headline(o);
  return (is_decided(comparison, o) ? gain_line(o) : "") +
         (rows.empty() ? "" : "rows     " + rows + "\n") + capture_line(comparison, o) +
         work_line(o.table);
}

profiler::Estimate RoundTimes::factor() const {
  profiler::Estimate ratio = profiler::paired_ratio(eager_us, fused_us, layouts);
  ratio.has_interval = ratio.has_interval && distrusted.empty();
  return ratio;
}

profiler::Estimate RoundTimes::saving() const {
  return profiler::paired_saving(eager_us, fused_us, layouts);
}

std::string RoundTimes::factor_text() const {
  if (!distrusted.empty()) return "machine busy: no factor, " + distrusted;
  return profiler::factor_text(factor(), eager_us.size());
}

int64_t ComparisonOptions::layouts(const Comparison& comparison) const {
  return comparison.again && comparison.device == kCpu && rounds >= profiler::kMinPairs ? kLayouts
                                                                                        : 1;
}

std::string ComparisonOptions::describe(const Comparison& comparison) const {
  if (!comparison.timed()) return "one step of each";
  const int64_t places = layouts(comparison);
  return fmt::format("{} of rounds x {}, {} warm-up{}", count_of(rounds, "pair"),
      count_of(steps, "step"), warmup,
      places > 1 ? fmt::format(", in {} layouts of memory", places) : "");
}

Outcome compare(const Comparison& comparison, const ComparisonOptions& options) {
  for (int i = 0; i < 2 && !comparison.step->captured(); ++i) comparison.fused();
  const capture::Captured& captured = comparison.captured();
  Outcome o;
  if (comparison.timed()) static_cast<RoundTimes&>(o) = time_rounds(comparison, options);
  const std::vector<PairOfTimes> times = run_profiled_rounds(comparison, options, o);
  SINTER_CHECK(!o.fused.steps.empty(), interrupted,
      "compare: interrupted before the first pair of rounds was over");
  o.complete = o.complete && o.eager.incomplete.empty() && o.fused.incomplete.empty();
  o.eager.disturbed = o.fused.disturbed = o.distrusted;
  o.eager.clean_us = o.eager_us;
  o.fused.clean_us = o.fused_us;
  o.eager.candidates = candidates(captured);
  o.fused.candidates.emplace();
  o.table = make_table(captured, times);
  if (comparison.device != kCpu) {
    o.table.times = "us, self CUDA";
    o.table.total.eager = fmt::format(
        "API calls {} -> {}", captured.recorded.nodes.size(), captured.executor->calls());
  }
  if (comparison.timed()) o.ratio = o.factor();
  for (const profiler::Report* report : {&o.eager, &o.fused}) {
    if (!o.ratio.has_interval || report->busy().empty()) continue;
    o.distrusted = str("as the ", report->mode, " profile has no verdict");
    o.ratio.has_interval = false;
  }
  for (ComparedRow& row : o.table.rows) {
    if (row.verdict.empty() && (!o.distrusted.empty() || o.ratio.is_noisy()))
      row.verdict = "machine busy";
  }
  o.headline = headline(comparison, o);
  return o;
}

int64_t kept_unfused(const capture::Rewriter& fused) {
  return std::ranges::count_if(
      fused.groups, [](const capture::Group& g) { return g.kept_unfused(); });
}

std::string report(const Comparison& comparison, const Outcome& o, const ReportText& text) {
  const capture::Captured& captured = comparison.captured();
  std::string above = str("step     ", o.headline, "\n", summary(comparison, o)), below;
  if (text.details) above += details(comparison, o);
  if (!text.parity.empty()) above += str("parity   ", text.parity, "\n");
  if (!text.next.empty()) above += str("next     ", text.next, "\n");
  const std::string eager_busy = o.eager.busy(), fused_busy = o.fused.busy();
  if (!eager_busy.empty()) below += str("eager: ", eager_busy, "\n");
  if (!fused_busy.empty() && fused_busy != eager_busy) below += str("fused: ", fused_busy, "\n");
  below = wrapped(below + groups_lines(captured.fused, text), text.width);
  if (text.explain) {
    below += str(
        below.empty() ? "" : "\n", capture::explain(captured, capture::RuleSet(comparison.rules),
                                       capture::rules(), o.eager.ceiling()));
  }
  return str(wrapped(above, text.width, 9), "\n", o.table.text(text.width),
      below.empty() ? "" : "\n", below);
}

std::vector<double> step_times_us(const std::function<void()>& step, Device device, int64_t steps) {
  const bool on_card = device.type == Device::Type::cuda;
  const int64_t at_once = device == kCpu ? 1 : steps;
  std::vector<double> times;
  synchronize(device);
  if (on_card) cuda::watch(true);
  for (int64_t i = 0; i < steps; i += at_once) {
    times.push_back(ns_per_call(device, at_once, step) * 1e-3);
  }
  if (on_card) cuda::watch(false);
  return times;
}

double round_us(const std::function<void()>& step, Device device, int64_t warmup, int64_t steps,
    std::vector<double>* all) {
  for (int64_t i = 0; i < warmup; ++i) step();
  const std::vector<double> us = step_times_us(step, device, steps);
  if (all) all->insert(all->end(), us.begin(), us.end());
  return profiler::median(us);
}

}  // namespace sinter::measure
