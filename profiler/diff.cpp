// diff(): two profiles against each other. The runs were apart, so drift of the machine between
// them is not in any interval: it says so.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "core/error.h"
#include "profiler/grid.h"
#include "profiler/profile.h"

namespace sinter::profiler {
namespace {

// What no factor can be given across, or "".
std::string unequal(const Profile& a, const Profile& b) {
  const auto differ = [](const char* what, const auto& x, const auto& y) {
    return cat(what, " ", x, " and ", y);
  };
  for (const Profile* p : {&a, &b}) {
    if (!p->incomplete.empty())
      return cat(p == &a ? "A" : "B", " is INCOMPLETE: ", p->incomplete[0]);
    if (p->device == "simt")
      return cat(p == &a ? "A" : "B", " ran on the emulator, whose times mean nothing");
  }
  if (a.device != b.device) return differ("device", a.device, b.device);
  if (a.workload != b.workload) return differ("workload", a.workload, b.workload);
  if (a.batch != b.batch) return differ("batch", a.batch, b.batch);
  if (a.dtype != b.dtype) return differ("dtype", a.dtype, b.dtype);
  if (a.seed != b.seed) return differ("seed", a.seed, b.seed);
  if (a.threads != b.threads) return differ("threads", a.threads, b.threads);
  return "";
}

// One value per round (its median step) where there are several rounds, else one per step.
std::vector<double> by_round(const Profile& p, const std::vector<int64_t>& samples, bool rounds) {
  std::map<int64_t, std::vector<double>> groups;
  for (size_t i = 0; i < samples.size(); ++i)
    groups[rounds ? p.steps[i].round : int64_t(i)].push_back(static_cast<double>(samples[i]));
  std::vector<double> out;
  for (const auto& [round, times] : groups) out.push_back(median(times));
  return out;
}

bool has_rounds(const Profile& p) {
  return !p.steps.empty() && p.steps.back().round != p.steps.front().round;
}

// The factor, or why there is none; `none` for an interval that holds 1.
std::string factor(
    const std::vector<double>& before, const std::vector<double>& after, const char* none) {
  const auto positive = [](const std::vector<double>& times) {
    return !times.empty() &&
           std::all_of(times.begin(), times.end(), [](double t) { return t > 0; });
  };
  if (before.size() != after.size())
    return fmt::format("no factor: {} against {} samples", before.size(), after.size());
  if (!positive(before) || !positive(after)) return "-";
  const Estimate ratio = paired_ratio(before, after);
  return none && (!ratio.has_interval || ratio.contains(1)) ? none
                                                            : factor_text(ratio, before.size());
}

}  // namespace

std::string diff(const Profile& a, const Profile& b) {
  std::string out;
  const Profile* const both_of[] = {&a, &b};
  for (int i = 0; i < 2; ++i) {
    const Profile* p = both_of[i];
    out += fmt::format("{}  {}   {}   batch {}   {}   {}, {} thread{}   seed {}{}\n", "AB"[i],
        escaped(p->title), escaped(p->workload), p -> batch, escaped(p->dtype), escaped(p->device),
        p -> threads, p -> threads == 1 ? "" : "s", escaped(p->seed),
        p->mode == "fused" ? "   rules " + escaped(p->rules) : "");
  }
  const std::string reason = unequal(a, b);
  const bool rounds = has_rounds(a) && has_rounds(b),
             clean = !a.clean_us.empty() && !b.clean_us.empty();
  std::array<std::vector<double>, 2> step;
  for (int i = 0; i < 2; ++i) {
    const Profile* p = both_of[i];
    std::vector<int64_t> ns;
    for (const ProfileStep& s : p->steps) ns.push_back(s.ns);
    std::vector<double>& times = step[i];
    times = clean ? p->clean_us : by_round(*p, ns, rounds);
    for (double& t : times) t *= clean ? 1 : 1e-3;
  }
  out += fmt::format("{} step {:.1f} -> {:.1f} us, {}\n", clean ? "clean" : "profiled",
      median(step[0]), median(step[1]),
      reason.empty() ? factor(step[0], step[1], nullptr) : "no factor: " + escaped(reason));

  // Rows of A in its order, then those that only B has.
  std::vector<std::array<const ProfileRow*, 2>> pairs;
  for (int i = 0; i < 2; ++i) {
    for (const ProfileRow& r : both_of[i]->rows) {
      if (r.kind != name_of(ScopeKind::op)) continue;
      const auto same = [&](const auto& q) {
        return q[0] && q[0]->name == r.name && q[0]->shapes == r.shapes;
      };
      const auto found = std::find_if(pairs.begin(), pairs.end(), same);
      if (i == 1 && found != pairs.end())
        (*found)[1] = &r;
      else
        pairs.push_back({i == 0 ? &r : nullptr, i == 0 ? nullptr : &r});
    }
  }
  // A row of fewer calls is faster by what it no longer does.
  const auto same_work = [&](const ProfileRow* x, const ProfileRow* y) {
    const auto in_a = static_cast<int64_t>(a.steps.size()),
               in_b = static_cast<int64_t>(b.steps.size());
    return x && y && x->calls * in_b == y->calls * in_a && x->flops * in_b == y->flops * in_a;
  };
  Grid grid({"Self us", "Launches", "kB", "<Ratio", "<Name"});
  const bool bounds = a.source == name_of(Source::event) || b.source == name_of(Source::event);
  for (const auto& [x, y] : pairs) {
    const auto both = [&](auto&& value, int digits) {
      const auto one = [&](const ProfileRow* r, const Profile& p) {
        return r ? fmt::format("{:.{}f}",
                       static_cast<double>(value(*r)) / static_cast<double>(p.steps.size()), digits)
                 : "-";
      };
      return one(x, a) + " -> " + one(y, b);
    };
    grid.add({both([](const ProfileRow& r) { return static_cast<double>(r.judged_ns()) / 1e3; }, 1),
        both([](const ProfileRow& r) { return r.launches; }, 0),
        both([](const ProfileRow& r) { return static_cast<double>(r.bytes()) / 1e3; }, 1),
        same_work(x, y) && reason.empty() && !bounds
            ? factor(by_round(a, x->samples, rounds), by_round(b, y->samples, rounds), "-")
            : "-",
        escaped((x ? x : y)->name)});
  }
  out += grid.text();
  const char* pairs_of = rounds ? "round i with round i" : "step i with step i";
  out += fmt::format(
      "factors: B against A, {}{}; the runs were apart, so drift of the machine between them is in "
      "no interval\n",
      clean ? "clean i with clean i, rows " : "", pairs_of);
  return out;
}

}  // namespace sinter::profiler
