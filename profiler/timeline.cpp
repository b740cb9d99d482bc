// Report::timeline(): where the window went on the device, and what its idle time waited for; and
// Report::typical_step(), one step's calls.
//
// An idle interval ends where a launch starts. Its part before that launch's API call is `data` or
// `sync` while the host was in such a scope, else `host`; its part inside the call is `host`; its
// part after it is `gap`. So the four and `busy` add up to the window exactly.
#include <algorithm>

#include "core/error.h"
#include "profiler/report.h"
#include "profiler/stats.h"

namespace sinter::profiler {
namespace {

struct Interval {
  int64_t begin, end;
};

// Sorted, disjoint.
std::vector<Interval> merged(std::vector<Interval> all) {
  std::ranges::sort(all, {}, &Interval::begin);
  std::vector<Interval> out;
  for (const Interval& i : all) {
    if (!out.empty() && i.begin <= out.back().end)
      out.back().end = std::max(out.back().end, i.end);
    else if (i.end > i.begin)
      out.push_back(i);
  }
  return out;
}

int64_t overlap(const std::vector<Interval>& sorted, int64_t begin, int64_t end) {
  int64_t sum = 0;
  for (auto it = std::ranges::upper_bound(sorted, begin, {}, &Interval::end);
       it != sorted.end() && it->begin < end; ++it)
    sum += std::min(end, it->end) - std::max(begin, it->begin);
  return sum;
}

struct Work {
  Interval device;
  int64_t api_t0, api_t1;
};

// All that the sweep over the windows looks at, in order of time.
struct Activity {
  std::vector<Interval> data, waits;  // of the stepping thread's scopes, disjoint; waits: of either
  std::vector<Work> work;
};

Activity activity_of(const Report& report) {
  Activity all;
  for (const Trace& trace : report.traces) {
    for (const Record& r : trace.records) {
      if (!trace.steps_here || r.t1 == Record::kOpen) continue;
      if (r.kind == ScopeKind::data) all.data.push_back({r.t0, r.t1});
      if (r.kind == ScopeKind::data || r.kind == ScopeKind::sync) all.waits.push_back({r.t0, r.t1});
    }
    for (const LaunchRecord& l : trace.launches) {
      if (report.step_index(l.step) >= 0 && l.device_ns() > 0)
        all.work.push_back({{l.dev_t0, l.dev_t1}, l.api_t0, l.api_t1});
    }
  }
  all.data = merged(std::move(all.data));
  all.waits = merged(std::move(all.waits));
  std::ranges::sort(all.work, {}, [](const Work& w) { return w.device.begin; });
  return all;
}

// Books an idle interval that ends where a launch of those API times starts.
void add_idle(Timeline& out, const Activity& all, Interval idle, int64_t api_t0, int64_t api_t1) {
  const int64_t before = std::clamp(api_t0, idle.begin, idle.end);
  const int64_t inside = std::clamp(api_t1, before, idle.end);
  const int64_t in_data = overlap(all.data, idle.begin, before);
  const int64_t in_sync = overlap(all.waits, idle.begin, before) - in_data;
  out.data_ns += in_data;
  out.sync_ns += in_sync;
  out.host_ns += (inside - idle.begin) - in_data - in_sync;
  out.gap_ns += idle.end - inside;
}

}  // namespace

StepCalls Report::typical_step() const {
  const double usual = median(step_ns());
  const auto far = [usual](const StepSample& s) { return std::abs(double(s.ns()) - usual); };
  const StepSample& step = *std::ranges::min_element(steps, {}, far);
  StepCalls calls{.step = step.number, .ns = step.ns(), .end = step.ns()};
  const auto add = [&](const std::string& lane, int depth, int64_t t0, int64_t t1,
                       std::string_view name, std::string_view kernel = "") {
    const auto found = std::ranges::find(calls.lanes, lane);
    const auto number = int(found - calls.lanes.begin());
    if (found == calls.lanes.end()) calls.lanes.push_back(lane);
    calls.slices.push_back(
        {number, depth, t0 - step.t0, t1 - t0, escaped(name), std::string(kernel)});
    calls.end = std::max(calls.end, t1 - step.t0);
  };
  for (const Trace& trace : traces) {
    const std::string thread = trace.steps_here ? "host" : str("thread ", trace.thread);
    std::vector<int> depths(trace.records.size(), -1);  // -1: it is none of this step
    for (size_t i = 0; i < depths.size(); ++i) {
      const Record& r = trace.records[i];
      if (int64_t(r.step) != step.number || !counts(trace, r)) continue;
      depths[i] = r.parent < 0 ? 0 : depths[r.parent] + 1;
      add(thread, depths[i], r.t0, r.t1, r.name.view());
    }
    for (const LaunchRecord& l : trace.launches) {
      if (device == kCpu || int64_t(l.step) != step.number || l.device_ns() <= 0) continue;
      const GraphNode* const node = node_of(l);
      add(l.stream == 0 ? "device" : str("device, stream ", l.stream), 0, l.dev_t0, l.dev_t1,
          node ? std::string_view(node->name) : l.kernel.view(), l.kernel);
    }
  }
  constexpr int64_t kParts = 4000;  // more than a screen has columns
  const auto is_short = [&](const StepCalls::Slice& s) { return s.ns < calls.end / kParts; };
  calls.left_out = int64_t(std::erase_if(calls.slices, is_short));
  return calls;
}

Timeline Report::timeline() const {
  Timeline out;
  out.known = device.type == Device::Type::cuda && source == Source::cupti;
  const Activity all = activity_of(*this);
  for (const std::span<const StepSample> steps_here : windows()) {
    const int64_t host_end = steps_here.back().t1;
    Interval window{steps_here.front().t0, host_end};
    for (const StepSample& step : steps_here)
      window.end += out.known ? step.drain_ns : 0;  // the host waits for what it has launched
    out.window_ns += window.end - window.begin;
    int64_t at = window.begin;
    for (const Work& w : all.work) {
      if (w.device.end <= window.begin || w.device.begin >= window.end) continue;
      const int64_t begin = std::clamp(w.device.begin, window.begin, window.end);
      const int64_t end = std::clamp(w.device.end, window.begin, window.end);
      if (begin > at) {
        add_idle(out, all, {at, begin}, w.api_t0, w.api_t1);
        at = begin;
      }
      if (end > at) {
        out.busy_ns += end - at;
        at = end;
      }
    }
    if (at < host_end) {
      add_idle(out, all, {at, host_end}, host_end, host_end);
      at = host_end;
    }
    if (at < window.end) out.sync_ns += window.end - at;  // the drain after the last kernel
  }
  return out;
}

}  // namespace sinter::profiler
