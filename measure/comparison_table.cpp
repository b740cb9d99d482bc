#include "measure/comparison_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "profiler/grid.h"

namespace sinter::measure {
namespace {

using capture::Captured, capture::Graph, capture::Group, capture::Node;

std::string op_name(const Node& node) {
  const bool told =
      node.role == Role::wgrad || node.role == Role::dgrad || node.role == Role::bgrad;
  return told && !node.rule ? cat(node.op->text(), "(", profiler::name_of(node.role), ")")
                            : std::string(node.op->text());
}

std::string with_count(const std::string& name, size_t n) {
  return n > 1 ? fmt::format("{} x{}", name, n) : name;
}

// "linear x2, relu x2", in the order of first sight; several kinds of backward ops last, as one:
// "log_softmax, nll, 2 backwards".
std::string counted(const std::vector<std::string>& names) {
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
  if (kinds > 1) {
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

// "linear + relu" where there are two kinds, else as counted().
std::string made_of(const std::vector<std::string>& names) {
  std::string text = counted(names);
  if (const size_t at = text.find(", "); std::ranges::count(text, ',') == 1)
    text.replace(at, 2, " + ");
  return text;
}

double sum(const std::vector<double>& times, const std::vector<int>& which) {
  double total = 0;
  for (const int i : which) total += times[i];
  return total;
}

// The launches of one kind in the fused graph, and what they stand for in the recorded one.
struct Members {
  std::string name;
  bool rewritten = false;
  std::string rule{};
  std::vector<int> fused{}, eager{};
};

std::vector<Members> members_of(const Captured& captured) {
  const std::vector<Node>& nodes = captured.fused.graph.nodes;
  std::vector<char> mapped(captured.recorded.nodes.size(), 0);
  std::vector<Members> all;
  for (size_t n = 0; n < nodes.size(); ++n) {
    const bool rewritten = nodes[n].rule != nullptr;
    std::string name = op_name(nodes[n]);
    if (rewritten && nodes[n].op->text() != nodes[n].rule && !nodes[n].op->reference)
      name = cat(nodes[n].rule, ": ", name);
    auto it = std::ranges::find_if(
        all, [&](const Members& m) { return m.name == name && m.rewritten == rewritten; });
    if (it == all.end()) it = all.insert(it, {name, rewritten, rewritten ? nodes[n].rule : ""});
    it->fused.push_back(int(n));
    for (const int e : nodes[n].origin) {
      it->eager.push_back(e);
      mapped[e] = 1;
    }
  }
  Members gone{"(eliminated)"};  // dead and duplicate ops: nothing stands for them
  for (size_t e = 0; e < mapped.size(); ++e) {
    if (!mapped[e]) gone.eager.push_back(int(e));
  }
  if (!gone.eager.empty()) all.push_back(std::move(gone));
  for (Members& members : all) std::ranges::sort(members.eager);
  return all;
}

bool was_kept_unfused(const Captured& captured, const Members& members) {
  if (members.eager.empty()) return false;
  const std::vector<Group>& groups = captured.fused.groups;
  return std::ranges::any_of(groups, [&](const Group& g) {
    return g.kept_unfused() && std::ranges::find(g.origin, members.eager[0]) != g.origin.end();
  });
}

void add_counts(ComparedRow& row, const Graph& graph, const std::vector<int>& nodes, bool fused) {
  for (const int n : nodes) {
    const Cost cost = graph.cost(graph.nodes[n]);
    (fused ? row.fused_bytes : row.eager_bytes) += cost.bytes();
    (fused ? row.fused_flops : row.eager_flops) += cost.flops;
    ++(fused ? row.fused_launches : row.eager_launches);
  }
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
  ComparisonTable table;
  table.total.fused = "TOTAL";
  for (const Members& members : members_of(captured)) {
    ComparedRow row{.fused = with_count(members.name, members.fused.size()), .row = members.name};
    row.rule = members.rule;
    row.from = names_of(captured.recorded, members.eager);
    row.eager = counted(row.from);
    if (!members.rewritten && !members.fused.empty())
      row.verdict = was_kept_unfused(captured, members) ? "fallback" : "unchanged";
    for (ComparedRow* r : {&row, &table.total}) {
      add_counts(*r, captured.recorded, members.eager, false);
      add_counts(*r, captured.fused.graph, members.fused, true);
    }
    for (const auto& [eager, fused] : rounds) {
      row.eager_us.push_back(sum(eager, members.eager));
      row.fused_us.push_back(sum(fused, members.fused));
    }
    table.rows.push_back(std::move(row));
  }
  for (auto times : {&ComparedRow::eager_us, &ComparedRow::fused_us}) {
    if (rounds.empty()) break;
    double all = 0;  // as a reader would add up the rows
    for (const ComparedRow& row : table.rows)
      all += profiler::four_digits(profiler::median(row.*times));
    table.total.*times = {all};
  }
  return table;
}

std::vector<profiler::GraphNode> describe_nodes(const Captured& captured) {
  std::vector<profiler::GraphNode> out;
  const Graph& graph = captured.fused.graph;
  for (const Node& node : graph.nodes) {
    out.push_back({.name = std::string(node.op->text()),
        .made_of = node.rule ? made_of(names_of(captured.recorded, node.origin)) : "",
        .role = node.rule ? Role::none : node.role,
        .cost = graph.cost(node),
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

namespace {

// "900 -> 899" bytes, both to three digits at least.
std::string pair_of(double eager, double fused) {
  const int digits = std::max(eager, fused) < 100 ? 1 : 0;
  return fmt::format("{0:.{2}f} -> {1:.{2}f}", eager, fused, digits);
}

}  // namespace

Unit unit_of_us(double us) { return us < 2e4 ? Unit{1, "us"} : Unit{1e3, "ms"}; }
Unit unit_of_bytes(double bytes) { return bytes < 2e7 ? Unit{1e3, "kB"} : Unit{1e6, "MB"}; }

std::string ComparisonTable::text(size_t width) const {
  const Unit time = unit_of_us(total.eager_us.empty() ? 0 : total.eager_time()),
             size = unit_of_bytes(double(total.eager_bytes));
  profiler::Grid grid({"<Fused row <- eager ops", "Launches", time.name + times.substr(2),
      cat(size.name, " moved"), "<Eager / fused"});
  const auto add = [&](const ComparedRow& row, const std::string& name, const std::string& ratio) {
    const auto us = [&time](double t) { return profiler::time_text(t / time.size); };
    grid.add({name, fmt::format("{} -> {:2}", row.eager_launches, row.fused_launches),
        row.eager_us.empty() ? "- -> -" : us(row.eager_time()) + " -> " + us(row.fused_time()),
        pair_of(double(row.eager_bytes) / size.size, double(row.fused_bytes) / size.size), ratio});
  };
  for (const ComparedRow& row : rows) {
    const bool same = row.eager == row.fused;
    add(row, same ? row.fused : row.fused + " <- " + row.eager, row.ratio_text());
  }
  // One headline: the step's own, from clean rounds. The total here is of profiled ones, which only
  // apportion.
  add(total, total.eager.empty() ? total.fused : total.fused + "   " + total.eager, "");
  grid.fit(width);
  return grid.text();
}

}  // namespace sinter::measure
