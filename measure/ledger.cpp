#include "measure/ledger.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

namespace sinter::measure {
namespace {

using capture::Buffer, capture::Captured, capture::Graph, capture::Group, capture::Node;

std::string op_name(const Node& node) {
  const bool told =
      node.role == Role::wgrad || node.role == Role::dgrad || node.role == Role::bgrad;
  return told && !node.rule ? cat(node.op->text(), "(", profiler::name_of(node.role), ")")
                            : std::string(node.op->text());
}

// "linear x2, relu x2", in the order of first sight; several kinds of backward ops last, as one:
// "log_softmax, nll, 2 backwards".
std::string counted(const std::vector<std::string>& names) {
  std::vector<std::pair<std::string, int>> counts;
  for (const std::string& name : names) {
    const auto it =
        std::find_if(counts.begin(), counts.end(), [&](const auto& c) { return c.first == name; });
    if (it == counts.end()) {
      counts.emplace_back(name, 1);
    } else {
      ++it->second;
    }
  }
  int kinds = 0, backwards = 0;
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
  for (const auto& [name, n] : counts)
    out += (out.empty() ? "" : ", ") + name + (n > 1 ? fmt::format(" x{}", n) : "");
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
  if (const size_t at = text.find(", "); std::count(text.begin(), text.end(), ',') == 1)
    text.replace(at, 2, " + ");
  return text;
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
    if (rows.rows[call.row].launches > 0)
      steps[call.step_index].push_back(
          static_cast<double>(report.device == kCpu ? call.self_ns : call.device_ns) * 1e-3);
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

Ledger make_ledger(const Captured& captured,
    const std::vector<std::pair<std::vector<double>, std::vector<double>>>& rounds) {
  const Graph &eager = captured.recorded, &fused = captured.fused.graph;
  struct Members {
    std::vector<int> fused, eager;
    bool rewritten = false;
  };
  std::vector<std::pair<std::string, Members>> groups;
  for (size_t n = 0; n < fused.nodes.size(); ++n) {
    const Node& node = fused.nodes[n];
    const std::string name = node.rule && node.op->text() != node.rule && !node.op->reference
                                 ? cat(node.rule, ": ", op_name(node))
                                 : op_name(node);
    auto it = std::find_if(groups.begin(), groups.end(), [&](const auto& g) {
      return g.first == name && g.second.rewritten == (node.rule != nullptr);
    });
    if (it == groups.end())
      it = groups.insert(groups.end(), {name, Members{.rewritten = node.rule != nullptr}});
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
    LedgerRow row{.fused = members.fused.size() > 1
                               ? fmt::format("{} x{}", name, members.fused.size())
                               : name};
    std::sort(members.eager.begin(), members.eager.end());
    row.eager = counted(names_of(eager, members.eager));
    const bool fallback = std::any_of(
        captured.fused.groups.begin(), captured.fused.groups.end(), [&](const Group& g) {
          return g.kept_unfused &&
                 std::find(g.origin.begin(), g.origin.end(),
                     members.eager.empty() ? -1 : members.eager[0]) != g.origin.end();
        });
    if (!members.rewritten && !members.fused.empty())
      row.verdict = fallback ? "fallback" : "unchanged";
    const auto add = [](LedgerRow& r, const Graph& graph, const std::vector<int>& which,
                         bool is_fused) {
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

std::vector<profiler::GraphNode> describe_nodes(const Captured& captured) {
  std::vector<profiler::GraphNode> out;
  const Graph& graph = captured.fused.graph;
  for (const Node& node : graph.nodes) {
    out.push_back({.name = std::string(node.op->text()),
        .made_of = node.rule ? made_of(names_of(captured.recorded, node.origin)) : "",
        .role = node.rule ? Role::none : node.role,
        .cost = graph.cost(node)});
  }
  return out;
}

std::vector<profiler::Candidate> candidates(const Captured& captured) {
  std::vector<profiler::Candidate> out;
  for (const Group& group : captured.fused.groups) {
    if (group.kept_unfused) continue;
    auto it =
        std::find_if(out.begin(), out.end(), [&](const auto& c) { return c.rule == group.rule; });
    const std::vector<std::string> names = names_of(captured.recorded, group.origin);
    if (it == out.end())
      it = out.insert(
          out.end(), {.rule = group.rule, .ops = made_of(names), .rows = {}, .times = 0});
    it->rows.insert(it->rows.end(), names.begin(), names.end());
    ++it->times;
    it->launches_saved += group.launches_saved;
    it->bytes_saved += group.bytes_saved;
  }
  std::stable_sort(out.begin(), out.end(),
      [](const auto& a, const auto& b) { return a.launches_saved > b.launches_saved; });
  return out;
}

int64_t touched_bytes(const Graph& graph, int64_t local) {
  for (const Buffer& buffer : graph.buffers)
    local += buffer.kind == Buffer::Kind::local ? 0 : static_cast<int64_t>(buffer.bytes);
  return local;
}

std::string Ledger::table() const {
  // 0 fused row, 1 eager ops, 2 and 3 launches, 4 and 5 us, 6 their change, 7 and 8 kB, 9 their
  // change, 10 same kernel, 11 ratio
  std::vector<std::array<std::string, 12>> cells;
  const auto change = [](double x, int digits, const char* unit) {  // never -0
    const bool none = std::round(x * std::pow(10, digits)) == 0;
    return none ? fmt::format("{:.{}f}{}", 0.0, digits, unit)
                : fmt::format("{:+.{}f}{}", x, digits, unit);
  };
  const auto add = [&](const LedgerRow& row, std::string eager) {
    const bool timed = !row.eager_us.empty() && row.fused_launches > 0;
    const double e = timed ? profiler::median(row.eager_us) : 0,
                 f = timed ? profiler::median(row.fused_us) : 0;
    const double eager_kb = static_cast<double>(row.eager_bytes) * 1e-3,
                 fused_kb = static_cast<double>(row.fused_bytes) * 1e-3;
    // One headline: the step's own, from clean rounds. The total here is of profiled ones, which
    // only apportion.
    std::string ratio = &row == &total ? "" : row.verdict.empty() ? "-" : "- " + row.verdict;
    bool shown = false;  // a difference; else neither ratio nor percent
    if (timed && row.verdict.empty() && &row != &total) {
      const profiler::Estimate r = profiler::paired_ratio(row.eager_us, row.fused_us);
      shown = r.is_shown();
      if (shown) ratio = profiler::factor_text(r, row.eager_us.size());
      if (r.has_interval && !shown) ratio = r.is_noisy() ? "- machine busy" : "- no difference";
    }
    cells.push_back({row.fused, std::move(eager), std::to_string(row.eager_launches),
        std::to_string(row.fused_launches), timed ? fmt::format("{:.1f}", e) : "-",
        timed ? fmt::format("{:.1f}", f) : "-", shown ? change(100 * (f / e - 1), 0, "%") : "",
        fmt::format("{:.1f}", eager_kb), fmt::format("{:.1f}", fused_kb),
        change(fused_kb - eager_kb, 1, ""),
        &row == &total        ? ""
        : row.verdict.empty() ? "!="
                              : "=",
        std::move(ratio)});
  };
  for (const LedgerRow& row : rows) add(row, "<- " + row.eager);
  add(total, total.eager);

  std::array<size_t, 12> w{9, 12, 2, 2, 4, 5, 4, 3, 3, 0, 6, 0};
  for (const auto& row : cells) {
    for (size_t c = 0; c < w.size(); ++c) w[c] = std::max(w[c], row[c].size());
  }
  const auto left = [&](std::string_view fused, std::string_view eager) {
    return fmt::format("{:<{}} {:<{}}", fused, w[0], eager, w[1]);
  };
  std::string out =
      left("Fused row", "<- eager ops") +
      fmt::format("  {:>{}}  {:>{}}  {:>{}}  Kernel  Ratio\n", "Launch", w[2] + w[3] + 4, times,
          w[4] + w[5] + w[6] + 6, "kB moved", w[7] + w[8] + w[9] + 6);
  for (const auto& r : cells) {
    out +=
        left(r[0], r[1]) +
        fmt::format(
            "  {:>{}} -> {:>{}}  {:>{}} -> {:>{}}  {:>{}}  {:>{}} -> {:>{}}  {:>{}}  {:<{}}  {}\n",
            r[2], w[2], r[3], w[3], r[4], w[4], r[5], w[5], r[6], w[6], r[7], w[7], r[8], w[8],
            r[9], w[9], r[10], w[10], r[11]);
    out.erase(out.find_last_not_of(" \n") + 1);
    out += '\n';
  }
  return out;
}

}  // namespace sinter::measure
