// Report::rows(): calls gathered by what they are.
#include <map>
#include <set>
#include <tuple>

#include "core/numbers.h"
#include "profiler/report.h"
#include "profiler/stats.h"

namespace sinter::profiler {

std::string label_of(std::string_view name, Role role) {
  std::string label(name);
  if (role == Role::wgrad || role == Role::dgrad || role == Role::bgrad)
    label.append("(").append(name_of(role)).append(")");
  return label;
}
namespace {

ScopeKind kind_of(ScopeKind kind, Role role) { return role == Role::data ? ScopeKind::data : kind; }

// "MLP/layers.0/linear"
std::string with_modules(std::string_view modules, int depth, const std::string& label) {
  const std::string path = join(module_frames(modules, size_t(depth)), "/");
  return path.empty() ? label : path + "/" + label;
}

// Note [From records to rows]
//   A trace is three lists: records (scopes, each with the one around it, which stands before it),
//   launches (each with the record that made it, if any) and memory samples. Of a step on a card:
//
//     records    0  MLP         |-----------------------|     module
//                1    linear      |----------|                op, parent 0
//                2      linear        |-----|                 op, parent 1: the same row
//     launches   by 2                   |=|.....[====]        its call by the host, its kernel
//                by 0                          |=|..[===]     a copy: no op is around it
//
//   First own_of(): of each record what is its alone, time less that of what it holds, launches and
//   their device time. Then each record in order: it finds or makes its row, and adds a call, its
//   own to self, and all of it to total, unless a record of the same row is around it, as 1 is
//   around 2. Device time is added likewise to the row of each record above. Last the launches: one
//   by an op names a kernel of that op's row; the nodes of a replayed graph, which no record made,
//   and copies by no op have rows of their own.
class Gatherer {
 public:
  Gatherer(const Report& report, bool by_shape, int by_module)
      : report_(report),
        by_shape_(by_shape),
        by_module_(by_module),
        memory_(memory_of_records(report)) {}

  void add(const Trace& trace) {
    const std::vector<Own> own = own_of(trace);
    row_of_.assign(trace.records.size(), -1);
    for (size_t i = 0; i < trace.records.size(); ++i) {
      if (report_.counts(trace, trace.records[i])) add(trace, int32_t(i), own[i]);
    }
    for (const MemorySample& sample : trace.memory) {
      if (report_.counts(trace, sample))
        (sample.planned ? out_.arena : out_.memory) += sample.planned.value_or(use_of(sample));
    }
    for (const LaunchRecord& launch : trace.launches) {
      const bool in_op = launch.record >= 0 && trace.records[launch.record].kind == ScopeKind::op;
      if (!report_.counts(trace, launch)) continue;
      if (in_op) {
        if (launch.kind == LaunchKind::kernel)
          report_.add_launch(out_.rows[row_of_[launch.record]].kernels, launch);
      } else if (launch.graph_node > 0) {
        add_node(launch);
        add_device_total(trace, launch.record, launch.device_ns(), report_.step_index(launch.step));
      } else if (launch.kind == LaunchKind::memcpy || launch.kind == LaunchKind::memset) {
        add_copy(launch);
      }
    }
  }

  Rows finish() {
    const Ceiling ceiling = report_.ceiling();
    const bool busy = !report_.busy().empty();
    for (size_t i = 0; i < out_.rows.size(); ++i) {
      Row& row = out_.rows[i];
      sort_kernels(row.kernels);
      row.typical_ns = typical(row.samples);
      row.typical_total_ns = typical(steps_of_[i].total);
      row.typical_kernel_ns = typical(steps_of_[i].kernel);
      row.on_device = report_.device.type == Device::Type::cuda && row.kind == ScopeKind::op &&
                      row.untimed == 0;
      // What ranks send each other takes the network's time, of which no roof says anything.
      if (ceiling.known() && row.launches > 0 && row.role != Role::comm) {
        row.pred_ns = ceiling.predicted_ns(row.launches, row.cost);
        if (row.typical_ns > 0 && row.untimed == 0 && row.cost != Cost{})
          row.roof = ceiling.share(row.cost, row.typical_ns);
      }
      if (row.kind == ScopeKind::op) row.verdict = row_verdict(row, report_, ceiling, busy);
    }
    for (const auto& [pair, ns] : child_ns_) {
      Row& row = out_.rows[pair.first];
      if (ns <= row.heaviest_child_ns) continue;
      row.heaviest_child_ns = ns;
      row.heaviest_child = out_.rows[pair.second].name;
    }
    return std::move(out_);
  }

