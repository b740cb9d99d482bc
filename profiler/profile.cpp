#include "profiler/profile.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace sinter::profiler {
namespace {

// The innermost op that was open when memory in use was highest.
std::string op_at_peak(const Report& report) {
  const MemorySample* peak = nullptr;
  const Trace* where = nullptr;
  for (const Trace& trace : report.traces) {
    for (const MemorySample& sample : trace.memory) {
      if (report.step_index(sample.step) >= 0 && (!peak || sample.live_bytes > peak->live_bytes))
        peak = &sample, where = &trace;
    }
  }
  std::string out;
  for (const Record& r :
      where ? where->records
            : std::vector<Record>{}) {  // later ones that hold the moment lie deeper
    if (r.kind == ScopeKind::op && r.t0 <= peak->t && peak->t <= r.t1) out = r.name.view();
  }
  return out;
}

std::vector<ProfileKernel> kernels_of(const Report& report) {
  std::map<std::tuple<std::string, LaunchKind, Source>, ProfileKernel> found;
  for (const Trace& trace : report.traces) {
    for (const LaunchRecord& l : trace.launches) {
      if (l.kernel.view().empty() || l.kind == LaunchKind::graph || report.step_index(l.step) < 0)
        continue;
      ProfileKernel& k = found[{std::string(l.kernel), l.kind, l.source}];
      k = {std::string(l.kernel), std::string(name_of(l.kind)), std::string(name_of(l.source)),
          k.launches + 1, k.ns + l.device_ns()};
    }
  }
  std::vector<ProfileKernel> out;
  for (auto& [key, kernel] : found) out.push_back(std::move(kernel));
  std::stable_sort(out.begin(), out.end(),
      [](const ProfileKernel& a, const ProfileKernel& b) { return a.ns > b.ns; });
  return out;
}

}  // namespace

Profile make_profile(const Report& report, const RunFacts& run) {
  Profile out{.title = report.title,
      .workload = run.workload,
      .command = run.command,
      .build = run.build,
      .seed = run.seed,
      .device = report.device.str(),
      .mode = report.mode,
      .rules = report.rules,
      .dtype = report.dtype,
      .source = std::string(name_of(report.source)),
      .source_why = report.source_why,
      .batch = run.batch,
      .threads = report.threads,
      .wait = report.schedule.wait,
      .warmup = report.schedule.warmup,
      .active = report.schedule.active,
      .repeat = report.schedule.repeat,
      .scope_ns = report.overheads.scope_ns,
      .event_ns = report.overheads.event_ns,
      .axis_ns = report.overheads.axis_ns,
      .dropped = report.dropped + report.lost_records,
      .invalid = report.invalid,
      .unproved = report.unproved,
      .sm_mhz = report.sm_mhz,
      .sm_standard_mhz = report.sm_standard_mhz,
      .clean_us = report.clean_us,
      .incomplete = report.incomplete,
      .notes = report.notes};
  const Ceiling ceiling = report.ceiling();
  if (ceiling.known())
    out.roofs = ProfileRoofs{report.roofs->key, ceiling.flops_per_ns * 1e9,
        ceiling.bytes_per_ns * 1e9, ceiling.floor_ns, ceiling.in_cache};
  const StepVerdict verdict = report.verdict();
  out.verdict = {std::string(name_of(verdict.code)), verdict.evidence, verdict.advice};
  if (const Timeline t = report.timeline(); t.known || t.estimated)
    out.idle = ProfileIdle{t.window_ns, t.busy_ns, t.data_ns, t.sync_ns, t.host_ns, t.gap_ns};
  out.memory_peak = report.peak_bytes();
  out.memory_peak_op = op_at_peak(report);
  const bool timed = report.device.type != Device::Type::simt;
  for (const StepSample& s : report.steps)
    out.steps.push_back(
        {s.number, s.round, timed ? s.ns() : 0, s.launches, s.api_calls, s.copies, s.allocs});
  for (Row& row : report.rows(false).rows) {
    const RowVerdict judged = row.kind == ScopeKind::op ? report.verdict(row) : RowVerdict{};
    ProfileRow r{.name = row.name,
        .shapes = row.shapes,
        .kind = std::string(name_of(row.kind)),
        .role = std::string(name_of(row.role)),
        .made_of = row.made_of,
        .verdict = judged.code == RowCode::unknown ? "" : std::string(name_of(judged.code)),
        .evidence = judged.evidence,
        .calls = row.calls,
        .launches = row.launches,
        .flops = row.cost.flops,
        .bytes_read = row.cost.bytes_read,
        .bytes_written = row.cost.bytes_written,
        .unproved = row.unproved};
    if (timed) {
      r.self_ns = row.self_ns, r.total_ns = row.total_ns, r.kernel_ns = row.kernel_ns,
      r.samples = std::move(row.samples);
      if (report.device != kCpu && row.kind == ScopeKind::op && row.untimed == 0)
        r.device_ns = row.device_ns;
    }
    const double judged_ns = report.judged_ns(row);
    if (ceiling.known() && timed && row.launches > 0 && judged_ns > 0) {
      r.pred_ns = report.predicted_ns(row);
      r.roof = std::max(
          ceiling.compute_share(row.cost, judged_ns), ceiling.memory_share(row.cost, judged_ns));
    }
    out.rows.push_back(std::move(r));
  }
  out.kernels = kernels_of(report);
  return out;
}

}  // namespace sinter::profiler
