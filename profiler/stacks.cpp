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

// A frame for each part of a path of modules.
void enter(std::string& path, std::string_view modules) {
  for (const std::string& part : module_frames(modules)) path += ";" + frame(part);
}

class Stacks {
 public:
  explicit Stacks(const Report& report) : report_(report), on_device_(report.device != kCpu) {}

  void add(const Trace& trace) {
    const std::string root = trace.steps_here ? "step" : fmt::format("thread {}", trace.thread);
    std::vector<std::string> path(trace.records.size());
    std::vector<bool> in_module(path.size(), false);
    for (size_t i = 0; i < path.size(); ++i) {
      const Record& r = trace.records[i];
      path[i] = r.parent < 0 ? root : path[r.parent];
      in_module[i] = r.parent >= 0 && in_module[r.parent];
      // No scope of a module is open round its backward pass, nor round what is replayed.
      if (r.kind == ScopeKind::op && !in_module[i]) enter(path[i], r.info.module);
      in_module[i] = in_module[i] || r.kind == ScopeKind::op || r.kind == ScopeKind::module;
      if (r.kind == ScopeKind::module) {
        enter(path[i], r.name);
      } else {
        path[i] += ";" + frame(r.name);
      }
    }
    std::vector<int64_t> own = self_times(trace);
    for (const LaunchRecord& l : trace.launches) {
      if (!report_.counts(trace, l) || l.kind == LaunchKind::graph || l.device_ns() <= 0) continue;
      std::string where = l.record >= 0 ? path[l.record] : root;
      if (const GraphNode* node = report_.node_of(l)) {
        if (!node->phase.empty()) where += ";" + frame(node->phase);
        enter(where, node->module);
        if (!l.kernel.view().empty()) where += ";" + frame(node->name);
      }
      ns_[where + ";" + kernel_of(l)] += l.device_ns();
      if (l.record >= 0) own[l.record] -= l.device_ns();  // the kernel is a frame of its own
    }
    if (on_device_) return;
    for (size_t i = 0; i < path.size(); ++i) {
      const Record& r = trace.records[i];
      if (!report_.counts(trace, r)) continue;
      if (own[i] > 0) ns_[path[i]] += own[i];
      // What no scope holds is the rest of the step.
      const bool outermost = r.parent < 0 || !report_.counts(trace, trace.records[r.parent]);
      if (trace.steps_here && outermost) ns_[root] -= r.t1 - r.t0;
    }
  }

  std::string text() {
    for (const StepSample& s : report_.steps) {
      if (!on_device_) ns_["step"] += s.ns();
    }
    std::string out;
    for (const auto& [path, ns] : ns_) {
      if (ns > 0) out += fmt::format("{} {}\n", path, ns);
    }
    return out;
  }

 private:
  std::string kernel_of(const LaunchRecord& launch) const {
    if (!launch.kernel.view().empty()) return frame(launch.kernel);
    const GraphNode* node = report_.node_of(launch);
    return node ? frame(node->name) : "kernel";
  }

  const Report& report_;
  const bool on_device_;
  std::map<std::string, int64_t> ns_;
};

}  // namespace

std::string folded_stacks(const Report& report) {
  Stacks stacks(report);
  for (const Trace& trace : report.traces) stacks.add(trace);
  return stacks.text();
}

}  // namespace sinter::profiler
