// What a Measurement says of itself, and Report::profile(): the records of a report as one Profile.
#include "profiler/profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/numbers.h"
#include "core/text_grid.h"
#include "profiler/report.h"
#include "profiler/thresholds.h"

namespace sinter::profiler {
namespace {

// All launches, and the host time of launching whole graphs.
void add_launches(const Report& report, Profile& out) {
  for (const Trace& trace : report.traces) {
    for (const LaunchRecord& l : trace.launches) {
      if (!report.counts(trace, l)) continue;
      if (l.kind == LaunchKind::graph) out.replay_ns += l.api_t1 - l.api_t0;
      report.add_launch(out.kernels, l);
    }
  }
  sort_kernels(out.kernels);
}

// The emulator's times mean nothing: none leaves the report.
void forget_times(Profile& profile) {
  for (StepSample& step : profile.steps) {
    step.t1 = step.t0;
    step.profiler_ns = 0;
  }
  for (Row& row : profile.rows) {
    row.self_ns = row.total_ns = row.kernel_ns = 0;
    row.typical_ns = row.typical_total_ns = row.typical_kernel_ns = 0;
    row.samples.clear();
  }
  profile.ops_ns = 0;
  profile.clean_us.clear();
}

// The fusion rule that would take the row.
std::string rule_for(const Row& row, const Profile& p) {
  for (const Candidate& c : *p.candidates) {
    if (std::ranges::find(c.rows, row.name) != c.rows.end()) return c.rule;
  }
  return "-";
}

std::string flags_of(const Row& row, const Profile& p) {
  std::vector<std::string> out;
  if (row.share >= kHotShare) out.push_back("HOT");
  // Without a graph nobody knows whether a rule would join the calls.
  if (p.candidates && row.launches > 0 && double(row.calls) >= kManyCalls * double(p.steps.size()))
    out.push_back("MANY " + rule_for(row, p));
  const bool drill = double(row.total_ns) >= kDrillFactor * double(row.self_ns);
  if (!row.heaviest_child.empty() && drill) out.push_back("DRILL " + escaped(row.heaviest_child));
  if (row.xpred() > kSurprise && p.busy().empty()) out.push_back("SURPRISE");
  return join(out);
}

// What a row says beside the others.
void mark_rows(Profile& p) {
  const bool timed = p.device == kCpu || p.source == Source::cupti;
  double all_ns = 0;
  for (const Row& row : p.rows) all_ns += row.kind == ScopeKind::op ? row.typical_ns : 0;
  for (Row& row : p.rows) {
    if (row.kind != ScopeKind::op) continue;
    if (timed && all_ns > 0) row.share = row.typical_ns / all_ns;
    row.flags = flags_of(row, p);
  }
}

// A profile is of steps that are alike: of the first one where it takes longer by more than twice
// what separates nine in ten of the others from one in ten, and by a twentieth; "" where it does
// not, and where steps are few or unsteady.
std::string cold_note(const Profile& p) {
  constexpr size_t kFewest = 8;
  if (p.steps.size() < kFewest || p.device.type == Device::Type::simt || !p.busy().empty())
    return "";
  std::vector<double> ns = p.step_ns();
  const double first = ns.front();
  ns.erase(ns.begin());
  std::ranges::sort(ns);
  const double usual = median(ns), spread = ns[ns.size() * 9 / 10] - ns[ns.size() / 10];
  if (first - usual <= std::max(2 * spread, usual / 20)) return "";
  std::vector<std::pair<double, std::string>> rows{};
  for (const Row& row : p.rows) {
    if (!row.in_table() || row.samples.empty()) continue;
    std::vector<double> others(row.samples.begin() + 1, row.samples.end());
    const double more = double(row.samples.front()) - median(others);
    if (more > (first - usual) / 10)
      rows.emplace_back(more, fmt::format("{} +{:.1f} us", row.name, more / 1e3));
  }
  std::ranges::sort(rows, std::greater());
  rows.resize(std::min<size_t>(rows.size(), 3));
  std::vector<std::string> names;
  for (const auto& [more, name] : rows) names.push_back(name);
  return fmt::format(
      "not warm: the first recorded step took {:.1f} us, the others {:.1f} ({:.1f} apart), by {}; "
      "more steps of warm-up leave it out",
      first / 1e3, usual / 1e3, spread / 1e3, names.empty() ? "no row" : join(names));
}

}  // namespace

int64_t Measurement::step_index(uint32_t number) const {
  const auto found = std::ranges::lower_bound(steps, int64_t{number}, {}, &StepSample::number);
  return found != steps.end() && found->number == number ? found - steps.begin() : -1;
}

std::vector<double> Measurement::step_ns() const {
  std::vector<double> ns;
  for (const StepSample& step : steps) ns.push_back(double(step.ns()));
  return ns;
}

std::vector<std::span<const StepSample>> Measurement::windows() const {
  std::vector<std::span<const StepSample>> out;
  for (const StepSample& step : steps) {
    if (out.empty() || out.back().front().window != step.window) out.emplace_back(&step, 0);
    out.back() = {out.back().data(), out.back().size() + 1};
  }
  return out;
}

double Measurement::profiler_us() const {
  std::vector<double> us;
  for (const StepSample& step : steps) us.push_back(double(step.profiler_ns) / 1e3);
  return median(us);
}

double Measurement::launches_per_step() const {
  int64_t sum = 0;
  for (const StepSample& step : steps) sum += step.launches;
  return steps.empty() ? 0.0 : double(sum) / double(steps.size());
}

int64_t Measurement::drain_ns() const {
  int64_t sum = 0;
  for (const StepSample& step : steps) sum += step.drain_ns;
  return sum;
}

double Measurement::distortion() const {
  if (device.type == Device::Type::simt) return NAN;
  std::vector<double> us;
  for (const std::span<const StepSample> window : windows()) {
    double drain = 0;
    for (const StepSample& step : window) drain += double(step.drain_ns) / double(window.size());
    for (const StepSample& step : window)
      us.push_back((double(step.ns()) + drain - double(step.profiler_ns)) * 1e-3);
  }
  return profiler::distortion(us, clean_us);
}

std::string Measurement::busy() const {
  std::string why;
  if (!disturbed.empty()) {
    why = disturbed + ".";
  } else if (roofs && roofs->loaded) {
    why = fmt::format("other programs kept {:.1f} cores busy while the roofs were measured.",
        roofs->others_cores);
  } else if (device != kCpu || steps.empty()) {
    return "";
  } else if (const std::string apart = why_unsteady("steps", step_ns()); !apart.empty()) {
    why = apart + ".";
  } else if (std::abs(distortion()) > kBusyDistortion) {  // never of NaN
    // Rounded, but never to what is allowed.
    why = fmt::format(
        "profiled steps differ by {:+.0f} % from clean ones beyond the profiler's own cost, {:.0f} "
        "% allowed.",
        std::copysign(
            std::max(std::round(std::abs(distortion())), kBusyDistortion + 1), distortion()),
        kBusyDistortion);
  }
  return why.empty() ? "" : "machine busy: no verdict; " + why;
}

bool Measurement::throttled() const { return sm_mhz > 0 && sm_mhz < kThrottled * sm_standard_mhz; }

Ceiling Measurement::ceiling() const {
  if (!roofs || device.type == Device::Type::simt) return {};
  const bool bf16 = dtype == "bf16" && roofs->bf16_gflops > 0;
  const bool in_cache = working_set > 0 && working_set <= roofs->cache_bytes;
  return {.flops_per_ns = bf16 ? roofs->bf16_gflops : roofs->f32_gflops,
      .bytes_per_ns = in_cache ? roofs->cache_gbs : roofs->dram_gbs,
      .floor_ns = device == kCpu ? roofs->op_ns : roofs->floor_ns,
      .in_cache = in_cache,
      .key = roofs->key,
      .spread = roofs->spread};
}

StepVerdict Report::verdict() const { return profile().verdict; }

Profile Report::profile(bool by_shape, int by_module) const {
  Profile out;
  static_cast<Measurement&>(out) = *this;
  Rows found = rows(by_shape, by_module);
  out.rows = std::move(found.rows);
  out.ops_ns = found.ops_ns;
  out.memory = found.memory;
  out.arena = found.arena;
  if (const Ceiling used = ceiling(); used.known()) out.roofline = used;
  if (const Timeline t = timeline(); t.known) out.idle = t;
  MemoryPeak peak = memory_peak();
  out.memory_peak = peak.bytes;
  out.memory_peak_op = std::move(peak.op);
  add_launches(*this, out);
  if (by_shape || by_module > 0) {
    out.verdict = verdict();  // of the rows as they are
  } else {
    out.verdict = step_verdict(out);
    if (candidates && !candidates->empty() && busy().empty()) {
      std::string& advice = out.verdict.advice;
      advice += (advice.empty() ? "" : "; ") + candidates->front().text();
    }
  }
  if (device.type == Device::Type::simt) forget_times(out);
  mark_rows(out);
  if (std::string cold = cold_note(out); !cold.empty()) out.notes.push_back(std::move(cold));
  return out;
}

std::string Report::table(const TableOptions& options) const {
  const std::string text =
      profiler::table(profile(options.group_by_input_shape, options.group_by_module), options);
  if (!asks_for_memory(options)) return text;
  const std::string kept = kept_lines(kept_of(*this));
  return text + wrapped(kept, options.width > 0 ? options.width : kept.size());
}

Profile profile_of(const Report& report, const RunFacts& run) {
  Profile profile = report.profile();
  static_cast<RunFacts&>(profile) = run;
  return profile;
}

}  // namespace sinter::profiler
