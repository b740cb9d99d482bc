#include "profiler/verdict.h"

#include <fmt/format.h>

#include <map>

#include "profiler/profile.h"
#include "profiler/thresholds.h"

namespace sinter::profiler {
namespace {

double percent(double part, double whole) { return whole > 0 ? 100 * part / whole : 0; }

}  // namespace

RowVerdict row_verdict(const Row& row, const Measurement& run, const Ceiling& ceiling, bool busy) {
  const bool cpu = run.device == kCpu;
  const double busy_ns = cpu ? row.typical_kernel_ns : row.typical_ns,
               host_ns = cpu ? row.dispatch_ns() : double(row.self_ns), roof = row.roof.value_or(0);
  if (row.untimed > 0) return {RowCode::invalid, "a record of it is invalid"};
  if (run.device.type == Device::Type::simt)
    return {RowCode::emulated, "emulated time means nothing"};
  if (row.launches == 0) return {RowCode::meta, "it launches nothing"};
  if (busy_ns <= 0) return {RowCode::unknown, "its device time was not measured"};
  if (busy) return {RowCode::unknown, "the machine was busy"};
  const bool compute = ceiling.compute_is_nearer(row.cost);
  const std::string share =
      fmt::format("{:.0f} % of the {} roof", 100 * roof, compute ? "compute" : "memory");
  // What ranks send each other has no roof.
  const bool has_roofs = ceiling.known() && row.role != Role::comm;
  if (!run.replayed && busy_ns < host_ns) {
    return {RowCode::launch_bound,
        fmt::format("{:.1f} us of work for {:.1f} us of the host", busy_ns / 1e3, host_ns / 1e3)};
  }
  if (!has_roofs) return {RowCode::unknown, "no roofs"};
  if (roof >= kNearRoof) {
    return {compute ? RowCode::compute_bound : RowCode::memory_bound,
        share + (roof > kAboveRoof
                        ? ": the roof was measured too low, or the cost is counted too high"
                        : "")};
  }
  if (roof < kFarFromRoof) return {RowCode::latency_bound, share + ": too little work in flight"};
  return {RowCode::mixed, share};
}

StepVerdict step_verdict(const Profile& p) {
  if (!p.incomplete.empty()) return {StepCode::undecided, "the measurement is incomplete.", ""};
  if (p.device.type == Device::Type::simt)
    return {StepCode::undecided, "emulated time means nothing.", ""};
  if (const std::string why = p.busy(); !why.empty()) return {StepCode::undecided, why, ""};
  const bool cpu = p.device == kCpu;
  if (!cpu && !p.idle) return {StepCode::undecided, "the device's time was not measured.", ""};
  // Idle time that waits for data and for the host; on the CPU time in data scopes, and `Disp`.
  const Timeline idle = p.idle.value_or(Timeline{});
  double window_ns = double(idle.window_ns), data_ns = double(idle.data_ns),
         host_ns = double(idle.host_ns), self_ns = 0;
  if (cpu) window_ns = median(p.step_ns()) * double(p.steps.size());
  std::map<RowCode, double> class_ns;  // of self_ns
  for (const Row& row : p.rows) {
    if (cpu && row.kind == ScopeKind::data) data_ns += row.typical_total_ns;
    if (row.kind != ScopeKind::op) continue;
    if (cpu && row.launches > 0) host_ns += row.dispatch_ns();
    self_ns += row.typical_ns;
    class_ns[row.verdict.code] += row.typical_ns;
  }
  if (data_ns >= kInputShare * window_ns) {
    return {StepCode::input_bound,
        fmt::format("{:.0f} % of the window waits for data.", percent(data_ns, window_ns)),
        "make batches ahead, or larger"};
  }
  const auto most = [&](RowCode code) {
    return self_ns > 0 && class_ns[code] >= kClassShare * self_ns;
  };
  // What is fused already, or has nothing to fuse, is not told to.
  const bool can_fuse = p.mode != "fused" && !(p.candidates && p.candidates->empty());
  // On the CPU dispatch is a part of the step as kernels are: where most of it is at a roof, that
  // bounds it.
  const bool at_a_roof = cpu && (most(RowCode::compute_bound) || most(RowCode::memory_bound));
  if (host_ns >= kHostShare * window_ns && !at_a_roof) {
    return {StepCode::overhead_bound,
        cpu ? fmt::format("{:.0f} % of the step is dispatch.", percent(host_ns, window_ns))
            : fmt::format("host idle is {:.0f} % of the window: the host needs {:.0f}us to issue "
                          "{:.0f}us of work.",
                  percent(host_ns, window_ns), (host_ns + double(idle.busy_ns)) / 1e3,
                  double(idle.busy_ns) / 1e3),
        str(can_fuse ? "fuse, " : "", cpu || p.replayed ? "" : "replay as a graph, ",
            can_fuse || !(cpu || p.replayed) ? "or " : "", "raise the batch")};
  }
  if (!p.roofline) return {StepCode::undecided, "no roofs were measured.", "calibrate"};
  const auto at_roof = [&](StepCode code, RowCode of, const char* roof, const char* advice) {
    return StepVerdict{code,
        fmt::format("{:.0f} {} >= {:.0f} % of the {} roof.", percent(class_ns[of], self_ns),
            cpu ? "% of op time is in rows at" : "% of self time is at", 100 * kNearRoof, roof),
        advice};
  };
  if (most(RowCode::compute_bound))
    return at_roof(StepCode::compute_bound, RowCode::compute_bound, "GEMM", "");
  if (most(RowCode::memory_bound))
    return at_roof(StepCode::memory_bound, RowCode::memory_bound, "copy", can_fuse ? "fuse" : "");
  if (most(RowCode::latency_bound)) {
    return {StepCode::latency_bound,
        fmt::format("{:.0f} % of self time is far below both roofs.",
            percent(class_ns[RowCode::latency_bound], self_ns)),
        can_fuse ? "raise the batch, or fuse across layers" : "raise the batch"};
  }
  return {StepCode::mixed, "no class of rows has half of self time.", ""};
}

}  // namespace sinter::profiler
