// diff(): two profiles against each other. The runs were apart, so drift of the machine between
// them is not in any interval: it says so. Times are those of a typical step, as in the table's
// shares: a stall in one of the runs decides nothing.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "core/error.h"
#include "profiler/grid.h"
#include "profiler/profile.h"

namespace sinter::profiler {
namespace {

// Why no factor can be given across the two, or "".
std::string unequal(const Profile& a, const Profile& b) {
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
  if (a.workload != b.workload) return differ("workload", a.workload, b.workload);
  if (a.batch != b.batch) return differ("batch", a.batch, b.batch);
  if (a.dtype != b.dtype) return differ("dtype", a.dtype, b.dtype);
  if (a.seed != b.seed) return differ("seed", a.seed, b.seed);
  if (a.threads != b.threads) return differ("threads", a.threads, b.threads);
  return "";
}

std::string run_line(const char* name, const Profile& p) {
  return fmt::format("{}  {}   {}   batch {}   {}   {}, {} thread{}   seed {}{}\n", name,
      escaped(p.title), escaped(p.workload), p.batch, escaped(p.dtype), p.device.str(), p.threads,
      p.threads == 1 ? "" : "s", escaped(p.seed),
      p.mode == "fused" ? "   rules " + escaped(p.rules) : "");
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

bool all_positive(const std::vector<double>& times) {
  return !times.empty() && std::ranges::all_of(times, [](double t) { return t > 0; });
}

// The factor, or why there is none; of a row "-" where no difference is shown.
std::string factor(
    const std::vector<double>& before, const std::vector<double>& after, bool of_row = false) {
  if (before.size() != after.size())
    return fmt::format("no factor: {} against {} samples", before.size(), after.size());
  if (!all_positive(before) || !all_positive(after)) return "-";
  const Estimate ratio = paired_ratio(before, after);
  if (of_row && (!ratio.has_interval || ratio.holds_one())) return "-";
  return factor_text(ratio, before.size());
}

struct RowPair {
  const Row* a = nullptr;
  const Row* b = nullptr;
};

// Rows of A in its order, then those that only B has.
std::vector<RowPair> paired_rows(const Profile& a, const Profile& b) {
  std::vector<RowPair> pairs;
  for (const Row& row : a.rows) {
    if (row.kind == ScopeKind::op) pairs.push_back({.a = &row});
  }
  for (const Row& row : b.rows) {
    if (row.kind != ScopeKind::op) continue;
    const auto found = std::find_if(pairs.begin(), pairs.end(), [&](const RowPair& p) {
      return p.a && p.a->name == row.name && p.a->shapes == row.shapes;
    });
    if (found != pairs.end()) {
      found->b = &row;
    } else {
      pairs.push_back({.b = &row});
    }
  }
  return pairs;
}

}  // namespace

std::string diff(const Profile& a, const Profile& b, size_t width) {
  const std::string reason = unequal(a, b);
  const bool rounds = has_rounds(a) && has_rounds(b);
  const bool clean = !a.clean_us.empty() && !b.clean_us.empty();
  const std::vector<double> before = step_us(a, clean, rounds), after = step_us(b, clean, rounds);
  std::string out = run_line("A", a) + run_line("B", b);
  out += fmt::format("{} step {} us, {}\n", clean ? "clean" : "profiled",
      cat(time_text(median(before)), " -> ", time_text(median(after))),
      reason.empty() ? factor(before, after) : "no factor: " + escaped(reason));

  const auto in_a = int64_t(a.steps.size());
  const auto in_b = int64_t(b.steps.size());
  const auto samples_of = [rounds](const Profile& p, const Row* row) {
    return row ? grouped(p, row->samples, rounds) : std::vector<double>{};
  };
  // A row that not every step has is shared out over all of them.
  const auto time_of = [](const std::vector<double>& us, const Profile& p, const Row* row) {
    if (all_positive(us)) return time_text(median(us));
    return row ? time_text(row->typical_ns / double(p.steps.size()) / 1e3) : "-";
  };
  Grid grid({"Self us", "Launches", "kB", "<Ratio", "<Name"});
  for (const RowPair& pair : paired_rows(a, b)) {
    const auto both = [&](auto&& value, int digits) {
      const auto one = [&](const Row* row, int64_t steps) {
        return row ? fmt::format("{:.{}f}", value(*row) / double(steps), digits) : "-";
      };
      return one(pair.a, in_a) + " -> " + one(pair.b, in_b);
    };
    // A row of fewer calls is faster by what it no longer does.
    const bool same_work = pair.a && pair.b && pair.a->calls * in_b == pair.b->calls * in_a &&
                           pair.a->cost.flops * in_b == pair.b->cost.flops * in_a;
    const std::vector<double> a_us = samples_of(a, pair.a), b_us = samples_of(b, pair.b);
    grid.add({time_of(a_us, a, pair.a) + " -> " + time_of(b_us, b, pair.b),
        both([](const Row& r) { return double(r.launches); }, 0),
        both([](const Row& r) { return double(r.cost.bytes()) / 1e3; }, 1),
        same_work && reason.empty() ? factor(a_us, b_us, true) : "-",
        escaped((pair.a ? pair.a : pair.b)->name)});
  }
  grid.fit(width);
  out += grid.text();
  const char* pairs = rounds ? "round i with round i" : "step i with step i";
  out += fmt::format(
      "factors: B against A, {}{}; the runs were apart, so drift of the machine between them is in "
      "no interval\n",
      clean ? "clean i with clean i, rows " : "", pairs);
  return out;
}

}  // namespace sinter::profiler
