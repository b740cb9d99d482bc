// Folded stacks: the text that flame graph tools read, and the flame view of the HTML page.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "core/error.h"
#include "profiler/trace.h"

namespace sinter::profiler {
namespace {

// A frame of the folded text: no separator, no line end, no control byte.
std::string frame(std::string_view name) {
  std::string out = escaped(name);
  std::replace(out.begin(), out.end(), ';', ',');
  return out;
}

}  // namespace

std::string folded_stacks(const Report& report) {
  const bool device = report.device != kCpu;
  std::map<std::string, int64_t> paths;
  for (const Trace& trace : report.traces) {
    const std::vector<int64_t> self = self_times(trace);
    const std::string root = trace.steps_here ? "step" : fmt::format("thread {}", trace.thread);
    std::vector<std::string> path(trace.records.size());
    std::vector<int64_t> own = self;  // less the kernels, which are frames of their own
    for (size_t i = 0; i < trace.records.size(); ++i) {
      const Record& r = trace.records[i];
      path[i] = (r.parent < 0 ? root : path[static_cast<size_t>(r.parent)]) + ";" + frame(r.name);
    }
    for (const LaunchRecord& l : trace.launches) {
      const bool scoped =
          l.record >= 0 && report.counts(trace, trace.records[static_cast<size_t>(l.record)]);
      if (!scoped && (l.record >= 0 || report.step_index(l.step) < 0)) continue;
      if (l.kind == LaunchKind::graph || l.device_ns() <= 0) continue;
      const GraphNode* node = report.node_of(l);
      std::string kernel = node ? frame(node->name) : "kernel";
      if (!l.kernel.view().empty()) kernel = frame(l.kernel);
      paths[(scoped ? path[static_cast<size_t>(l.record)] : root) + ";" + kernel] += l.device_ns();
      if (scoped) own[static_cast<size_t>(l.record)] -= l.device_ns();
    }
    if (device) continue;
    for (size_t i = 0; i < trace.records.size(); ++i) {
      if (report.counts(trace, trace.records[i]) && own[i] > 0) paths[path[i]] += own[i];
    }
    if (!trace.steps_here) continue;
    for (size_t i = 0; i < trace.records.size();
         ++i) {  // the rest of the step: what no scope holds
      const Record& r = trace.records[i];
      if (report.counts(trace, r) &&
          (r.parent < 0 || !report.counts(trace, trace.records[static_cast<size_t>(r.parent)])))
        paths[root] -= r.t1 - r.t0;
    }
  }
  for (const StepSample& s : report.steps) {
    if (!device) paths["step"] += s.ns();
  }
  std::string out;
  for (const auto& [path, ns] : paths) {
    if (ns > 0) out += fmt::format("{} {}\n", path, ns);
  }
  return out;
}

}  // namespace sinter::profiler
