// diff(): two profiles against each other. The runs were apart, so drift of the machine between
// them is not in any interval: it says so. Times are those of a typical step, as in the table's
// shares: a stall in one of the runs decides nothing.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "core/error.h"
#include "core/numbers.h"
#include "profiler/join.h"

namespace sinter::profiler {
namespace {

// Why no factor can be given across the two, or "".
std::string unequal(const Profile& a, const Profile& b, bool same_work) {
  const auto of_one = [](const Profile& p, const char* name) -> std::string {
    if (!p.incomplete.empty()) return cat(name, " is INCOMPLETE: ", p.incomplete[0]);
    if (p.device.type == Device::Type::simt)
      return cat(name, " ran on the emulator, whose times mean nothing");
    return "";
  };
  if (const std::string why = of_one(a, "A"); !why.empty()) return why;
  if (const std::string why = of_one(b, "B"); !why.empty()) return why;
  const auto differ = [](const char* what, const auto& x, const auto& y) {
    return cat(what, " ", x, " and ", y);
  };
  if (a.device != b.device) return differ("device", a.device.str(), b.device.str());
  if (same_work) return "";
  if (a.workload.empty() || b.workload.empty()) {
    const char* who = !a.workload.empty() ? "B does" : !b.workload.empty() ? "A does" : "they do";
    return cat(who, " not say what was run, so it may not be the same");
  }
  if (a.workload != b.workload) return differ("workload", a.workload, b.workload);
  if (a.batch != b.batch) return differ("batch", a.batch, b.batch);
  if (a.dtype != b.dtype) return differ("dtype", a.dtype, b.dtype);
  if (a.seed != b.seed) return differ("seed", a.seed, b.seed);
  if (a.threads != b.threads) return differ("threads", a.threads, b.threads);
  return "";
}

// What is known of the run: a trace of PyTorch tells neither workload nor batch.
std::string run_line(const char* name, const Profile& p) {
  std::string out = cat(name, "  ", escaped(p.title));
  const auto add = [&out](const std::string& what, bool known) {
    if (known) out += "   " + escaped(what);
  };
  add(p.workload, !p.workload.empty());
  add(cat("batch ", p.batch), p.batch > 0);
  add(p.dtype, !p.dtype.empty());
  add(p.device.str() + (p.threads > 0 ? ", " + count_of(p.threads, "thread") : ""), true);
  add("seed " + p.seed, !p.seed.empty());
  add("rules " + p.rules, p.mode == "fused");
  add(count_of(int64_t(p.steps.size()), "step"), true);
  for (const std::string& note : p.notes) out += cat("\n", name, ": ", escaped(note));
  return out + "\n";
}

bool has_rounds(const Profile& p) {
  return !p.steps.empty() && p.steps.back().round != p.steps.front().round;
}

// One value per round (its median step), or one per step; in us.
std::vector<double> grouped(const Profile& p, const auto& samples, bool rounds) {
  std::map<int64_t, std::vector<double>> groups;
  for (size_t i = 0; i < samples.size(); ++i)
    groups[rounds ? p.steps[i].round : int64_t(i)].push_back(double(samples[i]) / 1e3);
  std::vector<double> out;
  for (const auto& [round, times] : groups) out.push_back(median(times));
  return out;
}

std::vector<double> step_us(const Profile& p, bool clean, bool rounds) {
  if (clean) return p.clean_us;
  return grouped(p, p.step_ns(), rounds);
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
  std::vector<int64_t> samples(p.steps.size(), 0);
  for (const int i : rows) {
    const std::vector<int64_t>& of_row = p.rows[i].samples;
    for (size_t s = 0; s < of_row.size(); ++s) samples[s] += of_row[s];
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
    names.push_back(cat(more, " more"));
  }
  return join(names, " + ");
}

// Do the rows have equal calls and FLOPs in a step? What does less is faster by what it no longer
// does. Where other ops stand for the same, their numbers say nothing.
bool is_equal_work(const Profile& a, const Profile& b, const JoinedRows& rows) {
  const auto names = [](const Profile& p, const std::vector<int>& which) {
    std::set<std::string_view> out;
    for (const int i : which) out.insert(p.rows[i].name);
    return out;
  };
  if (names(a, rows.a) != names(b, rows.b)) return true;
  const auto sum = [](const Profile& p, const std::vector<int>& which) {
    std::pair<int64_t, int64_t> out;
    for (const int i : which) {
      out.first += p.rows[i].calls;
      out.second += p.rows[i].cost.flops;
    }
    return out;
  };
  const auto [a_calls, a_flops] = sum(a, rows.a);
  const auto [b_calls, b_flops] = sum(b, rows.b);
  const auto in_a = int64_t(a.steps.size()), in_b = int64_t(b.steps.size());
  return a_calls * in_b == b_calls * in_a && a_flops * in_b == b_flops * in_a;
}

// The unattributed rows of one side by name, the longest first.
std::string rest_line(const char* name, const Profile& p, const std::vector<int>& rows) {
  constexpr size_t kShown = 8;
  if (rows.empty()) return "";
  std::map<std::string, std::vector<int>> by_name;
  for (const int i : rows) by_name[p.rows[i].name].push_back(i);
  std::vector<std::pair<double, std::string>> times;
  for (const auto& [of, all] : by_name) times.emplace_back(median(times_of(p, all, false)), of);
  std::ranges::stable_sort(times, std::ranges::greater{}, &std::pair<double, std::string>::first);
  std::vector<std::string> shown;
  for (size_t i = 0; i < std::min(times.size(), kShown); ++i)
    shown.push_back(cat(escaped(times[i].second), " ", time_text(times[i].first)));
  if (times.size() > kShown) shown.push_back(cat(times.size() - kShown, " more"));
  return fmt::format("only {}: {}\n", name, join(shown));
}

// What a profile counts at all: a trace of PyTorch knows no bytes, one of a CPU no launches.
struct Counted {
  bool launches, bytes;
};
Counted counted_in(const Profile& p) {
  const auto any = [&p](auto&& has) { return std::ranges::any_of(p.rows, has); };
  return {any([](const Row& row) { return row.launches > 0; }),
      any([](const Row& row) { return row.cost.bytes() > 0; })};
}

ComparisonTable table_of(const Profile& a, const Profile& b, const std::vector<JoinedRows>& joined,
    bool rounds, bool by_shape, bool factors) {
  const Counted in_a = counted_in(a), in_b = counted_in(b);
  const auto mark_unknown = [&](ComparedRow& row, bool has_a, bool has_b) {
    if (!has_a || !in_a.launches) row.eager_launches = -1;
    if (!has_b || !in_b.launches) row.fused_launches = -1;
    if (!has_a || !in_a.bytes) row.eager_bytes = -1;
    if (!has_b || !in_b.bytes) row.fused_bytes = -1;
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
  const std::vector<double> before = step_us(a, clean, rounds), after = step_us(b, clean, rounds);
  std::string out = run_line("A", a) + run_line("B", b);
  out += fmt::format("{} step {} us, {}\n", clean ? "clean" : "profiled",
      cat(time_text(median(before)), " -> ", time_text(median(after))),
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
      "factors: A's time over B's, {}{}; the runs were apart, so drift of the machine between them "
      "is in no interval\n",
      clean ? "clean i with clean i, rows " : "", pairs);
  return out;
}

}  // namespace sinter::profiler
