// The Chrome trace of a Report, in the keys that PyTorch's profiler (Kineto) writes, so that its
// readers and viewers take ours; keys of our own begin with x_. One lane per thread of the host
// (pid 1) and per stream of the device (pid 0; of rank r 2r + 1 and 2r), counters, and flows:
// `ac2g` from an API call to its kernel, `fwdbwd` from an op to those of its backward pass. A
// kernel on `cpu` is the host's own work: it stands in x_kernel_ns.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "profiler/report.h"

namespace sinter::profiler {

struct TraceOptions {
  // Of one of several processes: its pids and ids are its own, and times begin at `base`, as ns of
  // the machine's clock, on all of them (0: at the first step).
  int rank = 0, ranks = 1;
  int64_t base = 0;
};

// All active steps. Several reports, as of eager and fused steps, stand one below the other on the
// one clock of their sessions.
std::string chrome_trace(std::span<const Report> reports, const TraceOptions& options = {});

// One trace of those of all ranks, which have steps: a process lane each.
std::string joined_traces(const std::vector<std::string>& traces);

// The text of a trace as BASE.trace.json.gz.
inline constexpr const char* kTraceEnding = ".trace.json.gz";
void write_trace(const std::string& base, const std::string& text);

// "step;module;op;kernel ns": self time of each path of scopes, summed over the active steps: on
// the device where the report has device times, else on the host.
std::string folded_stacks(const Report& report);

}  // namespace sinter::profiler
