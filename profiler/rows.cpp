// Report::rows(): calls gathered by what they are.
#include <map>
#include <tuple>

#include "profiler/report.h"

namespace sinter::profiler {
namespace {

std::string label_of(const Record& record) {
  const Role role = record.info.role;
  std::string label(record.name);
  if (role == Role::wgrad || role == Role::dgrad || role == Role::bgrad) label.append("(").append(name_of(role)).append(")");
  return label;
}

}  // namespace

Rows Report::rows(bool by_shape) const {
  Rows out;
  std::map<std::tuple<ScopeKind, std::string, uint32_t>, int> index;
  std::map<std::pair<int, int>, int64_t> child_ns;  // (row, row of the child)
  for (const Trace& trace : traces) {
    const std::vector<int64_t> self = self_times(trace);
    std::vector<int64_t> kernel(trace.records.size(), 0);
    for (const LaunchRecord& launch : trace.launches) kernel[launch.record] += launch.t1 - launch.t0;
    std::vector<int> row_of(trace.records.size(), -1);
    for (size_t i = 0; i < trace.records.size(); ++i) {
      const Record& r = trace.records[i];
      if (!counts(trace, r)) continue;
      const uint32_t shape = by_shape ? r.info.shape_key : 0;
      const auto [found, is_new] = index.try_emplace({r.kind, label_of(r), shape}, static_cast<int>(out.rows.size()));
      const int row_index = row_of[i] = found->second;
      if (is_new) {
        out.rows.push_back({.name = label_of(r), .shapes = std::string(shape_text(shape)), .kind = r.kind, .role = r.info.role});
        out.rows.back().samples.resize(steps.size());
      }
      Row& row = out.rows[row_index];
      const int64_t step = step_index(r.step), total = r.t1 - r.t0;
      ++row.calls;
      row.launches += r.n_launches;
      row.cost += r.info.cost;
      row.self_ns += self[i];
      row.kernel_ns += kernel[i];
      row.samples[step] += self[i];
      int32_t above = r.parent;
      while (above >= 0 && row_of[above] != row_index) above = trace.records[above].parent;
      if (above < 0) row.total_ns += total;
      if (r.parent >= 0 && row_of[r.parent] >= 0 && row_of[r.parent] != row_index) child_ns[{row_of[r.parent], row_index}] += total;
      if (r.kind == ScopeKind::op) {
        out.calls.push_back({r.info.uid, r.info.forward_uid, r.info.graph_node, row_index, step, trace.steps_here, self[i], kernel[i]});
      }
    }
  }
  for (const auto& [pair, ns] : child_ns) {
    Row& row = out.rows[pair.first];
    if (ns > row.heaviest_child_ns) row.heaviest_child_ns = ns, row.heaviest_child = out.rows[pair.second].name;
  }
  return out;
}

}  // namespace sinter::profiler
