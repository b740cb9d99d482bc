#include "profiler/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "core/error.h"
#include "profiler/stats.h"
#include "profiler/thresholds.h"

namespace sinter::profiler {
namespace {

bool is_open(const Record& record) { return record.t1 == Record::kOpen; }

std::vector<double> step_us(const std::vector<StepSample>& steps) {
  std::vector<double> us;
  for (const StepSample& step : steps) us.push_back(static_cast<double>(step.ns()) * 1e-3);
  return us;
}

}  // namespace

std::vector<int64_t> self_times(const Trace& trace) {
  const auto& records = trace.records;
  std::vector<int64_t> self(records.size(), 0);
  for (size_t i = 0; i < records.size(); ++i) {
    const Record& r = records[i];
    if (is_open(r)) continue;
    self[i] += r.t1 - r.t0;
    if (r.parent >= 0 && !is_open(records[r.parent])) self[r.parent] -= r.t1 - r.t0;
  }
  return self;
}

double Report::launches_per_step() const {
  int64_t sum = 0;
  for (const StepSample& step : steps) sum += step.launches;
  return steps.empty() ? 0.0 : static_cast<double>(sum) / static_cast<double>(steps.size());
}

int64_t Report::drain_ns() const {
  int64_t sum = 0;
  for (const StepSample& step : steps) sum += step.drain_ns;
  return sum;
}

double Report::distortion() const {
  std::map<int64_t, double> share;  // of a window's drain, for each of its steps
  for (const StepSample& step : steps) share[step.window] += static_cast<double>(step.drain_ns);
  for (auto& [window, ns] : share) {
    ns /= static_cast<double>(std::count_if(
        steps.begin(), steps.end(), [&](const StepSample& s) { return s.window == window; }));
  }
  std::vector<double> us;
  for (const StepSample& step : steps)
    us.push_back((static_cast<double>(step.ns()) + share[step.window]) * 1e-3);
  return profiler::distortion(us, clean_us);
}

double Report::spread() const {
  const std::vector<double> us = step_us(steps);
  return (quantile(us, 0.75) - quantile(us, 0.25)) / median(us);
}

std::string Report::busy() const {
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

int64_t Report::step_index(uint32_t number) const {
  const auto found = std::lower_bound(steps.begin(), steps.end(), int64_t{number},
      [](const StepSample& s, int64_t n) { return s.number < n; });
  return found != steps.end() && found->number == number ? found - steps.begin() : -1;
}

bool Report::counts(const Trace& trace, const Record& record) const {
  const int64_t step = step_index(record.step);
  return step >= 0 && !is_open(record) && !(trace.steps_here && record.t1 > steps[step].t1);
}

int64_t Report::peak_bytes() const {
  int64_t peak = 0;
  for (const Trace& trace : traces) {
    for (const MemorySample& sample : trace.memory) {
      if (step_index(sample.step) >= 0) peak = std::max(peak, sample.live_bytes);
    }
  }
  return peak;
}

bool Report::throttled() const { return sm_mhz > 0 && sm_mhz < kThrottled * sm_standard_mhz; }

bool Report::counts(const Trace& trace, const LaunchRecord& launch) const {
  return step_index(launch.step) >= 0 &&
         (launch.record < 0 || counts(trace, trace.records[launch.record]));
}

void Report::append(Report other) {
  const int64_t shift = steps.back().number + 1 - other.steps.front().number,
                round = steps.back().round + 1;
  const int64_t window = steps.back().window + 1;
  constexpr uint32_t kNoStep = UINT32_MAX;
  const auto move = [&](auto& list) {
    for (auto& item : list)
      item.step =
          other.step_index(item.step) < 0 ? kNoStep : static_cast<uint32_t>(item.step + shift);
  };
  for (Trace& trace : other.traces) {
    move(trace.records), move(trace.launches), move(trace.memory);
    traces.push_back(std::move(trace));
  }
  for (StepSample& step : other.steps) {
    step.number += shift;
    step.round += round;
    step.window += window;
  }
  steps.insert(steps.end(), other.steps.begin(), other.steps.end());
  for (auto [to, from] :
      {std::pair{&incomplete, &other.incomplete}, std::pair{&notes, &other.notes}}) {
    for (std::string& text : *from) {
      if (std::find(to->begin(), to->end(), text) == to->end()) to->push_back(std::move(text));
    }
  }
  schedule.repeat += other.schedule.repeat;
  dropped += other.dropped, invalid += other.invalid;
  lost_records += other.lost_records, unproved += other.unproved;
  if (sm_mhz == 0 || (other.sm_mhz > 0 && other.sm_mhz < sm_mhz))
    sm_mhz = other.sm_mhz, sm_standard_mhz = other.sm_standard_mhz;
  working_set = std::max(working_set, other.working_set);
  overheads.axis_ns = std::max(overheads.axis_ns, other.overheads.axis_ns);
}

void Report::judge() {
  int64_t violations = 0, untimed = 0, launched = 0, kernels = 0, early = 0;
  std::vector<int64_t> replays(steps.size(), 0), replayed_nodes(steps.size(), 0);
  std::string first_violation;
  std::vector<int64_t> roots(steps.size(), 0);  // ns of the stepping thread's outermost scopes
  std::map<std::string, int64_t> crossing;
  auto violated = [&](std::string what) {
    if (violations++ == 0) first_violation = std::move(what);
  };
  for (Trace& trace : traces) {
    const std::vector<int64_t> self = self_times(trace);
    std::vector<int64_t> kernel(trace.records.size(), 0);
    std::vector<bool> fetches(trace.records.size(), false);  // in a data scope
    for (size_t i = 0; i < trace.records.size(); ++i) {
      const Record& r = trace.records[i];
      fetches[i] = r.kind == ScopeKind::data || (r.parent >= 0 && fetches[r.parent]);
    }
    for (LaunchRecord& launch : trace.launches) {
      if (launch.source == Source::host) kernel[launch.record] += launch.device_ns();
      if (!counts(trace, launch)) continue;
      StepSample& step = steps[step_index(launch.step)];
      const bool node = launch.graph_node > 0,
                 copies = launch.kind == LaunchKind::memcpy || launch.kind == LaunchKind::memset;
      if (launch.record < 0 || !fetches[launch.record]) {
        const int64_t kernels_here = launch.kind == LaunchKind::kernel ? launch.at_least() : 0;
        step.launches += kernels_here;
        if (launch.source != Source::none && launch.device_ns() > 0) step.timed += kernels_here;
        step.api_calls += !node;
        step.copies += copies;
      }
      unproved += launch.kind == LaunchKind::kernel && launch.launches == 0;
      replays[&step - steps.data()] += launch.kind == LaunchKind::graph;
      replayed_nodes[&step - steps.data()] += node;
      if (!node && launch.kind == LaunchKind::kernel && launch.record >= 0 &&
          counts_launches(trace.records[launch.record].kind))
        kernels += launch.at_least();
      if (device.type != Device::Type::cuda || launch.kind == LaunchKind::graph) continue;
      if (launch.source == Source::none) {
        ++untimed;
      } else {
        if (launch.device_ns() <= 0 || launch.dev_t0 == 0) ++invalid;
        if (launch.dev_t0 < launch.api_t0 && launch.api_t0 < launch.dev_t1)
          ++early, launch.dev_t0 = launch.api_t0;
        if (launch.source != Source::event || source == Source::host) source = launch.source;
      }
    }
    for (size_t i = 0; i < trace.records.size(); ++i) {
      const Record& r = trace.records[i];
      if (is_open(r))
        incomplete.push_back(cat(
            "a scope was still open at the end: ", escaped(r.name), ", begun in step ", r.step));
      const int64_t step = step_index(r.step);
      if (step < 0 || is_open(r)) continue;
      if (!counts(trace, r)) {
        ++crossing[escaped(r.name)];
        continue;
      }
      launched += r.n_launches;
      const Record* parent = r.parent >= 0 ? &trace.records[r.parent] : nullptr;
      if (self[i] < 0 || self[i] < kernel[i] || r.t1 < r.t0)
        violated(cat(escaped(r.name), " has self time ", self[i], " ns in step ", r.step));
      if (parent && (r.t0 < parent->t0 || (!is_open(*parent) && r.t1 > parent->t1)))
        violated(cat(escaped(r.name), " lies outside its parent"));
      if (trace.steps_here && (!parent || !counts(trace, *parent))) roots[step] += r.t1 - r.t0;
    }
  }
  for (size_t i = 0; i < steps.size(); ++i) {
    if (roots[i] > steps[i].ns())
      violated(cat(
          "scopes fill ", roots[i], " ns of the ", steps[i].ns(), " ns of step ", steps[i].number));
  }
  if (device.type == Device::Type::simt) source = Source::emul;
  if (device.type == Device::Type::cuda && source == Source::host) source = Source::none;
  for (size_t i = 0; i < steps.size(); ++i) {
    // A graph says by itself how many nodes it has; where it was timed, each must be there.
    if (replays[i] > 0 && replayed_nodes[i] % replays[i] != 0) untimed += replays[i];
    if (replays[i] > 0 && replayed_nodes[i] == 0) untimed += replays[i];
  }
  if (launched != kernels)
    incomplete.push_back(cat("launched ", launched, " in scopes, recorded ", kernels));
  if (untimed > 0) incomplete.push_back(cat(untimed, " launches were not timed"));
  if (invalid > 0) incomplete.push_back(cat(invalid, " device times are zero or negative"));
  if (early > 0)
    notes.push_back(
        cat(early, " launches began on the device before the host asked for them, by the axis"));
  for (const auto& [name, times] : crossing)
    notes.push_back(cat("open across step(), so left out: ", name, ", ", times, " times"));
  if (violations > 0)
    incomplete.push_back(
        cat("times do not add up, ", violations, " times; the first: ", first_violation));
}

}  // namespace sinter::profiler
