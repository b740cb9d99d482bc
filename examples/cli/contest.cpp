#include "examples/cli/contest.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>

#include "capture/explain.h"
#include "capture/measure.h"
#include "core/device/memory.h"
#include "core/device/timing.h"
#include "core/parallel.h"
#include "examples/cli/signals.h"
#include "examples/cli/text.h"
#include "profiler/session.h"
#include "profiler/thresholds.h"

namespace sinter::cli {
namespace {

struct Kind {
  const char* mode;
  const std::function<void()>& step;
  const capture::Step* captured;  // null: runs op by op
  const capture::Graph& graph;
};

profiler::Report profiled_round(const Contest& contest, const Kind& kind, const ContestFlags& flags,
    const std::optional<profiler::Roofs>& roofs) {
  const bool replayed =
      kind.captured && kind.captured->captured()->executor->calls() < kind.graph.nodes.size();
  const char* type = contest.device.type == Device::Type::cuda ? "CUDA"
                     : contest.device == kCpu                  ? "CPU"
                                                               : "simt";
  const int64_t arena = kind.captured ? kind.captured->captured()->executor->plan().bytes : 0;
  profiler::Session session({.schedule = {.wait = 0,
                                 .warmup = contest.timed() ? static_cast<int>(flags.warmup) : 0,
                                 .active = contest.timed() ? static_cast<int>(flags.steps) : 1},
      .title = fmt::format("{} {}", type, kind.mode),
      .threads = num_threads(),
      .device = contest.device,
      .mode = kind.mode,
      .rules = std::string_view(kind.mode) == "fused" ? contest.rules : "",
      .dtype = contest.dtype,
      .replayed = replayed,
      .roofs = roofs,
      .resident_bytes = capture::touched_bytes(kind.graph, arena)});
  while (!session.done()) {
    kind.step();
    session.step();
  }
  profiler::Report report = session.finish();
  if (replayed) report.nodes = capture::describe_nodes(*kind.captured->captured());
  return report;
}

void append(profiler::Report& all, profiler::Report round) {
  all.steps.empty() ? void(all = std::move(round)) : all.append(std::move(round));
}

// What each of the two changes should have saved, by roofs and host cost, beside what it saved; a
// proof far off asks to be looked at.
std::string proof(
    const char* what, const std::string& why, double predicted, double measured, bool shown) {
  if (!shown)
    return fmt::format(
        "proof, {}: {} | predicted {:.1f}, no difference shown", what, why, predicted);
  const double parts = predicted != 0 ? measured / predicted : 0;
  const bool look = parts < profiler::kProofLow || parts > profiler::kProofHigh;
  return fmt::format("proof, {}: {} | predicted {:.1f} measured {:.1f} ({:.0f} %){}", what, why,
      predicted, measured, 100 * parts, look ? "  LOOK" : "");
}

std::vector<std::string> proofs(const Contest& contest, const Outcome& o) {
  const profiler::Ceiling c = o.eager.ceiling();
  if (!o.ratio.has_interval || !c.known() ||
      o.eager.incomplete.size() + o.fused.incomplete.size() > 0)
    return {};
  if (o.ratio.is_noisy() || !o.eager.busy().empty() || !o.fused.busy().empty()) return {};
  const capture::Captured& captured = contest.captured();
  const bool shown = o.ratio.is_shown();
  const double e = profiler::median(o.eager_us), f = profiler::median(o.fused_us),
               host = o.eager.roofs->op_ns / 1e3;
  const double fewer = static_cast<double>(captured.recorded.nodes.size()) -
                       static_cast<double>(captured.fused.graph.nodes.size());
  const double traffic =
      static_cast<double>(o.ledger.total.eager_bytes - o.ledger.total.fused_bytes) /
      c.bytes_per_ns / 1e3;
  if (contest.device == kCpu) {
    std::vector<double> saved;
    for (size_t i = 0; i < o.eager_us.size(); ++i) saved.push_back(o.eager_us[i] - o.fused_us[i]);
    const double kilobytes =
        1e-3 * static_cast<double>(o.ledger.total.eager_bytes - o.ledger.total.fused_bytes);
    return {estimate_text(
        {fewer, host, kilobytes, c.bytes_per_ns, c.in_cache}, profiler::median_interval(saved))};
  }
  if (o.listed_us.empty() || o.ledger.total.eager_us.empty()) return {};
  // A step takes the longer of what the host needs to issue it (H) and what the device needs to run
  // it (D).
  const double listed = profiler::median(o.listed_us),
               n = static_cast<double>(captured.recorded.nodes.size()), m = n - fewer;
  const double de = profiler::median(o.ledger.total.eager_us),
               df = profiler::median(o.ledger.total.fused_us);
  const double rest = std::max(0.0, e - n * host), he = n * host + rest, hf = m * host + rest;
  const double gaps = o.fused.source == profiler::Source::cupti
                          ? m * o.fused.roofs->node_gap_ns / 1e3
                          : 0;  // else df holds them
  const double predicted_listed = std::max(hf, df), predicted_graph = std::max(host, df + gaps);
  const auto bound = [](double h, double d) { return h > d ? "host-bound" : "device-bound"; };
  return {
      proof("fusion",
          fmt::format("{:+.0f} launches x {:.1f}us = {:.1f}us; {} before, {} after, {:+.1f}us on "
                      "the device and {:+.1f} kB",
              -fewer, host, fewer * host, bound(he, de), bound(hf, df), df - de,
              static_cast<double>(o.ledger.total.fused_bytes - o.ledger.total.eager_bytes) / 1e3),
          std::max(he, de) - predicted_listed, e - listed, shown),
      proof("replay",
          fmt::format("{} {:.1f} -> {} {:.1f}us", bound(hf, df), predicted_listed, bound(host, df),
              predicted_graph),
          predicted_listed - predicted_graph, listed - f, shown),
      fmt::format("the bytes alone would save {:.1f}us", traffic)};
}

}  // namespace

std::string estimate_text(const Saving& expected, const profiler::Estimate& saved_us) {
  const double low = expected.low_us(), high = expected.high_us();
  const auto side = [](double us, bool is_low) {
    return us * ((us > 0) == is_low ? profiler::kProofLow : profiler::kProofHigh);
  };
  const bool look = saved_us.high < side(low, true) || saved_us.low > side(high, false);
  const std::string bytes =
      expected.in_cache ? fmt::format("0 to {:.1f}us, as they fit the cache", expected.bytes_us())
                        : fmt::format("{:.1f}us", expected.bytes_us());
  const std::string sum =
      low == high ? fmt::format("{:.1f}", low) : fmt::format("{:.1f} to {:.1f}", low, high);
  return fmt::format(
      "estimate: {:+.0f} launches x {:.2f}us, and {:+.1f} kB at {:.0f} GB/s = {} | expected {}us, "
      "saved "
      "{:.1f} [{:.1f},{:.1f}]{}",
      -expected.launches, expected.launch_us, -expected.kilobytes, expected.copy_gbs, bytes, sum,
      saved_us.value, saved_us.low, saved_us.high, look ? "  LOOK" : "");
}

double round_us(const std::function<void()>& step, Device device, int64_t warmup, int64_t steps) {
  using Clock = std::chrono::steady_clock;
  for (int64_t i = 0; i < warmup; ++i) step();
  synchronize(device);
  std::vector<double> times;
  for (int64_t i = 0; i < steps; ++i) {
    const auto begin = Clock::now();
    step();
    synchronize(device);
    times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
  }
  return profiler::median(times);
}

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
  flags.integer("steps", contest.steps, 1, 1'000'000, "of a round");
  flags.integer("warmup", contest.warmup, 0, 1'000'000, "steps before each round, not measured");
  flags.integer(
      "rounds", contest.rounds, 1, 10'000, "pairs of rounds; fewer than 6 give no factor");
  flags.number("max-rel", contest.max_rel, 0, 1, "1e-5; tf32 2e-3, bf16 2e-2",
      "largest difference allowed, relative to the tensor's largest value");
  add_view_flags(flags, contest.view);
}

void fit_rounds(ContestFlags& contest, const Flags& given, double steps, int64_t fewest) {
  const auto all = static_cast<int64_t>(std::min(steps, 1e6));
  if (!given.given("rounds"))
    contest.rounds = std::clamp(all, std::min(fewest, contest.rounds), contest.rounds);
  const int64_t of_a_round = std::max<int64_t>(all / contest.rounds, 1);
  if (!given.given("warmup")) contest.warmup = std::min(contest.warmup, of_a_round / 4);
  contest.steps = std::clamp<int64_t>(of_a_round - contest.warmup, 1, 20);
}

std::string Contest::rounds(const ContestFlags& flags) const {
  if (!timed()) return "one step of each";
  return fmt::format("{} of rounds x {}, {} warm-up", count_of(flags.rounds, "pair"),
      count_of(flags.steps, "step"), flags.warmup);
}

Measured Outcome::measured(const Contest& contest) const {
  Measured m{.only = &fused, .eager = &eager};
  if (!contest.timed()) return m;
  // An instrumented graph is slower by its event nodes: that says nothing of the clean one.
  if (contest.device == kCpu)
    m.distortion = std::max(std::abs(eager.distortion()), std::abs(fused.distortion()));
  if (ratio.has_interval) {
    if (!ratio.is_noisy()) m.speedup = ratio;
    m.noise = 100 * ratio.noise();
  }
  return m;
}

Outcome run_contest(const Contest& contest, const ContestFlags& flags, Output& out) {
  const capture::Captured& captured = contest.captured();
  const bool cuda = contest.device.type == Device::Type::cuda;
  const std::optional<profiler::Roofs> roofs = flags.tables || flags.rounds >= profiler::kMinPairs
                                                   ? roofs_for(contest.device, out)
                                                   : std::nullopt;
  Outcome o;
  for (int64_t round = 0; contest.timed() && round < flags.rounds && !interrupted(); ++round) {
    std::vector<std::pair<std::vector<double>*, const std::function<void()>*>> order = {
        {&o.eager_us, &contest.eager}, {&o.fused_us, &contest.fused}};
    if (contest.listed) order.insert(order.begin() + 1, {&o.listed_us, &contest.listed});
    if (round % 2 == 1) std::reverse(order.begin(), order.end());
    for (const auto& [times, step] : order)
      times->push_back(round_us(*step, contest.device, flags.warmup, flags.steps));
  }
  // Events are bounds only: without the device's own records the eager kernels are timed in a
  // replay of the unfused graph.
  const bool replay_eager = cuda && contest.eager_replayed && !cuda::has_records();
  const Kind eager{"eager", replay_eager ? contest.eager_replayed : contest.eager,
      replay_eager ? contest.eager_step : nullptr, captured.recorded},
      fused{"fused", contest.fused, contest.step, captured.fused.graph};
  std::vector<std::pair<std::vector<double>, std::vector<double>>> profiled;
  bool timed = contest.timed();
  const int64_t rounds = contest.timed() ? static_cast<int64_t>(o.eager_us.size()) : 1;
  for (int64_t round = 0; round < rounds && (round == 0 || !interrupted()); ++round) {
    std::pair<std::vector<double>, std::vector<double>> times;
    for (const bool is_fused : {round % 2 == 1, round % 2 == 0}) {
      const Kind& kind = is_fused ? fused : eager;
      profiler::Report report = profiled_round(contest, kind, flags, roofs);
      (is_fused ? times.second : times.first) =
          capture::launch_times_us(report, kind.graph.nodes.size());
      timed = timed && report.source != profiler::Source::event &&
              report.source != profiler::Source::none;
      append(is_fused ? o.fused : o.eager, std::move(report));
    }
    o.complete = o.complete && !times.first.empty() && !times.second.empty() &&
                 o.fused.launches_per_step() == static_cast<double>(captured.executor->launches());
    if (o.complete && timed) profiled.push_back(std::move(times));
  }
  SINTER_CHECK(!o.fused.steps.empty(), interrupted,
      "compare: interrupted before the first pair of rounds was over");
  o.complete = o.complete && o.eager.incomplete.empty() && o.fused.incomplete.empty();
  o.eager.clean_us = o.eager_us, o.fused.clean_us = o.fused_us;
  o.eager.candidates = capture::candidates(captured);
  o.ledger = capture::make_ledger(captured, profiled);
  if (contest.device != kCpu) {
    o.ledger.times = "Self CUDA us";
    o.ledger.total.eager = fmt::format(
        "API calls {} -> {}", captured.recorded.nodes.size(), captured.executor->calls());
  }
  o.headline = "- -> -, not timed on simt";
  if (contest.timed()) {
    o.ratio = profiler::paired_ratio(o.eager_us, o.fused_us);
    const std::string middle =
        o.listed_us.empty()
            ? ""
            : fmt::format("{:.1f} (fused, launched one by one) -> ", profiler::median(o.listed_us));
    o.headline = fmt::format("{:.1f} -> {}{:.1f} us{}{}", profiler::median(o.eager_us), middle,
        profiler::median(o.fused_us), o.ratio.is_shown() ? " = " : ", ",
        profiler::factor_text(o.ratio, o.eager_us.size()));
  }
  o.proof = proofs(contest, o);
  if (contest.timed()) check_roofs(o.eager, out);
  return o;
}

void print_contest(const Contest& contest, const ContestFlags& flags, const Outcome& outcome,
    const std::string& parity, Output& out) {
  const capture::Captured& captured = contest.captured();
  const double e = profiler::median(outcome.eager_us), f = profiler::median(outcome.fused_us),
               saved = e - f;
  const std::string grades = flags.view.guess ? guess(outcome.fused, out) : "";
  out.result("compare", fmt::format("{}   {}", contest.title, contest.rounds(flags)));
  if (flags.tables || flags.view.guess) {
    out.result_text("\n" + outcome.eager.table(flags.view.table) + "\n" +
                    outcome.fused.table(flags.view.table) + grades);
  }
  out.result_text("\n" + outcome.ledger.table() + "\n");
  const bool shown = outcome.ratio.is_shown();
  out.result_text(fmt::format("step {}   launches: claimed {}, counted {:.0f}{}\n",
      outcome.headline, captured.executor->launches(), outcome.fused.launches_per_step(),
      outcome.complete ? "" : "   INCOMPLETE: a profiled step has other launches, or lost some"));
  if (contest.device == kCpu) {
    out.result_text(fmt::format(
        "profiled rounds: distortion {:+.1f} % and {:+.1f} %; the ledger only apportions\n",
        outcome.eager.distortion(), outcome.fused.distortion()));
  }
  const std::string eager_busy = outcome.eager.busy(), fused_busy = outcome.fused.busy();
  if (!eager_busy.empty()) out.result_text(fmt::format("eager: {}\n", eager_busy));
  if (!fused_busy.empty() && fused_busy != eager_busy)
    out.result_text(fmt::format("fused: {}\n", fused_busy));
  for (const std::string& line : outcome.proof) out.result_text(line + "\n");
  const double capture_ms = contest.step->stats().capture_ms;
  out.result_text(fmt::format("capture {:.1f} ms, shape-specialised{}; arena {:.1f} kB\n",
      capture_ms,
      shown && saved > 0 ? ", pays back after " +
                               count_of(std::llround(std::ceil(capture_ms * 1e3 / saved)), "replay")
                         : "",
      static_cast<double>(captured.executor->plan().bytes) * 1e-3));
  const auto mflop = [](int64_t flops) {
    return fmt::format("{:.3f}", static_cast<double>(flops) * 1e-6);
  };
  const std::string eager_mflop = mflop(outcome.ledger.total.eager_flops),
                    fused_mflop = mflop(outcome.ledger.total.fused_flops);
  out.result_text(fmt::format("{}   {}\n",
      eager_mflop == fused_mflop ? fmt::format("same: {} MFLOP", eager_mflop)
                                 : fmt::format("MFLOP {} -> {}", eager_mflop, fused_mflop),
      parity));
  const std::vector<capture::Group>& groups = captured.fused.groups;
  const auto kept = std::count_if(
      groups.begin(), groups.end(), [](const capture::Group& g) { return g.kept_unfused; });
  if (kept || !captured.fused.misses.empty()) {
    out.result_text(fmt::format("not fused: {}, {} not faster here{}\n",
        count_of(static_cast<int64_t>(captured.fused.misses.size()), "near miss", "es"),
        count_of(kept, "group"), contest.explain ? "" : " (--explain)"));
  }
  if (const int64_t open = capture::not_judged(captured.fused); open > 0)
    out.result_text(fmt::format(
        "measure: the machine is too busy to judge {}: fused\n", count_of(open, "group")));
  if (contest.explain)
    out.result_text("\n" + capture::explain(captured, capture::RuleSet(contest.rules),
                               capture::rules(), outcome.eager.ceiling()));
}

void add_json(nlohmann::ordered_json& object, const Contest& contest, const Outcome& outcome) {
  const auto number = [](double x, bool known) {
    return known ? nlohmann::ordered_json(x) : nlohmann::ordered_json();
  };
  const profiler::Estimate& ratio = outcome.ratio;
  const capture::Ledger& ledger = outcome.ledger;
  const capture::Rewriter& fused = contest.captured().fused;
  object["eager_us"] = number(profiler::median(outcome.eager_us), contest.timed());
  object["fused_us"] = number(profiler::median(outcome.fused_us), contest.timed());
  object["ratio"] = {{"value", number(ratio.value, ratio.has_interval)},
      {"low", number(ratio.low, ratio.has_interval)},
      {"high", number(ratio.high, ratio.has_interval)}};
  object["launches"] = {{"eager", std::llround(outcome.eager.launches_per_step())},
      {"fused", std::llround(outcome.fused.launches_per_step())}, {"complete", outcome.complete}};
  object["bytes"] = {{"eager", ledger.total.eager_bytes}, {"fused", ledger.total.fused_bytes}};
  object["flops"] = {{"eager", ledger.total.eager_flops}, {"fused", ledger.total.fused_flops}};
  object["capture_ms"] = contest.step->stats().capture_ms;
  object["near_misses"] = fused.misses.size();
  object["kept_unfused"] = std::count_if(
      fused.groups.begin(), fused.groups.end(), [](const auto& g) { return g.kept_unfused; });
  object["ledger"] = nlohmann::ordered_json::array();
  for (const capture::LedgerRow& row : ledger.rows) {
    const bool timed = !row.eager_us.empty();
    object["ledger"].push_back({{"fused", row.fused}, {"eager", row.eager},
        {"verdict", row.verdict}, {"launches", {row.eager_launches, row.fused_launches}},
        {"self_us", {number(profiler::median(row.eager_us), timed),
                        number(profiler::median(row.fused_us), timed)}},
        {"bytes", {row.eager_bytes, row.fused_bytes}}});
  }
}

}  // namespace sinter::cli
