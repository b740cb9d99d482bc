#include "profiler/verdict.h"

#include <fmt/format.h>

#include "profiler/thresholds.h"

namespace sinter::profiler {
namespace {

double percent(double part, double whole) { return whole > 0 ? 100 * part / whole : 0; }

}  // namespace

RowVerdict row_verdict(const RowFacts& f) {
  if (f.invalid) return {RowCode::invalid, "a record of it is invalid"};
  if (f.emulated) return {RowCode::emulated, "emulated time means nothing"};
  if (f.launches == 0) return {RowCode::meta, "it launches nothing"};
  if (f.busy_ns <= 0) return {RowCode::unknown, "its device time was not measured"};
  if (f.busy) return {RowCode::unknown, "the machine was busy"};
  const std::string share = fmt::format(
      "{:.0f} % of the {} roof", 100 * f.roof, f.compute_is_nearer ? "compute" : "memory");
  if (f.has_roofs && f.roof > kAboveRoof)
    return {RowCode::above_roof, share + ": mnist calibrate, or its cost is counted too high"};
  if (!f.replayed && f.busy_ns < f.host_ns) {
    return {RowCode::launch_bound, fmt::format("{:.1f} us of work for {:.1f} us of the host",
                                       f.busy_ns / 1e3, f.host_ns / 1e3)};
  }
  if (!f.has_roofs) return {RowCode::unknown, "no roofs"};
  if (f.roof >= kNearRoof)
    return {f.compute_is_nearer ? RowCode::compute_bound : RowCode::memory_bound, share};
  if (f.roof < kFarFromRoof) return {RowCode::latency_bound, share + ": too little work in flight"};
  return {RowCode::mixed, share};
}

StepVerdict step_verdict(const StepFacts& f) {
  if (f.incomplete) return {StepCode::undecided, "the measurement is incomplete.", ""};
  if (f.emulated) return {StepCode::undecided, "emulated time means nothing.", ""};
  if (!f.busy.empty()) return {StepCode::undecided, f.busy, ""};
  if (f.data_ns >= kInputShare * f.window_ns) {
    return {StepCode::input_bound,
        fmt::format("{:.0f} % of the window waits for data.", percent(f.data_ns, f.window_ns)),
        "make batches ahead, or larger"};
  }
  if (f.host_ns >= kHostShare * f.window_ns) {
    return {StepCode::overhead_bound,
        f.on_cpu
            ? fmt::format("{:.0f} % of the step is dispatch.", percent(f.host_ns, f.window_ns))
            : fmt::format("host idle is {:.0f} % of the window: the host needs {:.0f}us to issue "
                          "{:.0f}us of work.",
                  percent(f.host_ns, f.window_ns), (f.host_ns + f.busy_ns) / 1e3, f.busy_ns / 1e3),
        f.on_cpu ? "fuse, or raise the batch" : "fuse, replay as a graph, or raise the batch"};
  }
  if (!f.has_roofs) return {StepCode::undecided, "no roofs were measured.", "mnist calibrate"};
  const auto most = [&](double part) { return f.self_ns > 0 && part >= kClassShare * f.self_ns; };
  const std::string of = f.on_cpu ? "% of op time is in rows at" : "% of self time is at";
  const auto at_roof = [&](StepCode code, double part, const char* roof, const char* advice) {
    return StepVerdict{code,
        fmt::format("{:.0f} {} >= {:.0f} % of the {} roof.", percent(part, f.self_ns), of,
            100 * kNearRoof, roof),
        advice};
  };
  if (most(f.compute_ns)) return at_roof(StepCode::compute_bound, f.compute_ns, "GEMM", "");
  if (most(f.memory_ns)) return at_roof(StepCode::memory_bound, f.memory_ns, "copy", "fuse");
  if (most(f.latency_ns)) {
    return {StepCode::latency_bound,
        fmt::format(
            "{:.0f} % of self time is far below both roofs.", percent(f.latency_ns, f.self_ns)),
        "raise the batch, or fuse across layers"};
  }
  return {StepCode::mixed, "no class of rows has half of self time.", ""};
}

}  // namespace sinter::profiler
