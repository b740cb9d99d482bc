#include "examples/cli/contest.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>

#include "capture/explain.h"
#include "core/device/launch_log.h"
#include "core/device/memory.h"
#include "core/parallel.h"
#include "examples/cli/signals.h"
#include "examples/cli/text.h"
#include "profiler/session.h"

namespace sinter::cli {
namespace {

using Clock = std::chrono::steady_clock;

double round_us(const std::function<void()>& step, Device device, const ContestFlags& flags) {
  for (int64_t i = 0; i < flags.warmup; ++i) step();
  synchronize(device);
  std::vector<double> times;
  const int64_t per_sample = device == kCpu ? 1 : flags.steps;  // elsewhere waiting for the device is no part of a step
  for (int64_t i = 0; i < flags.steps; i += per_sample) {
    const auto begin = Clock::now();
    for (int64_t n = 0; n < per_sample; ++n) step();
    synchronize(device);
    times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count() / static_cast<double>(per_sample));
  }
  return profiler::median(times);
}

struct ProfiledRound {
  std::vector<double> launch_us;  // of each of the wanted launches; empty if a step had another number
  double step_us = 0;
  int64_t launches = 0;  // counted in the first step
};

ProfiledRound profiled_round(const std::function<void()>& step, const ContestFlags& flags, size_t launches) {
  profiler::Session session({.schedule = {.wait = 0, .warmup = static_cast<int>(flags.warmup), .active = static_cast<int>(flags.steps)},
                             .threads = num_threads()});
  while (!session.done()) {
    step();
    session.step();
  }
  const profiler::Report report = session.finish();
  std::vector<double> steps;
  for (const profiler::StepSample& s : report.steps) steps.push_back(static_cast<double>(s.ns()) * 1e-3);
  const profiler::Rows rows = report.rows();
  const auto launched = [&](const profiler::OpCall& c) {
    return c.step_index == rows.calls[0].step_index && rows.rows[c.row].launches > 0;
  };
  return {.launch_us = capture::launch_times_us(report, launches),
          .step_us = profiler::median(steps),
          .launches = std::count_if(rows.calls.begin(), rows.calls.end(), launched)};
}

// Kernels of one step; those of a CUDA graph were counted when it was made.
int64_t counted_launches(const std::function<void()>& step, const capture::Executor* executor) {
  const int64_t before = launch_count();
  step();
  return executor && executor->calls() < executor->launches() ? static_cast<int64_t>(executor->launches()) : launch_count() - before;
}

}  // namespace

void Worst::see(const std::string& seen, const Tensor& fused, const Tensor& eager) {
  const std::vector<double> a = fused.to_vector<double>(), b = eager.to_vector<double>();
  double scale = 0, difference = 0;
  size_t at = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double d = std::abs(a[i] - b[i]);
    if (!(d <= difference)) difference = std::isnan(d) ? INFINITY : d, at = i;
    scale = std::max(scale, std::abs(b[i]));
  }
  const double r = difference == 0 ? 0 : difference / std::max(scale, 1e-30);
  absolute = std::max(absolute, difference);
  if (r <= relative) return;
  relative = r;
  name = seen;
  where.clear();
  for (int d = eager.rank() - 1; d >= 0; --d) {
    where = cat(static_cast<int64_t>(at) % eager.size(d), where.empty() ? "" : ", ", where);
    at /= static_cast<size_t>(eager.size(d));
  }
  where = cat(name, " at [", where, "]");
}

