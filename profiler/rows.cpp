// Report::rows(): calls gathered by what they are.
#include <map>
#include <tuple>

#include "profiler/report.h"
#include "profiler/stats.h"

namespace sinter::profiler {
namespace {

std::string label_of(std::string_view name, Role role) {
  std::string label(name);
  if (role == Role::wgrad || role == Role::dgrad || role == Role::bgrad)
    label.append("(").append(name_of(role)).append(")");
  return label;
}

// "MLP/Linear/": the outermost modules round a record.
std::string module_path(const Trace& trace, const Record& record, int depth) {
  std::vector<std::string_view> path;
  for (int32_t at = record.parent; at >= 0; at = trace.records[at].parent) {
    if (trace.records[at].kind == ScopeKind::module) path.push_back(trace.records[at].name);
  }
  std::string out;
  for (auto it = path.rbegin(); it != path.rend() && depth > 0; ++it, --depth)
    out.append(*it).append("/");
  return out;
}

// The median over the steps that have any, for as many steps.
double typical(const std::vector<int64_t>& samples) {
  std::vector<double> present;
  for (const int64_t ns : samples) {
    if (ns != 0) present.push_back(static_cast<double>(ns));
  }
  return present.empty() ? 0 : median(present) * static_cast<double>(present.size());
}

class Gatherer {
 public:
  Gatherer(const Report& report, bool by_shape, int by_module)
      : report_(report), by_shape_(by_shape), by_module_(by_module) {}

  void add(const Trace& trace) {
    const std::vector<int64_t> self = self_times(trace);
    std::vector<int64_t> kernel(trace.records.size(), 0), device(trace.records.size(), 0),
        untimed(trace.records.size(), 0), unproved(trace.records.size(), 0);
    for (const LaunchRecord& launch : trace.launches) {
      if (launch.graph_node == 0 && launch.kind != LaunchKind::graph && launch.record >= 0) {
        if (launch.source == Source::host) kernel[launch.record] += launch.device_ns();
        device[launch.record] += launch.device_ns();
        untimed[launch.record] += launch.source == Source::none;
        unproved[launch.record] += launch.launches == 0;
      }
    }
    row_of_.assign(trace.records.size(), -1);
    for (size_t i = 0; i < trace.records.size(); ++i) {
      const Record& r = trace.records[i];
      if (!report_.counts(trace, r)) continue;
      const int row_index = row_of_[i] = row_of(trace, r);
      Row& row = out_.rows[row_index];
      const int64_t step = report_.step_index(r.step), total = r.t1 - r.t0;
      ++row.calls;
      row.launches += r.n_launches;
      row.cost += r.info.cost;
      row.self_ns += self[i];
      row.kernel_ns += kernel[i];
      row.device_ns += device[i];
      row.untimed += untimed[i];
      row.unproved += unproved[i];
      row.samples[step] += report_.device == kCpu ? self[i] : device[i];
      steps_of_[row_index].kernel[step] += kernel[i];
      int32_t above = r.parent;
      while (above >= 0 && row_of_[above] != row_index) above = trace.records[above].parent;
      if (above < 0) {
        row.total_ns += total;
        steps_of_[row_index].total[step] += total;
      }
      for (int32_t at = static_cast<int32_t>(i); at >= 0 && device[i] != 0;
           at = trace.records[at].parent)
        add_device_total(trace, at, device[i]);
      if (r.parent >= 0 && row_of_[r.parent] >= 0 && row_of_[r.parent] != row_index)
        child_ns_[{row_of_[r.parent], row_index}] += total;
      if (r.kind == ScopeKind::op) {
        out_.calls.push_back({r.info.uid, r.info.forward_uid, r.info.graph_node, row_index, step,
            trace.steps_here, self[i], kernel[i], device[i]});
      }
    }
    for (const LaunchRecord& launch : trace.launches) {
      const bool in_op = launch.record >= 0 && trace.records[launch.record].kind == ScopeKind::op;
      if (report_.counts(trace, launch) && !in_op) add(launch);
    }
  }

