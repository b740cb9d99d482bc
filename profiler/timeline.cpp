// Report::timeline() and what else is judged by roofs: where the window went on the device, and
// what its idle time waited for.
//
// An idle interval ends where a launch starts. Its part before that launch's API call is `data` or
// `sync` while the host was in such a scope, else `host`; its part inside the call is `host`; its
// part after it is `gap`. So the four and `busy` add up to the window exactly.
#include <algorithm>
#include <map>

#include "profiler/report.h"
#include "profiler/stats.h"

namespace sinter::profiler {
namespace {

struct Interval {
  int64_t begin, end;
};

// Sorted, disjoint.
std::vector<Interval> merged(std::vector<Interval> all) {
  std::sort(all.begin(), all.end(),
      [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
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
  auto it = std::lower_bound(
      sorted.begin(), sorted.end(), begin, [](const Interval& i, int64_t t) { return i.end <= t; });
  for (; it != sorted.end() && it->begin < end; ++it)
    sum += std::min(end, it->end) - std::max(begin, it->begin);
  return sum;
}

struct Work {
  Interval device;
  int64_t api_t0, api_t1;
};

}  // namespace

Timeline Report::timeline() const {
  Timeline out;
  out.known = device.type == Device::Type::cuda && source == Source::cupti;
  if (source == Source::graph &&
      !clean_us
           .empty()) {  // the instrumented replays are no window: only their sum means something
    out.estimated = true;
    for (const Trace& trace : traces) {
      for (const LaunchRecord& l : trace.launches)
        out.busy_ns += step_index(l.step) >= 0 ? l.device_ns() : 0;
    }
    out.window_ns = std::max(out.busy_ns,
        static_cast<int64_t>(median(clean_us) * 1e3) * static_cast<int64_t>(steps.size()));
    out.host_ns = out.window_ns - out.busy_ns;
    return out;
  }
  struct Window {
    Interval host{};
    int64_t drain = 0;
  };
  std::map<int64_t, Window> windows;
  for (const StepSample& step : steps) {
    Window& w = windows.try_emplace(step.window, Window{{step.t0, step.t1}}).first->second;
    w.host.end = step.t1;
    w.drain += step.drain_ns;
  }
  std::vector<Interval> data, sync;
  std::vector<Work> work;
  for (const Trace& trace : traces) {
    for (size_t i = 0; i < trace.records.size(); ++i) {
      const Record& r = trace.records[i];
      const bool open = r.t1 == Record::kOpen;
      if (trace.steps_here && !open && r.kind == ScopeKind::data) data.push_back({r.t0, r.t1});
      if (trace.steps_here && !open && r.kind == ScopeKind::sync) sync.push_back({r.t0, r.t1});
    }
    for (const LaunchRecord& l : trace.launches) {
      if (step_index(l.step) >= 0 && l.device_ns() > 0)
        work.push_back({{l.dev_t0, l.dev_t1}, l.api_t0, l.api_t1});
    }
  }
  data = merged(std::move(data));
  sync = merged(std::move(sync));
  std::sort(work.begin(), work.end(),
      [](const Work& a, const Work& b) { return a.device.begin < b.device.begin; });
  for (const auto& [number, steps_here] : windows) {
    const int64_t host_end = steps_here.host.end;
    Interval window = steps_here.host;
    if (out.known) window.end += steps_here.drain;  // the wait of the host for what it has launched
    out.window_ns += window.end - window.begin;
    int64_t at = window.begin;
    const auto idle = [&](int64_t end, int64_t api_t0, int64_t api_t1) {
      const int64_t before = std::clamp(api_t0, at, end), inside = std::clamp(api_t1, before, end);
      const int64_t in_data = overlap(data, at, before);
      int64_t in_sync = 0;  // outside data scopes
      for (auto it = std::lower_bound(sync.begin(), sync.end(), at,
               [](const Interval& i, int64_t t) { return i.end <= t; });
           it != sync.end() && it->begin < before; ++it) {
        const int64_t a = std::max(at, it->begin), b = std::min(before, it->end);
        in_sync += b - a - overlap(data, a, b);
      }
      out.data_ns += in_data;
      out.sync_ns += in_sync;
      out.host_ns += (inside - at) - in_data - in_sync;
      out.gap_ns += end - inside;
      at = end;
    };
    for (const Work& w : work) {
      const int64_t begin = std::clamp(w.device.begin, window.begin, window.end),
                    end = std::clamp(w.device.end, window.begin, window.end);
      if (w.device.end <= window.begin || w.device.begin >= window.end) continue;
      if (begin > at) idle(begin, w.api_t0, w.api_t1);
      if (end > at) out.busy_ns += end - at, at = end;
    }
    if (at < host_end) idle(host_end, host_end, host_end);
    if (at < window.end) out.sync_ns += window.end - at;  // the drain after the last kernel
  }
  return out;
}

Ceiling Report::ceiling() const {
  if (!roofs || device.type == Device::Type::simt) return {};
  Ceiling c{.flops_per_ns =
                dtype == "bf16" && roofs->bf16_gflops > 0 ? roofs->bf16_gflops : roofs->f32_gflops};
  c.in_cache = working_set > 0 && working_set <= roofs->cache_bytes;
  c.bytes_per_ns = c.in_cache ? roofs->cache_gbs : roofs->dram_gbs;
  // Only the device's own records leave the gap behind a kernel out.
  c.floor_ns = device == kCpu
                   ? roofs->op_ns
                   : roofs->floor_ns + (source == Source::cupti ? 0 : roofs->node_gap_ns);
  return c;
}

double Report::predicted_ns(const Row& row) const {
  return row.launches == 0 ? 0 : ceiling().predicted_ns(row.launches, row.cost);
}

RowVerdict Report::verdict(const Row& row) const {
  const Ceiling c = ceiling();
  const bool cpu = device == kCpu;
  const double judged = judged_ns(row);
  return row_verdict({.invalid = row.untimed > 0,
      .emulated = device.type == Device::Type::simt,
      .replayed = replayed,
      .on_cpu = cpu,
      .busy = !busy().empty(),
      .launches = row.launches,
      .busy_ns = source == Source::event ? 0
                 : cpu                   ? row.typical_kernel_ns
                                         : row.typical_ns,
      .host_ns = cpu ? row.typical_ns - row.typical_kernel_ns : static_cast<double>(row.self_ns),
      .has_roofs = c.known(),
      .compute_share = c.compute_share(row.cost, judged),
      .memory_share = c.memory_share(row.cost, judged),
      .compute_is_nearer = c.compute_is_nearer(row.cost)});
}

StepVerdict Report::verdict() const {
  const bool cpu = device == kCpu;
  const Timeline t = timeline();
  StepFacts f{.incomplete = !incomplete.empty(),
      .emulated = device.type == Device::Type::simt,
      .upper_bounds = source == Source::event,
      .on_cpu = cpu,
      .busy = busy(),
      .has_roofs = ceiling().known(),
      .window_ns = static_cast<double>(t.window_ns),
      .data_ns = static_cast<double>(t.data_ns),
      .host_ns = static_cast<double>(t.host_ns),
      .busy_ns = static_cast<double>(t.busy_ns)};
  if (cpu) {
    f.data_ns = f.host_ns = f.busy_ns = 0;
    std::vector<double> ns;
    for (const StepSample& step : steps) ns.push_back(static_cast<double>(step.ns()));
    f.window_ns = median(ns) * static_cast<double>(steps.size());
  }
  for (const Row& row : rows().rows) {
    if (cpu && row.kind == ScopeKind::data) f.data_ns += row.typical_total_ns;
    if (row.kind != ScopeKind::op) continue;
    if (cpu && row.launches > 0) f.host_ns += row.typical_ns - row.typical_kernel_ns;
    const double self = judged_ns(row);
    f.self_ns += self;
    const RowCode code = verdict(row).code;
    (code == RowCode::compute_bound     ? f.compute_ns
        : code == RowCode::memory_bound ? f.memory_ns
                                        : f.latency_ns) += code == RowCode::compute_bound ||
                                                                   code == RowCode::memory_bound ||
                                                                   code == RowCode::latency_bound
                                                               ? self
                                                               : 0;
  }
  return step_verdict(f);
}

}  // namespace sinter::profiler
