#include "profiler/report.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "core/error.h"

namespace sinter::profiler {
namespace {

bool is_open(const Record& record) { return record.t1 == Record::kOpen; }

void add_missing(std::vector<std::string>& to, const std::vector<std::string>& from) {
  for (const std::string& text : from) {
    if (std::find(to.begin(), to.end(), text) == to.end()) to.push_back(text);
  }
}

// Report::evaluate(): one pass over the records. What a step launched is counted into the step;
// what was lost, and what cannot be true, is said.
class Evaluation {
 public:
  explicit Evaluation(Report& report)
      : report_(report),
        replays_(report.steps.size()),
        nodes_(report.steps.size()),
        roots_ns_(report.steps.size()) {}

  void run() {
    for (Trace& trace : report_.traces) {
      look_at_launches(trace);
      look_at_records(trace);
      count_own_cost(trace);
    }
    for (size_t i = 0; i < report_.steps.size(); ++i) {
      const StepSample& step = report_.steps[i];
      if (roots_ns_[i] > step.ns())
        violated(str(
            "scopes fill ", roots_ns_[i], " ns of the ", step.ns(), " ns of step ", step.number));
      // A graph says by itself how many nodes it has; where it was timed, each must be there.
      const int64_t replays = replays_[i];
      if (replays > 0 && (nodes_[i] == 0 || nodes_[i] % replays != 0)) untimed_ += replays;
    }
    const Device::Type type = report_.device.type;
    if (type == Device::Type::simt) report_.source = Source::emul;
    if (type == Device::Type::cuda && report_.source == Source::host) report_.source = Source::none;
    tell();
  }

 private:
  void look_at_launches(Trace& trace) {
    std::vector<bool> fetches(trace.records.size(), false);  // in a data scope, or by such an op
    for (size_t i = 0; i < fetches.size(); ++i) {
      const Record& r = trace.records[i];
      fetches[i] = r.kind == ScopeKind::data || r.info.role == Role::data ||
                   (r.parent >= 0 && fetches[r.parent]);
    }
    for (LaunchRecord& launch : trace.launches) {
      if (!report_.counts(trace, launch)) continue;
      count(launch, launch.record >= 0 && fetches[launch.record]);
      if (report_.device.type == Device::Type::cuda && launch.kind != LaunchKind::graph)
        check_device_time(launch);
    }
  }

  void count(const LaunchRecord& launch, bool fetches) {
    const int64_t index = report_.step_index(launch.step);
    StepSample& step = report_.steps[index];
    const bool is_kernel = launch.kind == LaunchKind::kernel, is_node = launch.graph_node > 0;
    const int64_t kernels = is_kernel ? launch.at_least() : 0;
    if (!fetches) {
      step.launches += kernels;
      if (launch.source != Source::none && launch.device_ns() > 0) step.timed += kernels;
      step.api_calls += !is_node;
      step.copies += launch.kind == LaunchKind::memcpy || launch.kind == LaunchKind::memset;
    }
    report_.unproved += is_kernel && launch.launches == 0;
    replays_[index] += launch.kind == LaunchKind::graph;
    report_.replayed = report_.replayed || launch.kind == LaunchKind::graph;
    nodes_[index] += is_node;
  }

  void check_device_time(LaunchRecord& launch) {
    if (launch.source == Source::none) {
      ++untimed_;
      return;
    }
    if (launch.device_ns() <= 0 || launch.dev_t0 == 0) ++report_.invalid;
    if (launch.dev_t0 < launch.api_t0 && launch.api_t0 < launch.dev_t1) {
      ++early_;
      launch.dev_t0 = launch.api_t0;
    }
    report_.source = launch.source;
  }

  // What recording took of the steps beside describing: two readings of the clock for a scope or a
  // kernel's span, one for a memory sample, and two events for a launch on a card.
  void count_own_cost(const Trace& trace) {
    if (!trace.steps_here) return;
    const Overheads& cost = report_.overheads;
    const auto add = [this](uint32_t step, double ns) {
      const int64_t index = report_.step_index(step);
      if (index >= 0) report_.steps[index].profiler_ns += std::llround(ns);
    };
    for (const Record& r : trace.records) add(r.step, cost.scope_ns + double(r.describe_ns));
    for (const LaunchRecord& l : trace.launches) {
      if (l.graph_node == 0) add(l.step, l.source == Source::host ? cost.scope_ns : cost.event_ns);
    }
    for (const MemorySample& sample : trace.memory)
      add(sample.step, sample.planned ? 0 : cost.scope_ns / 2);
  }