 private:
  // What belongs to one record alone.
  struct Own {
    int64_t self_ns = 0, kernel_ns = 0, device_ns = 0, launches = 0, untimed = 0, unproved = 0;
  };
  struct Steps {
    std::vector<int64_t> total, kernel;  // ns; total: of the device, on cpu of the host
  };

  static std::vector<Own> own_of(const Trace& trace) {
    std::vector<Own> own(trace.records.size());
    const std::vector<int64_t> self = self_times(trace);
    for (size_t i = 0; i < own.size(); ++i) own[i].self_ns = self[i];
    for (const LaunchRecord& launch : trace.launches) {
      if (launch.graph_node > 0 || launch.kind == LaunchKind::graph || launch.record < 0) continue;
      Own& of = own[launch.record];
      const bool is_kernel = launch.kind == LaunchKind::kernel;
      if (is_kernel && counts_launches(trace.records[launch.record].kind))
        of.launches += launch.at_least();
      if (launch.source == Source::host) of.kernel_ns += launch.device_ns();
      of.device_ns += launch.device_ns();
      of.untimed += launch.source == Source::none;
      of.unproved += launch.launches == 0;
    }
    return own;
  }

  // A call of a row, for itself.
  void add_call(
      int index, int64_t step, const Own& own, const Cost& cost, const MemoryUse& memory) {
    Row& row = out_.rows[index];
    ++row.calls;
    row.launches += own.launches;
    row.cost += cost;
    row.memory += memory;
    row.self_ns += own.self_ns;
    row.kernel_ns += own.kernel_ns;
    row.device_ns += own.device_ns;
    row.untimed += own.untimed;
    row.unproved += own.unproved;
    row.samples[step] += report_.device == kCpu ? own.self_ns : own.device_ns;
    steps_of_[index].kernel[step] += own.kernel_ns;
  }
  void add_host_total(int index, int64_t step, int64_t ns) {
    out_.rows[index].total_ns += ns;
    if (report_.device == kCpu) steps_of_[index].total[step] += ns;
  }

  void add(const Trace& trace, int32_t i, const Own& own) {
    const Record& r = trace.records[i];
    const int index = row_of_[i] = row_of(r);
    const int64_t step = report_.step_index(r.step), total = r.t1 - r.t0;
    add_call(index, step, own, r.info.cost, memory_[&trace - report_.traces.data()][i]);
    if (!inside_own_row(trace, i)) add_host_total(index, step, total);
    add_device_total(trace, i, own.device_ns, step);
    const int above = r.parent >= 0 ? row_of_[r.parent] : -1;
    if (above >= 0 && above != index) child_ns_[{above, index}] += total;
    if (Row& row = out_.rows[index]; row.kind == ScopeKind::op) {
      if (row.calls == 1) row.made_of = made_of(r.name);
      out_.calls.push_back({0, index, step, own.self_ns, own.device_ns});
      if (trace.steps_here) out_.ops_ns += own.self_ns;
    }
  }

  // A record adds to the total of its own row, and not again to one above of the same row.
  void add_device_total(const Trace& trace, int32_t at, int64_t ns, int64_t step) {
    for (; at >= 0 && ns != 0; at = trace.records[at].parent) {
      if (row_of_[at] >= 0 && !inside_own_row(trace, at)) add_device_total(row_of_[at], ns, step);
    }
  }
  void add_device_total(int row, int64_t ns, int64_t step) {
    out_.rows[row].device_total_ns += ns;
    if (report_.device != kCpu) steps_of_[row].total[step] += ns;
  }

  // Does a record of the same row hold this one?
  bool inside_own_row(const Trace& trace, int32_t i) const {
    int32_t above = trace.records[i].parent;
    while (above >= 0 && row_of_[above] != row_of_[i]) above = trace.records[above].parent;
    return above >= 0;
  }

  int index_of(ScopeKind kind, const std::string& label, std::string_view shapes, Role role) {
    const auto [found, is_new] = index_.try_emplace({kind, label, shapes}, int(out_.rows.size()));
    if (is_new) {
      out_.rows.push_back(
          {.name = label, .shapes = std::string(shapes), .kind = kind, .role = role});
      const size_t steps = report_.steps.size();
      out_.rows.back().samples.resize(steps);
      steps_of_.push_back({std::vector<int64_t>(steps), std::vector<int64_t>(steps)});
    }
    return found->second;
  }
  int row_of(const Record& r) {
    return index_of(kind_of(r.kind, r.info.role),
        with_modules(r.info.module, by_module_, label_of(r.name, r.info.role)),
        by_shape_ ? r.info.shapes : StaticName(), r.info.role);
  }

