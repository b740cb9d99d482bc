// diff(): two profiles against each other. The runs were apart, so drift of the machine between
// them is not in any interval: it says so. Times are those of a typical step, as in the table's
// shares: a stall in one of the runs decides nothing.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "core/error.h"
#include "core/numbers.h"
#include "profiler/join.h"

namespace sinter::profiler {
namespace {

// Why no factor can be given across the two, or "".
std::string unequal(const Profile& a, const Profile& b, bool same_work) {
  for (const auto& [p, name] : {std::pair(&a, "A"), {&b, "B"}}) {
    if (!p->incomplete.empty()) return str(name, " is INCOMPLETE: ", p->incomplete[0]);
    if (p->verdict.evidence.starts_with("machine busy"))
      return str(name, ": ", p->verdict.evidence);
    if (p->device.type == Device::Type::simt)
      return str(name, " ran on the emulator, whose times mean nothing");
  }
  if (a.device == b.device && same_work) return "";
  if (a.device == b.device && (a.workload.empty() || b.workload.empty())) {
    const char* who = !a.workload.empty() ? "B does" : !b.workload.empty() ? "A does" : "they do";
    return str(who, " not say what was run, so it may not be the same");
  }
  const auto facts_of = [](const Profile& p) {
    return std::array{str("device ", p.device.str()), str("workload ", p.workload),
        str("batch ", p.batch), str("dtype ", p.dtype), str("seed ", p.seed),
        str("threads ", p.threads)};
  };
  const auto of_a = facts_of(a), of_b = facts_of(b);
  const auto [x, y] = std::ranges::mismatch(of_a, of_b);
  return x == of_a.end() ? "" : str(*x, " and ", y->substr(y->find(' ') + 1));
}

// What is known of the run: a trace of PyTorch tells neither workload nor batch.
std::string run_line(const char* name, const Profile& p) {
  std::vector<std::string> facts{str(name, "  ", p.title), p.workload,
      p.batch > 0 ? str("batch ", p.batch) : "", p.dtype,
      p.device.str() + (p.threads > 0 ? ", " + count_of(p.threads, "thread") : ""),
      p.seed.empty() ? "" : "seed " + p.seed, p.mode == "fused" ? "rules " + p.rules : "",
      count_of(int64_t(p.steps.size()), "step")};
  std::erase(facts, "");
  std::string out = escaped(join(facts, "   ")) + "\n";
  for (const std::string& note : p.notes) out += str(name, ": ", escaped(note), "\n");
  return out;
}

bool has_rounds(const Profile& p) {
  return !p.steps.empty() && p.steps.back().round != p.steps.front().round;
}

// One value per round (its median step), or one per step; in us.
std::vector<double> grouped(const Profile& p, const std::vector<double>& samples, bool rounds) {
  std::map<int64_t, std::vector<double>> groups;
  for (size_t i = 0; i < samples.size(); ++i)
    groups[rounds ? p.steps[i].round : int64_t(i)].push_back(samples[i] / 1e3);
  std::vector<double> out;
  for (const auto& [round, times] : groups) out.push_back(median(times));
  return out;
}

// The factor, or why there is none.
std::string factor(const std::vector<double>& before, const std::vector<double>& after) {
  if (before.size() != after.size())
    return fmt::format("no factor: {} against {} samples", before.size(), after.size());
  if (!all_positive(before) || !all_positive(after)) return "-";
  return factor_text(paired_ratio(before, after), before.size());
}

double typical_us(const Profile& p, const std::vector<int>& rows) {
  double ns = 0;
  for (const int i : rows) ns += p.rows[i].typical_ns;
  return ns / double(p.steps.size()) / 1e3;
}

// Self us of the rows together, per round or step. Where not every one has some, the typical time,
// shared out over all steps.
std::vector<double> times_of(const Profile& p, const std::vector<int>& rows, bool rounds) {
  if (rows.empty()) return {};
  std::vector<double> samples(p.steps.size(), 0);
  for (const int i : rows) {
    const std::vector<int64_t>& of_row = p.rows[i].samples;
    for (size_t s = 0; s < of_row.size(); ++s) samples[s] += double(of_row[s]);
  }
  std::vector<double> us = grouped(p, samples, rounds);
  return all_positive(us) ? us : std::vector{typical_us(p, rows)};
}

// "aten::linear + aten::addmm", of many or long ones their beginnings.
std::string names_of(const Profile& p, const std::vector<int>& rows, bool by_shape) {
  constexpr size_t kShown = 2, kLongest = 60;
  std::vector<std::string> names;
  for (const int i : rows) {
    const Row& row = p.rows[i];
    std::string name = escaped(row.name);
    if (by_shape && rows.size() == 1 && !row.shapes.empty()) {
      name += " " + escaped(row.shapes);
    } else if (name.size() > kLongest) {
      name = name.substr(0, kLongest - 2) + "..";
    }
    if (std::ranges::find(names, name) == names.end()) names.push_back(name);
  }
  if (names.size() > kShown + 1) {
    const size_t more = names.size() - kShown;
    names.resize(kShown);
    names.push_back(str(more, " more"));
  }
  return join(names, " + ");
}

// Do the rows have equal calls and FLOPs in a step? What does less is faster by what it no longer
// does. Where other ops stand for the same, their numbers say nothing.
bool is_equal_work(const Profile& a, const Profile& b, const JoinedRows& rows) {
  struct Work {
    std::set<std::string_view> names;
    double calls = 0, flops = 0;
  } work[2];
  for (const int side : {0, 1}) {
    for (const int i : side == 0 ? rows.a : rows.b) {
      const Row& row = (side == 0 ? a : b).rows[i];
      work[side].names.insert(row.name);
      work[side].calls += double(row.calls);
      work[side].flops += double(row.cost.flops);
    }
  }
  const auto in_a = double(a.steps.size()), in_b = double(b.steps.size());
  const auto& [of_a, of_b] = work;
  return of_a.names != of_b.names ||
         (of_a.calls * in_b == of_b.calls * in_a && of_a.flops * in_b == of_b.flops * in_a);
}

// The unattributed rows of one side by name, the longest first.
std::string rest_line(const char* name, const Profile& p, const std::vector<int>& rows) {
  constexpr size_t kShown = 8;
  std::map<std::string, double> us;
  for (const int i : rows) us[p.rows[i].name] += typical_us(p, {i});
  std::vector<std::pair<double, std::string>> times;
  for (const auto& [of, time] : us) times.emplace_back(time, of);
  std::ranges::stable_sort(times, std::ranges::greater{}, &std::pair<double, std::string>::first);
  std::vector<std::string> shown;
  for (const auto& [time, of] : times) shown.push_back(str(escaped(of), " ", time_text(time)));
  if (shown.size() > kShown) {
    shown.resize(kShown);
    shown.push_back(str(times.size() - kShown, " more"));
  }
  return shown.empty() ? "" : str("only ", name, ": ", join(shown), "\n");
}

ComparisonTable table_of(const Profile& a, const Profile& b, const std::vector<JoinedRows>& joined,
    bool rounds, bool by_shape, bool factors) {
  // What a profile counts at all: a trace of PyTorch knows no bytes, one of a CPU no launches.
  const auto any = [](const Profile& p, auto&& has) { return std::ranges::any_of(p.rows, has); };
  const auto launches = [](const Row& row) { return row.launches > 0; };
  const auto bytes = [](const Row& row) { return row.cost.bytes() > 0; };
  const auto mark_unknown = [&](ComparedRow& row, bool has_a, bool has_b) {
    if (!has_a || !any(a, launches)) row.eager_launches = -1;
    if (!has_b || !any(b, launches)) row.fused_launches = -1;
    if (!has_a || !any(a, bytes)) row.eager_bytes = -1;
    if (!has_b || !any(b, bytes)) row.fused_bytes = -1;
  };
  ComparisonTable table{.names = "Row of B <- of A", .times = "us, self", .ratio = "A / B"};
  mark_unknown(table.total, true, true);
  for (const JoinedRows& rows : joined) {
    ComparedRow row{.fused = "unattributed", .eager = "unattributed"};
    if (rows.attributed) {
      row.fused = names_of(b, rows.b, by_shape);
      row.eager = names_of(a, rows.a, by_shape);
    }
    if (!factors || !rows.attributed || !is_equal_work(a, b, rows)) row.verdict = "-";
    row.add_counts(a, b, rows);
    mark_unknown(row, !rows.a.empty(), !rows.b.empty());
    row.eager_us = times_of(a, rows.a, rounds);
    row.fused_us = times_of(b, rows.b, rounds);
    table.add(std::move(row));
  }
  return table;
}

}  // namespace

std::string diff(const Profile& a, const Profile& b, const DiffOptions& options) {
  const std::string reason = unequal(a, b, options.same_work);
  const bool rounds = has_rounds(a) && has_rounds(b);
  const bool clean = !a.clean_us.empty() && !b.clean_us.empty();
  const std::vector<double> before = clean ? a.clean_us : grouped(a, a.step_ns(), rounds),
                            after = clean ? b.clean_us : grouped(b, b.step_ns(), rounds);
  std::string out = run_line("A", a) + run_line("B", b);
  out += fmt::format("{} step {} us, {}\n", clean ? "clean" : "profiled",
      str(time_text(median(before)), " -> ", time_text(median(after))),
      reason.empty() ? factor(before, after) : "no factor: " + escaped(reason));

  std::vector<JoinedRows> joined = join_rows(a, b, options.by_shape);
  std::ranges::stable_sort(joined, std::ranges::greater{}, [&](const JoinedRows& rows) {
    return rows.attributed ? std::max(typical_us(a, rows.a), typical_us(b, rows.b)) : -1;
  });
  out += table_of(a, b, joined, rounds, options.by_shape, reason.empty()).text(options.width);
  if (!joined.empty() && !joined.back().attributed)
    out += rest_line("A", a, joined.back().a) + rest_line("B", b, joined.back().b);
  const char* pairs = rounds ? "round i with round i" : "step i with step i";
  out += fmt::format(
      "factors: A's time over B's, {}{}; the runs were not in turn, so no interval knows "
      "whether the machine changed between them\n",
      clean ? "clean i with clean i, rows " : "", pairs);
  return out;
}

}  // namespace sinter::profiler
