#include "examples/cli/contest.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "examples/cli/signals.h"
#include "examples/cli/text.h"
#include "profiler/thresholds.h"

namespace sinter::cli {

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

Outcome run_contest(const Contest& contest, ContestFlags flags, Output& out) {
  if (flags.tables || flags.rounds >= profiler::kMinPairs)
    flags.roofs = roofs_for(contest.device, out);
  flags.stopped = interrupted;
  const Outcome outcome = measure::compare(contest, flags);
  if (contest.timed()) check_roofs(outcome.eager, out);
  return outcome;
}

void print_contest(const Contest& contest, const ContestFlags& flags, const Outcome& outcome,
    const std::string& parity, bool explain, Output& out) {
  const std::string grades = flags.view.guess ? guess(outcome.fused, out) : "";
  out.result("compare", fmt::format("{}   {}", contest.title, flags.describe(contest)));
  if (flags.tables || flags.view.guess) {
    out.result_text("\n" + outcome.eager.table(flags.view.table) + "\n" +
                    outcome.fused.table(flags.view.table) + grades);
  }
  out.result_text(measure::report(
      contest, outcome, {.parity = parity, .explain = explain, .how_to_explain = "--explain"}));
}

Measured measured(const Contest& contest, const Outcome& outcome) {
  Measured m{.only = &outcome.fused, .eager = &outcome.eager};
  if (!contest.timed()) return m;
  // An instrumented graph is slower by its event nodes: that says nothing of the clean one.
  if (contest.device == kCpu) {
    m.distortion =
        std::max(std::abs(outcome.eager.distortion()), std::abs(outcome.fused.distortion()));
  }
  if (outcome.ratio.has_interval) {
    if (!outcome.ratio.is_noisy()) m.speedup = outcome.ratio;
    m.noise = 100 * outcome.ratio.noise();
  }
  return m;
}

void add_json(nlohmann::ordered_json& object, const Contest& contest, const Outcome& outcome) {
  const auto number = [](double x, bool known) {
    return known ? nlohmann::ordered_json(x) : nlohmann::ordered_json();
  };
  const profiler::Estimate& ratio = outcome.ratio;
  const measure::Ledger& ledger = outcome.ledger;
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
  for (const measure::LedgerRow& row : ledger.rows) {
    const bool timed = !row.eager_us.empty();
    object["ledger"].push_back({{"fused", row.fused}, {"eager", row.eager},
        {"verdict", row.verdict}, {"launches", {row.eager_launches, row.fused_launches}},
        {"self_us", {number(profiler::median(row.eager_us), timed),
                        number(profiler::median(row.fused_us), timed)}},
        {"bytes", {row.eager_bytes, row.fused_bytes}}});
  }
}

}  // namespace sinter::cli