void add_contest_flags(Flags& flags, ContestFlags& contest) {
  flags.topic("comparison");
  flags.integer("steps", contest.steps, std::min<int64_t>(contest.steps, 1), 1'000'000, "of a round");
  flags.integer("warmup", contest.warmup, 0, 1'000'000, "steps before each round, not measured");
  flags.integer("rounds", contest.rounds, 1, 10'000, "pairs of rounds; fewer than 6 give no factor");
  flags.number("max-rel", contest.max_rel, 0, 1, "1e-5, bf16 2e-2", "largest difference allowed, relative to the tensor's largest value");
}

std::string Contest::rounds(const ContestFlags& flags) const {
  if (!timed()) return "one step of each";
  return fmt::format("{} of rounds x {}, {} warm-up", count_of(flags.rounds, "pair"), count_of(flags.steps, "step"), flags.warmup);
}

std::vector<double> rounds_us(const std::function<void()>& step, Device device, const ContestFlags& flags) {
  std::vector<double> us;
  for (int64_t round = 0; round < flags.rounds && !interrupted(); ++round) us.push_back(round_us(step, device, flags));
  return us;
}

Outcome run_contest(const Contest& contest, const ContestFlags& flags) {
  const capture::Captured& captured = contest.captured();
  const size_t eager_launches = captured.recorded.nodes.size(), fused_launches = captured.executor->launches();
  Outcome out;
  std::vector<std::pair<std::vector<double>, std::vector<double>>> profiled;
  for (int64_t round = 0; contest.timed() && round < flags.rounds && !interrupted(); ++round) {
    for (const bool fused : {round % 2 == 1, round % 2 == 0})
      (fused ? out.fused_us : out.eager_us).push_back(round_us(fused ? contest.fused : contest.eager, contest.device, flags));
  }
  for (int64_t round = 0; contest.profiles() && round < flags.rounds && !interrupted(); ++round) {
    std::pair<std::vector<double>, std::vector<double>> times;
    for (const bool fused : {round % 2 == 1, round % 2 == 0}) {
      ProfiledRound r = profiled_round(fused ? contest.fused : contest.eager, flags, fused ? fused_launches : eager_launches);
      (fused ? times.second : times.first) = std::move(r.launch_us);
      (fused ? out.profiled_fused : out.profiled_eager).push_back(r.step_us);
      (fused ? out.counted_fused : out.counted_eager) = r.launches;
    }
    out.complete = out.complete && !times.first.empty() && !times.second.empty();
    if (out.complete) profiled.push_back(std::move(times));
  }
  if (interrupted()) return out;
  if (!contest.profiles()) {
    out.counted_eager = counted_launches(contest.eager, nullptr);
    out.counted_fused = counted_launches(contest.fused, captured.executor.get());
    out.complete = out.counted_eager == static_cast<int64_t>(eager_launches) && out.counted_fused == static_cast<int64_t>(fused_launches);
  }
  out.ledger = capture::make_ledger(captured, profiled);
  if (contest.timed()) out.ratio = profiler::paired_ratio(out.eager_us, out.fused_us);
  return out;
}

void print_contest(const Contest& contest, const ContestFlags& flags, const Outcome& outcome, const std::string& parity, Output& out) {
  const capture::Captured& captured = contest.captured();
  const double e = profiler::median(outcome.eager_us), f = profiler::median(outcome.fused_us), saved = e - f;
  out.result("compare", fmt::format("{}   {}", contest.title, contest.rounds(flags)));
  out.result_text("\n" + outcome.ledger.table() + "\n");
  const bool shown = outcome.ratio.has_interval && !outcome.ratio.contains(1);  // a difference
  const std::string step_text = contest.timed() ? fmt::format("{:.1f} -> {:.1f} us{}{}", e, f, shown ? " = " : ", ",
                                                              profiler::factor_text(outcome.ratio, outcome.eager_us.size()))
                                                : "- -> -, not timed on simt";
  out.result_text(
      fmt::format("step {}   launches: claimed {}, counted {}{}\n", step_text, captured.executor->launches(), outcome.counted_fused,
                  outcome.complete ? "" : cat("   INCOMPLETE: a ", contest.profiles() ? "profiled " : "", "step has other launches")));
  if (contest.profiles()) {
    const double pe = profiler::median(outcome.profiled_eager), pf = profiler::median(outcome.profiled_fused);
    out.result_text(fmt::format("profiled {:.1f} and {:.1f} us: distortion {:+.1f} % and {:+.1f} %; the ledger only apportions\n", pe, pf,
                                100 * (pe / e - 1), 100 * (pf / f - 1)));
  }
  const double capture_ms = contest.step->stats().capture_ms;
  out.result_text(
      fmt::format("capture {:.1f} ms, shape-specialised{}; arena {:.1f} kB\n", capture_ms,
                  shown && saved > 0 ? ", pays back after " + count_of(std::llround(std::ceil(capture_ms * 1e3 / saved)), "replay") : "",
                  static_cast<double>(captured.executor->plan().bytes) * 1e-3));
  const auto mflop = [](int64_t flops) { return fmt::format("{:.3f}", static_cast<double>(flops) * 1e-6); };
  const std::string eager_mflop = mflop(outcome.ledger.total.eager_flops), fused_mflop = mflop(outcome.ledger.total.fused_flops);
  out.result_text(fmt::format(
      "{}   {}\n",
      eager_mflop == fused_mflop ? fmt::format("same: {} MFLOP", eager_mflop) : fmt::format("MFLOP {} -> {}", eager_mflop, fused_mflop),
      parity));
  const std::vector<capture::Group>& groups = captured.fused.groups;
  const auto kept = std::count_if(groups.begin(), groups.end(), [](const capture::Group& g) { return g.kept_unfused; });
  if (kept || !captured.fused.misses.empty()) {
    out.result_text(fmt::format("not fused: {}, {} not faster here{}\n",
                                count_of(static_cast<int64_t>(captured.fused.misses.size()), "near miss", "es"), count_of(kept, "group"),
                                contest.explain ? "" : " (--explain)"));
  }
  if (contest.explain) out.result_text("\n" + capture::explain(captured, capture::RuleSet(contest.rules)));
}

void add_json(nlohmann::ordered_json& object, const Contest& contest, const Outcome& outcome) {
  const auto number = [](double x, bool known) { return known ? nlohmann::ordered_json(x) : nlohmann::ordered_json(); };
  const profiler::Estimate& ratio = outcome.ratio;
  const capture::Ledger& ledger = outcome.ledger;
  const capture::Rewriter& fused = contest.captured().fused;
  object["eager_us"] = number(profiler::median(outcome.eager_us), contest.timed());
  object["fused_us"] = number(profiler::median(outcome.fused_us), contest.timed());
  object["ratio"] = {{"value", number(ratio.value, ratio.has_interval)},
                     {"low", number(ratio.low, ratio.has_interval)},
                     {"high", number(ratio.high, ratio.has_interval)}};
  object["launches"] = {{"eager", outcome.counted_eager}, {"fused", outcome.counted_fused}, {"complete", outcome.complete}};
  object["bytes"] = {{"eager", ledger.total.eager_bytes}, {"fused", ledger.total.fused_bytes}};
  object["flops"] = {{"eager", ledger.total.eager_flops}, {"fused", ledger.total.fused_flops}};
  object["capture_ms"] = contest.step->stats().capture_ms;
  object["near_misses"] = fused.misses.size();
  object["kept_unfused"] = std::count_if(fused.groups.begin(), fused.groups.end(), [](const auto& g) { return g.kept_unfused; });
  object["ledger"] = nlohmann::ordered_json::array();
  for (const capture::LedgerRow& row : ledger.rows) {
    const bool timed = !row.eager_us.empty();
    object["ledger"].push_back({{"fused", row.fused},
                                {"eager", row.eager},
                                {"verdict", row.verdict},
                                {"launches", {row.eager_launches, row.fused_launches}},
                                {"self_us", {number(profiler::median(row.eager_us), timed), number(profiler::median(row.fused_us), timed)}},
                                {"bytes", {row.eager_bytes, row.fused_bytes}}});
  }
}

}  // namespace sinter::cli
