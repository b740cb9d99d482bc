// What a Measurement says of itself, and Report::profile(): the records of a report as one Profile.
#include "profiler/profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "profiler/report.h"
#include "profiler/thresholds.h"

namespace sinter::profiler {
namespace {

std::vector<double> step_ns(const std::vector<StepSample>& steps) {
  std::vector<double> ns;
  for (const StepSample& step : steps) ns.push_back(static_cast<double>(step.ns()));
  return ns;
}

// The innermost op that was open when memory in use was highest.
std::string op_at_peak(const Report& report) {
  const MemorySample* peak = nullptr;
  const Trace* where = nullptr;
  for (const Trace& trace : report.traces) {
    for (const MemorySample& sample : trace.memory) {
      if (report.step_index(sample.step) < 0) continue;
      if (peak && sample.live_bytes <= peak->live_bytes) continue;
      peak = &sample;
      where = &trace;
    }
  }
  std::string out;
  if (!where) return out;
  for (const Record& r : where->records) {  // later ones that hold the moment lie deeper
    if (r.kind == ScopeKind::op && r.t0 <= peak->t && peak->t <= r.t1) out = r.name.view();
  }
  return out;
}

std::vector<KernelSum> kernels_of(const Report& report) {
  std::map<std::tuple<std::string, LaunchKind, Source>, KernelSum> found;
  for (const Trace& trace : report.traces) {
    for (const LaunchRecord& l : trace.launches) {
      if (l.kernel.view().empty() || l.kind == LaunchKind::graph) continue;
      if (report.step_index(l.step) < 0) continue;
      const std::string name(l.kernel);
      KernelSum& sum =
          found.try_emplace({name, l.kind, l.source}, KernelSum{name, l.kind, l.source})
              .first->second;
      ++sum.launches;
      sum.ns += l.device_ns();
    }
  }
  std::vector<KernelSum> out;
  for (auto& [key, sum] : found) out.push_back(std::move(sum));
  std::stable_sort(
      out.begin(), out.end(), [](const KernelSum& a, const KernelSum& b) { return a.ns > b.ns; });
  return out;
}

// Host time of launching whole graphs.
int64_t replay_ns(const Report& report) {
  int64_t sum = 0;
  for (const Trace& trace : report.traces) {
    for (const LaunchRecord& l : trace.launches) {
      if (l.kind == LaunchKind::graph && report.counts(trace, l)) sum += l.api_t1 - l.api_t0;
    }
  }
  return sum;
}

// The emulator's times mean nothing: none leaves the report.
void forget_times(Profile& profile) {
  for (StepSample& step : profile.steps) step.t1 = step.t0;
  for (Row& row : profile.rows) {
    row.self_ns = row.total_ns = row.kernel_ns = 0;
    row.typical_ns = 0;
    row.samples.clear();
  }
  profile.ops_ns = 0;
}

}  // namespace

int64_t Measurement::step_index(uint32_t number) const {
  const auto found = std::lower_bound(steps.begin(), steps.end(), int64_t{number},
      [](const StepSample& s, int64_t n) { return s.number < n; });
  return found != steps.end() && found->number == number ? found - steps.begin() : -1;
}

double Measurement::launches_per_step() const {
  int64_t sum = 0;
  for (const StepSample& step : steps) sum += step.launches;
  return steps.empty() ? 0.0 : static_cast<double>(sum) / static_cast<double>(steps.size());
}

int64_t Measurement::drain_ns() const {
  int64_t sum = 0;
  for (const StepSample& step : steps) sum += step.drain_ns;
  return sum;
}

double Measurement::distortion() const {
  struct Window {
    double drain = 0, steps = 0;
  };
  std::map<int64_t, Window> windows;
  for (const StepSample& step : steps) {
    Window& window = windows[step.window];
    window.drain += static_cast<double>(step.drain_ns);
    ++window.steps;
  }
  std::vector<double> us;
  for (const StepSample& step : steps) {
    const Window& window = windows[step.window];
    us.push_back((static_cast<double>(step.ns()) + window.drain / window.steps) * 1e-3);
  }
  return profiler::distortion(us, clean_us);
}

double Measurement::spread() const {
  const std::vector<double> ns = step_ns(steps);
  return (quantile(ns, 0.75) - quantile(ns, 0.25)) / median(ns);
}

std::string Measurement::busy() const {
  if (roofs && roofs->loaded) {
    return fmt::format(
        "machine busy: no verdict; other programs kept {:.1f} cores busy while the roofs were "
        "measured.",
        roofs->others_cores);
  }
  if (device != kCpu || steps.empty()) return "";
  if (spread() > kBusySpread) {
    return fmt::format(
        "machine busy: no verdict; half of the steps lie {:.0f} % of the median apart, {:.0f} % "
        "allowed.",
        100 * spread(), 100 * kBusySpread);
  }
  if (std::abs(distortion()) > kBusyDistortion) {  // never of NaN
    return fmt::format(
        "machine busy: no verdict; profiled steps take {:+.0f} % of the clean ones, {:.0f} % "
        "allowed.",
        distortion(), kBusyDistortion);
  }
  return "";
}

bool Measurement::throttled() const { return sm_mhz > 0 && sm_mhz < kThrottled * sm_standard_mhz; }

Ceiling Measurement::ceiling() const {
  if (!roofs || device.type == Device::Type::simt) return {};
  const bool bf16 = dtype == "bf16" && roofs->bf16_gflops > 0;
  const bool in_cache = working_set > 0 && working_set <= roofs->cache_bytes;
  // Only the device's own records leave the gap behind a kernel out.
  const double gap_ns = source == Source::cupti ? 0 : roofs->node_gap_ns;
  return {.flops_per_ns = bf16 ? roofs->bf16_gflops : roofs->f32_gflops,
      .bytes_per_ns = in_cache ? roofs->cache_gbs : roofs->dram_gbs,
      .floor_ns = device == kCpu ? roofs->op_ns : roofs->floor_ns + gap_ns,
      .in_cache = in_cache,
      .key = roofs->key,
      .spread = roofs->spread};
}

StepVerdict Report::verdict() const {
  const bool cpu = device == kCpu;
  StepFacts f{.incomplete = !incomplete.empty(),
      .emulated = device.type == Device::Type::simt,
      .upper_bounds = source == Source::event,
      .on_cpu = cpu,
      .busy = busy(),
      .has_roofs = ceiling().known()};
  if (cpu) {
    f.window_ns = median(step_ns(steps)) * static_cast<double>(steps.size());
  } else {
    const Timeline t = timeline();
    f.window_ns = static_cast<double>(t.window_ns);
    f.data_ns = static_cast<double>(t.data_ns);
    f.host_ns = static_cast<double>(t.host_ns);
    f.busy_ns = static_cast<double>(t.busy_ns);
  }
  for (const Row& row : rows().rows) {
    if (cpu && row.kind == ScopeKind::data) f.data_ns += row.typical_total_ns;
    if (row.kind != ScopeKind::op) continue;
    if (cpu && row.launches > 0) f.host_ns += row.typical_ns - row.typical_kernel_ns;
    f.self_ns += row.typical_ns;
    if (row.verdict.code == RowCode::compute_bound) f.compute_ns += row.typical_ns;
    if (row.verdict.code == RowCode::memory_bound) f.memory_ns += row.typical_ns;
    if (row.verdict.code == RowCode::latency_bound) f.latency_ns += row.typical_ns;
  }
  return step_verdict(f);
}

Profile Report::profile(bool by_shape, int by_module) const {
  Profile out;
  static_cast<Measurement&>(out) = *this;
  Rows found = rows(by_shape, by_module);
  out.rows = std::move(found.rows);
  for (const OpCall& call : found.calls) {
    if (call.in_step_thread) out.ops_ns += call.self_ns;
  }
  out.verdict = verdict();
  if (const Ceiling used = ceiling(); used.known()) out.roofline = used;
  if (const Timeline t = timeline(); t.known || t.estimated) out.idle = t;
  out.memory_peak = peak_bytes();
  out.memory_peak_op = op_at_peak(*this);
  out.kernels = kernels_of(*this);
  out.replay_ns = profiler::replay_ns(*this);
  if (device.type == Device::Type::simt) forget_times(out);
  return out;
}

std::string Report::table(const TableOptions& options) const {
  return profiler::table(profile(options.group_by_input_shape, options.group_by_module), options);
}

}  // namespace sinter::profiler