  Rows finish() {
    for (size_t i = 0; i < out_.rows.size(); ++i) {
      Row& row = out_.rows[i];
      row.typical_ns = typical(row.samples);
      row.typical_total_ns = typical(steps_of_[i].total);
      row.typical_kernel_ns = typical(steps_of_[i].kernel);
    }
    for (const auto& [pair, ns] : child_ns_) {
      Row& row = out_.rows[pair.first];
      if (ns > row.heaviest_child_ns)
        row.heaviest_child_ns = ns, row.heaviest_child = out_.rows[pair.second].name;
    }
    return std::move(out_);
  }

 private:
  int index_of(ScopeKind kind, const std::string& label, uint32_t shape, Role role) {
    const auto [found, is_new] =
        index_.try_emplace({kind, label, shape}, static_cast<int>(out_.rows.size()));
    if (is_new) {
      out_.rows.push_back(
          {.name = label, .shapes = std::string(shape_text(shape)), .kind = kind, .role = role});
      const size_t steps = report_.steps.size();
      out_.rows.back().samples.resize(steps);
      steps_of_.push_back({std::vector<int64_t>(steps), std::vector<int64_t>(steps)});
    }
    return found->second;
  }
  int row_of(const Trace& trace, const Record& r) {
    std::string label = label_of(r.name, r.info.role);
    if (by_module_ > 0 && r.kind == ScopeKind::op)
      label = module_path(trace, r, by_module_) + label;
    return index_of(r.kind, label, by_shape_ ? r.info.shape_key : 0, r.info.role);
  }
  // A row inside itself counts once: a record adds to the total of its own row, and not again to
  // one above of the same row.
  void add_device_total(const Trace& trace, int32_t at, int64_t ns) {
    const int row = row_of_[at];
    if (row < 0) return;
    for (int32_t above = trace.records[at].parent; above >= 0;
         above = trace.records[above].parent) {
      if (row_of_[above] == row) return;
    }
    out_.rows[row].device_total_ns += ns;
  }
  // Nodes of a replayed graph are op rows of their own; copies and fills outside ops, whose time
  // they would be, are rows too.
  void add(const LaunchRecord& launch) {
    const int64_t step = report_.step_index(launch.step);
    if (launch.graph_node > 0) {
      const bool known = launch.graph_node <= report_.nodes.size();
      const GraphNode node = known ? report_.nodes[launch.graph_node - 1]
                                   : GraphNode{.name = "node " + std::to_string(launch.graph_node)};
      Row& row = out_.rows[index_of(ScopeKind::op, label_of(node.name, node.role), 0, node.role)];
      ++row.calls, ++row.launches;
      row.cost += node.cost;
      row.made_of = node.made_of;
      row.untimed += launch.source == Source::none;
      row.device_ns += launch.device_ns(), row.device_total_ns += launch.device_ns();
      row.samples[step] += launch.device_ns();
      out_.calls.push_back({0, 0, launch.graph_node, static_cast<int>(&row - out_.rows.data()),
          step, true, 0, 0, launch.device_ns()});
    } else if (launch.kind == LaunchKind::memcpy || launch.kind == LaunchKind::memset) {
      Row& row =
          out_.rows[index_of(ScopeKind::runtime, std::string(name_of(launch.kind)), 0, Role::none)];
      ++row.calls;
      row.cost += Cost{.bytes_read = launch.kind == LaunchKind::memcpy ? launch.bytes : 0,
          .bytes_written = launch.bytes};
      row.self_ns += launch.api_t1 - launch.api_t0, row.total_ns += launch.api_t1 - launch.api_t0;
      row.device_ns += launch.device_ns(), row.device_total_ns += launch.device_ns();
      row.samples[step] +=
          report_.device == kCpu ? launch.api_t1 - launch.api_t0 : launch.device_ns();
    }
  }

  struct Steps {
    std::vector<int64_t> total, kernel;  // ns
  };

  const Report& report_;
  const bool by_shape_;
  const int by_module_;
  Rows out_;
  std::vector<Steps> steps_of_;  // the rows
  std::vector<int> row_of_;      // of the trace at hand
  std::map<std::tuple<ScopeKind, std::string, uint32_t>, int> index_;
  std::map<std::pair<int, int>, int64_t> child_ns_;  // (row, row of the child)
};

}  // namespace

Rows Report::rows(bool by_shape, int by_module) const {
  Gatherer gatherer(*this, by_shape, by_module);
  for (const Trace& trace : traces) gatherer.add(trace);
  return gatherer.finish();
}

}  // namespace sinter::profiler
