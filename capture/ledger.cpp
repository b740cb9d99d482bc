#include "capture/ledger.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace sinter::capture {
namespace {

std::string op_name(const Node& node) {
  const bool told = node.role == Role::wgrad || node.role == Role::dgrad || node.role == Role::bgrad;
  return told && !node.rule ? cat(node.op->text(), "(", profiler::name_of(node.role), ")") : std::string(node.op->text());
}

// "linear x2, relu x2", in the order of first sight.
std::string counted(const std::vector<std::string>& names) {
  std::vector<std::pair<std::string, int>> counts;
  for (const std::string& name : names) {
    const auto it = std::find_if(counts.begin(), counts.end(), [&](const auto& c) { return c.first == name; });
    it == counts.end() ? void(counts.emplace_back(name, 1)) : void(++it->second);
  }
  std::string out;
  for (const auto& [name, n] : counts) out += (out.empty() ? "" : ", ") + name + (n > 1 ? fmt::format(" x{}", n) : "");
  return out;
}

double sum(const std::vector<double>& times, const std::vector<int>& which) {
  double total = 0;
  for (const int i : which) total += times[i];
  return total;
}

}  // namespace

std::vector<double> launch_times_us(const profiler::Report& report, size_t nodes) {
  const profiler::Rows rows = report.rows();
  std::map<int64_t, std::vector<double>> steps;
  for (const profiler::OpCall& call : rows.calls) {
    if (rows.rows[call.row].launches > 0) steps[call.step_index].push_back(static_cast<double>(call.self_ns) * 1e-3);
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

Ledger make_ledger(const Captured& captured, const std::vector<std::pair<std::vector<double>, std::vector<double>>>& rounds) {
  const Graph &eager = captured.recorded, &fused = captured.fused.graph;
  struct Members {
    std::vector<int> fused, eager;
    bool rewritten = false;
  };
  std::vector<std::pair<std::string, Members>> groups;
  for (size_t n = 0; n < fused.nodes.size(); ++n) {
    const Node& node = fused.nodes[n];
    const std::string name = node.rule && node.op->text() != node.rule && !node.op->reference ? cat(node.rule, ": ", op_name(node)) : op_name(node);
    auto it = std::find_if(groups.begin(), groups.end(), [&](const auto& g) { return g.first == name && g.second.rewritten == (node.rule != nullptr); });
    if (it == groups.end()) it = groups.insert(groups.end(), {name, Members{.rewritten = node.rule != nullptr}});
    it->second.fused.push_back(static_cast<int>(n));
    it->second.eager.insert(it->second.eager.end(), node.origin.begin(), node.origin.end());
  }
  std::vector<char> mapped(eager.nodes.size(), 0);
  for (const auto& [name, members] : groups) {
    for (const int e : members.eager) mapped[e] = 1;
  }
  Members gone;  // dead and duplicate ops: nothing stands for them
  for (size_t e = 0; e < mapped.size(); ++e) {
    if (!mapped[e]) gone.eager.push_back(static_cast<int>(e));
  }
  if (!gone.eager.empty()) groups.emplace_back("(eliminated)", gone);

  Ledger ledger;
  ledger.total.fused = "TOTAL";
  for (auto& [name, members] : groups) {
    LedgerRow row{.fused = members.fused.size() > 1 ? fmt::format("{} x{}", name, members.fused.size()) : name};
    std::sort(members.eager.begin(), members.eager.end());
    std::vector<std::string> names;
    for (const int e : members.eager) names.push_back(op_name(eager.nodes[e]));
    row.eager = counted(names);
    const bool fallback = std::any_of(captured.fused.groups.begin(), captured.fused.groups.end(), [&](const Group& g) {
      return g.kept_unfused && std::find(g.origin.begin(), g.origin.end(), members.eager.empty() ? -1 : members.eager[0]) != g.origin.end();
    });
    if (!members.rewritten && !members.fused.empty()) row.verdict = fallback ? "fallback" : "unchanged";
    const auto add = [](LedgerRow& r, const Graph& graph, const std::vector<int>& which, bool is_fused) {
      for (const int i : which) {
        const Cost cost = graph.cost(graph.nodes[i]);
        (is_fused ? r.fused_bytes : r.eager_bytes) += cost.bytes();
        (is_fused ? r.fused_flops : r.eager_flops) += cost.flops;
        ++(is_fused ? r.fused_launches : r.eager_launches);
      }
    };
    for (LedgerRow* r : {&row, &ledger.total}) {
      add(*r, eager, members.eager, false);
      add(*r, fused, members.fused, true);
    }
    for (const auto& [e, f] : rounds) {
      row.eager_us.push_back(sum(e, members.eager));
      row.fused_us.push_back(sum(f, members.fused));
    }
    ledger.rows.push_back(std::move(row));
  }
  for (const auto& [e, f] : rounds) {
    double te = 0, tf = 0;
    for (const double t : e) te += t;
    for (const double t : f) tf += t;
    ledger.total.eager_us.push_back(te);
    ledger.total.fused_us.push_back(tf);
  }
  return ledger;
}

std::string Ledger::table() const {
  size_t fused_width = 9, eager_width = 11;
  for (const LedgerRow& row : rows) fused_width = std::max(fused_width, row.fused.size()), eager_width = std::max(eager_width, row.eager.size());
  const auto line = [&](const LedgerRow& row) {
    std::string us = fmt::format("{:>21} {:>5}", "-", ""), ratio = "-";
    if (!row.eager_us.empty() && row.fused_launches > 0) {
      const double e = profiler::median(row.eager_us), f = profiler::median(row.fused_us);
      us = fmt::format("{:8.1f} -> {:8.1f}  {:+4.0f}%", e, f, 100 * (f / e - 1));
      if (row.verdict.empty()) {
        const profiler::Estimate r = profiler::paired_ratio(row.eager_us, row.fused_us);
        ratio = r.has_interval && !r.contains(1) ? profiler::factor_text(r, row.eager_us.size()) : "-";
      } else {
        ratio = "- " + row.verdict;
      }
    }
    const double eager_kb = static_cast<double>(row.eager_bytes) * 1e-3, fused_kb = static_cast<double>(row.fused_bytes) * 1e-3;
    return fmt::format("{:<{}} {} {:<{}}  {:3} -> {:3}  {}  {:9.1f} -> {:9.1f} {:9.1f}  {}\n", row.fused, fused_width, row.eager.empty() ? "  " : "<-",
                       row.eager, eager_width, row.eager_launches, row.fused_launches, us, eager_kb, fused_kb, fused_kb - eager_kb, ratio);
  };
  std::string out = fmt::format("{:<{}} <- {:<{}}  {:>10}  {:>27}  {:>32}  {}\n", "Fused row", fused_width, "eager ops", eager_width, "Launch",
                                "Self CPU us", "kB moved", "Ratio");
  for (const LedgerRow& row : rows) out += line(row);
  return out + line(total);
}

}  // namespace sinter::capture
