#include "measure/comparison_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace sinter::measure {
namespace {

using capture::Captured, capture::Graph, capture::Group, capture::Node;

std::string op_name(const Node& node) {
  const bool told =
      node.role == Role::wgrad || node.role == Role::dgrad || node.role == Role::bgrad;
  return told && !node.rule ? str(node.text(), "(", profiler::name_of(node.role), ")")
                            : std::string(node.text());
}

std::string with_count(const std::string& name, size_t n) {
  return n > 1 ? fmt::format("{} x{}", name, n) : name;
}

// "linear x2, relu x2", in the order of first sight; for a table several kinds of backward ops
// last, as one: "log_softmax, nll, 2 backwards".
std::string counted(const std::vector<std::string>& names, bool for_table = true) {
  std::vector<std::pair<std::string, size_t>> counts;
  for (const std::string& name : names) {
    auto it = std::ranges::find_if(counts, [&](const auto& c) { return c.first == name; });
    if (it == counts.end()) it = counts.insert(it, {name, 0});
    ++it->second;
  }
  size_t kinds = 0, backwards = 0;
  for (const auto& [name, n] : counts) {
    if (!name.ends_with("_backward")) continue;
    ++kinds;
    backwards += n;
  }
  if (for_table && kinds > 1) {
    std::erase_if(counts, [](const auto& c) { return c.first.ends_with("_backward"); });
    counts.emplace_back(fmt::format("{} backwards", backwards), 1);
  }
  std::string out;
  for (const auto& [name, n] : counts) out += (out.empty() ? "" : ", ") + with_count(name, n);
  return out;
}

std::vector<std::string> names_of(const Graph& recorded, const std::vector<int>& nodes) {
  std::vector<std::string> names;
  for (const int n : nodes) names.push_back(op_name(recorded.nodes[n]));
  return names;
}

// "linear + relu" where there are two kinds, else as counted(), with each op by its name: by these
// mnist diff pairs the rows of two runs.
std::string made_of(const std::vector<std::string>& names) {
  std::string text = counted(names, false);
  if (const size_t at = text.find(", "); std::ranges::count(text, ',') == 1)
    text.replace(at, 2, " + ");
  return text;
}

double sum(const std::vector<double>& times, const std::vector<int>& which) {
  double total = 0;
  for (const int i : which) total += times[i];
  return total;
}

// A graph as the profile of one step, with a row for each node; `origins`: of a fused one, what
// its nodes stand for.
profiler::Profile profile_of(const Graph& graph, bool origins) {
  profiler::Profile out;
  out.steps.resize(1);
  for (const Node& node : graph.nodes) {
    std::string name = op_name(node);
    if (node.rule && node.text() != node.rule && !node.op->reference)
      name = str(node.rule, ": ", name);
    out.rows.push_back({.name = std::move(name),
        .made_of = node.rule ? node.rule : "",
        .calls = 1,
        .launches = 1,
        .cost = graph.cost(node)});
    if (origins) out.rows.back().origin.assign(node.origin.begin(), node.origin.end());
  }
  return out;
}

bool was_kept_unfused(const Captured& captured, const std::vector<int>& eager) {
  if (eager.empty()) return false;
  const std::vector<Group>& groups = captured.fused.groups;
  return std::ranges::any_of(groups, [&](const Group& g) {
    return g.kept_unfused() && std::ranges::find(g.origin, eager[0]) != g.origin.end();
  });
}

}  // namespace

std::vector<double> launch_times_us(const profiler::Report& report, size_t nodes) {
  const profiler::Rows rows = report.rows();
  std::map<int64_t, std::vector<double>> steps;
  for (const profiler::OpCall& call : rows.calls) {
    if (rows.rows[call.row].launches > 0)
      steps[call.step_index].push_back(
          double(report.device == kCpu ? call.self_ns : call.device_ns) * 1e-3);
  }
  std::vector<double> out;
  for (size_t n = 0; n < nodes; ++n) {
    std::vector<double> samples;
    for (const auto& [step, times] : steps) {
      if (times.size() != nodes) return {};
      samples.push_back(times[n]);
    }
    if (samples.empty()) return {};
    out.push_back(profiler::median(samples));
  }
  return out;
}

ComparisonTable make_table(const Captured& captured, const std::vector<PairOfTimes>& rounds) {
  const std::vector<Node>& nodes = captured.fused.graph.nodes;
  const profiler::Profile recorded = profile_of(captured.recorded, false),
                          fused = profile_of(captured.fused.graph, true);
  ComparisonTable table;
  for (const profiler::JoinedRows& rows : profiler::join_rows(recorded, fused)) {
    // Dead and duplicate ops: nothing stands for them.
    ComparedRow row{.row = "(eliminated)", .from = names_of(captured.recorded, rows.a)};
    if (rows.attributed) {
      const Node& node = nodes[rows.b[0]];
      row.row = fused.rows[rows.b[0]].name;
      if (node.rule) {
        row.rule = node.rule;
      } else {
        row.verdict = was_kept_unfused(captured, rows.a) ? "fallback" : "same op";
      }
    }
    row.fused = with_count(row.row, rows.b.size());
    row.eager = counted(row.from);
    row.add_counts(recorded, fused, rows);
    for (const auto& [eager, replayed] : rounds) {
      row.eager_us.push_back(sum(eager, rows.a));
      row.fused_us.push_back(sum(replayed, rows.b));
    }
    table.add(std::move(row));
  }
  return table;
}

std::vector<profiler::GraphNode> describe_nodes(const Captured& captured) {
  std::vector<profiler::GraphNode> out;
  const Graph& graph = captured.fused.graph;
  const capture::MemoryPlan& plan = captured.executor->plan();
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    int last = 0;  // node that reads what this one makes
    for (size_t b = 0; b < plan.offset.size(); ++b) {
      if (plan.offset[b] >= 0 && plan.first[b] == int(n)) last = std::max(last, plan.last[b]);
    }
    out.push_back({.name = std::string(node.text()),
        .made_of = node.rule ? made_of(names_of(captured.recorded, node.origin)) : "",
        .role = node.rule ? Role::none : node.role,
        .cost = graph.cost(node),
        .memory = captured.executor->memory()[n],
        .kept_until = last < std::ssize(graph.nodes)
                          ? profiler::label_of(
                                graph.nodes[size_t(last)].text(), graph.nodes[size_t(last)].role)
                          : "the end of the step",
        .module = node.module,
        .phase = capture::text_of_phases(node)});
  }
  return out;
}

std::vector<profiler::Candidate> candidates(const Captured& captured) {
  std::vector<profiler::Candidate> out;
  for (const Group& group : captured.fused.groups) {
    if (group.kept_unfused()) continue;
    auto it = std::ranges::find_if(out, [&](const auto& c) { return c.rule == group.rule; });
    const std::vector<std::string> names = names_of(captured.recorded, group.origin);
    if (it == out.end())
      it = out.insert(
          out.end(), {.rule = group.rule, .ops = made_of(names), .rows = {}, .times = 0});
    it->rows.insert(it->rows.end(), names.begin(), names.end());
    ++it->times;
    it->launches_saved += group.launches_saved;
    it->bytes_saved += group.bytes_saved;
  }
  std::ranges::stable_sort(
      out, [](const auto& a, const auto& b) { return a.launches_saved > b.launches_saved; });
  return out;
}

}  // namespace sinter::measure