  void look_at_records(const Trace& trace) {
    const std::vector<int64_t> self = self_times(trace);
    std::vector<int64_t> kernel(trace.records.size(), 0);
    for (const LaunchRecord& launch : trace.launches) {
      if (launch.source == Source::host) kernel[launch.record] += launch.device_ns();
    }
    for (size_t i = 0; i < trace.records.size(); ++i) {
      const Record& r = trace.records[i];
      if (is_open(r))
        report_.incomplete.push_back(str(
            "a scope was still open at the end: ", escaped(r.name), ", begun in step ", r.step));
      const int64_t step = report_.step_index(r.step);
      if (step < 0 || is_open(r)) continue;
      if (!report_.counts(trace, r)) {
        ++crossing_[escaped(r.name)];
        continue;
      }
      if (self[i] < 0 || self[i] < kernel[i] || r.t1 < r.t0)
        violated(str(escaped(r.name), " has self time ", self[i], " ns in step ", r.step));
      const bool is_root = r.parent < 0 || !report_.counts(trace, trace.records[r.parent]);
      if (trace.steps_here && is_root) roots_ns_[step] += r.t1 - r.t0;
    }
  }

  void violated(const std::string& what) {
    if (violations_++ == 0) first_violation_ = what;
  }

  void tell() {
    std::vector<std::string>&incomplete = report_.incomplete, &notes = report_.notes;
    if (untimed_ > 0) incomplete.push_back(str(untimed_, " launches were not timed"));
    if (report_.invalid > 0)
      incomplete.push_back(str(report_.invalid, " device times are zero or negative"));
    if (early_ > 0)
      notes.push_back(
          str(early_, " launches began on the device before the host asked for them, by the axis"));
    for (const auto& [name, times] : crossing_)
      notes.push_back(str("open across step(), so left out: ", name, ", ", times, " times"));
    if (violations_ > 0)
      incomplete.push_back(
          str("times do not add up, ", violations_, " times; the first: ", first_violation_));
  }

  Report& report_;
  std::vector<int64_t> replays_, nodes_;  // of each step: graph launches, and nodes of graphs
  std::vector<int64_t> roots_ns_;         // of each step: the stepping thread's outermost scopes
  int64_t untimed_ = 0, early_ = 0, violations_ = 0;
  std::string first_violation_;
  std::map<std::string, int64_t> crossing_;
};

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

bool Report::counts(const Trace& trace, const Record& record) const {
  const int64_t step = step_index(record.step);
  return step >= 0 && !is_open(record) && !(trace.steps_here && record.t1 > steps[step].t1);
}

MemoryPeak Report::memory_peak() const {
  MemoryPeak out;
  const Trace* where = nullptr;
  int64_t when = 0;
  for (const Trace& trace : traces) {
    for (const MemorySample& sample : trace.memory) {
      if (step_index(sample.step) < 0 || sample.live_bytes <= out.bytes) continue;
      out.bytes = sample.live_bytes;
      where = &trace;
      when = sample.t;
    }
  }
  if (!where) return out;
  for (const Record& r : where->records) {  // later ones that hold the moment lie deeper
    if (r.kind == ScopeKind::op && r.t0 <= when && when <= r.t1) out.op = r.name.view();
  }
  return out;
}

const GraphNode* Report::node_of(const LaunchRecord& launch) const {
  const bool known = launch.graph_node > 0 && launch.graph_node <= nodes.size();
  return known ? &nodes[launch.graph_node - 1] : nullptr;
}

void Report::append(Report other) {
  if (steps.empty()) {
    *this = std::move(other);
    return;
  }
  // The other's steps, rounds and windows are numbered behind ours.
  const int64_t shift = steps.back().number + 1 - other.steps.front().number;
  const int64_t round = steps.back().round + 1;
  const int64_t window = steps.back().window + 1;
  constexpr uint32_t kNoStep = UINT32_MAX;
  const auto renumber = [&](auto& list) {
    for (auto& item : list) {
      const bool active = other.step_index(item.step) >= 0;
      item.step = active ? uint32_t(item.step + shift) : kNoStep;
    }
  };
  for (Trace& trace : other.traces) {
    renumber(trace.records);
    renumber(trace.launches);
    renumber(trace.memory);
    traces.push_back(std::move(trace));
  }
  for (StepSample& step : other.steps) {
    step.number += shift;
    step.round += round;
    step.window += window;
    steps.push_back(step);
  }
  add_missing(incomplete, other.incomplete);
  add_missing(notes, other.notes);
  schedule.repeat += other.schedule.repeat;
  dropped += other.dropped;
  invalid += other.invalid;
  unproved += other.unproved;
  if (sm_mhz == 0 || (other.sm_mhz > 0 && other.sm_mhz < sm_mhz)) {
    sm_mhz = other.sm_mhz;
    sm_standard_mhz = other.sm_standard_mhz;
  }
  working_set = std::max(working_set, other.working_set);
  overheads.axis_ns = std::max(overheads.axis_ns, other.overheads.axis_ns);
}

void Report::evaluate() { Evaluation(*this).run(); }

void Report::name_nodes(std::vector<GraphNode> names) {
  nodes = std::move(names);
  for (const Trace& trace : traces) {
    for (const LaunchRecord& launch : trace.launches) {
      const GraphNode* node = node_of(launch);
      if (!node || node->role != Role::data || !counts(trace, launch)) continue;
      StepSample& step = steps[step_index(launch.step)];
      --step.launches;
      step.timed -= launch.source != Source::none && launch.device_ns() > 0;
    }
  }
}

}  // namespace sinter::profiler