  // Nodes of a replayed graph are op rows of their own.
  void add_node(const LaunchRecord& launch) {
    const GraphNode* known = report_.node_of(launch);
    const GraphNode node =
        known ? *known : GraphNode{.name = "node " + std::to_string(launch.graph_node)};
    const int index = index_of(kind_of(ScopeKind::op, node.role),
        with_modules(node.module, by_module_, label_of(node.name, node.role)), "", node.role);
    const int64_t step = report_.step_index(launch.step);
    const Own own{.device_ns = launch.device_ns(),
        .launches = launch.at_least(),
        .untimed = launch.source == Source::none};
    add_call(index, step, own, node.cost, node.memory);
    add_device_total(index, own.device_ns, step);
    out_.arena += node.memory;
    Row& row = out_.rows[index];
    row.made_of = node.made_of;
    report_.add_launch(row.kernels, launch);
    out_.calls.push_back({launch.graph_node, index, step, 0, launch.device_ns()});
    add_phase(node.phase, launch);
  }

  // The host launches a graph at once: its phases are spans of the device's time alone.
  void add_phase(const std::string& phase, const LaunchRecord& launch) {
    const bool goes_on = phase == phase_ && launch.graph_node > 1;
    phase_ = phase;
    if (phase.empty()) return;
    const int index = index_of(ScopeKind::annotation, phase, "", Role::none);
    out_.rows[index].calls += !goes_on;
    add_device_total(index, launch.device_ns(), report_.step_index(launch.step));
  }

  // What an op of this name that the host launches stands for, of all nodes that have it.
  std::string made_of(std::string_view op) const {
    std::set<std::string> parts;
    for (const GraphNode& node : report_.nodes) {
      if (node.name == op && !node.made_of.empty()) parts.insert(node.made_of);
    }
    return join(parts, ", ");
  }

  // Copies and fills outside ops, whose time they would be, are rows too.
  void add_copy(const LaunchRecord& launch) {
    const int index =
        index_of(ScopeKind::runtime, std::string(name_of(launch.kind)), "", Role::none);
    const int64_t step = report_.step_index(launch.step);
    const Own own{.self_ns = launch.api_t1 - launch.api_t0, .device_ns = launch.device_ns()};
    const int64_t read = launch.kind == LaunchKind::memcpy ? launch.bytes : 0;
    add_call(index, step, own, {.bytes_read = read, .bytes_written = launch.bytes}, {});
    add_host_total(index, step, own.self_ns);
    add_device_total(index, own.device_ns, step);
  }

  const Report& report_;
  const bool by_shape_;
  const int by_module_;
  const std::vector<std::vector<MemoryUse>> memory_;  // of each record of each trace
  Rows out_;
  std::vector<Steps> steps_of_;  // the rows
  std::vector<int> row_of_;      // of the trace at hand
  std::map<std::tuple<ScopeKind, std::string, std::string_view>, int> index_;
  std::map<std::pair<int, int>, int64_t> child_ns_;  // (row, row of the child)
  std::string phase_;                                // of the node before
};

}  // namespace

void Report::add_launch(std::vector<KernelSum>& to, const LaunchRecord& launch) const {
  if (launch.kind == LaunchKind::graph || launch.kernel.view().empty()) return;
  std::optional<Footprint> footprint;
  if (launch.footprint.has_shape()) footprint = launch.footprint;
  auto sum = std::ranges::find_if(to, [&](const KernelSum& k) {
    return k.name == launch.kernel.view() && k.kind == launch.kind && k.source == launch.source &&
           k.footprint == footprint;
  });
  if (sum == to.end()) {
    sum = to.insert(sum, {.name = std::string(launch.kernel),
                             .kind = launch.kind,
                             .source = launch.source,
                             .footprint = footprint});
    if (footprint) sum->occupancy = occupancy(*footprint, card);
  }
  sum->launches += launch.at_least();
  sum->ns += launch.device_ns();
}

void sort_kernels(std::vector<KernelSum>& kernels) {
  std::ranges::stable_sort(kernels, {},
      [](const KernelSum& k) { return std::tuple(-k.ns, -k.launches, std::string_view(k.name)); });
}

double typical(const std::vector<int64_t>& samples) {
  std::vector<double> present;
  for (const int64_t ns : samples) {
    if (ns != 0) present.push_back(double(ns));
  }
  return present.empty() ? 0 : median(present) * double(present.size());
}

Rows Report::rows(bool by_shape, int by_module) const {
  Gatherer gatherer(*this, by_shape, by_module);
  for (const Trace& trace : traces) gatherer.add(trace);
  return gatherer.finish();
}

}  // namespace sinter::profiler
