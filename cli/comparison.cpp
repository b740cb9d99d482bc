#include "cli/comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "cli/process.h"
#include "core/json.h"
#include "core/text_grid.h"
#include "measure/inspect.h"
#include "profiler/thresholds.h"

namespace sinter::cli {

void add_comparison_flags(
    Flags& flags, FusionFlags& fusion, ComparisonFlags& comparison, int64_t fewest_steps) {
  comparison.view.table.scopes = false;
  comparison.stopped = interrupted;
  flags.topic("comparison");
  add_fusion_flags(flags, fusion);
  flags.number("steps", comparison.steps, fewest_steps, 1'000'000, "of a round");
  flags.number("warmup", comparison.warmup, 0, 1'000'000, "steps before each round, not measured");
  flags.number(
      "rounds", comparison.rounds, 1, 10'000, "pairs of rounds; fewer than 6 give no factor");
  flags
      .number("max-rel", comparison.max_rel, 0, 1,
          "largest difference allowed, relative to the tensor's largest value")
      .standard = "1e-5; tf32 2e-3, bf16 2e-2";
  not_saved(flags.toggle("blame", comparison.blame,
      "hold each op, eager and fused, against f64 and name the first that is wrong; no times"));
  not_saved(flags.word("devices", comparison.devices, "LIST", "with --blame: of cpu, simt, cuda"))
      .standard = "that of --device";
  add_view_flags(flags, comparison.view);
  not_saved(add_profile_flag(flags, comparison.files));
  add_output_flags(flags, comparison.files);
}

void fit_rounds(ComparisonFlags& comparison, const Flags& given, double steps, int64_t fewest) {
  const auto all = int64_t(std::min(steps, 1e6));
  if (!given.given("rounds"))
    comparison.rounds = std::clamp(all, std::min(fewest, comparison.rounds), comparison.rounds);
  const int64_t of_a_round = std::max<int64_t>(all / comparison.rounds, 1);
  if (!given.given("warmup")) comparison.warmup = std::min(comparison.warmup, of_a_round / 4);
  comparison.steps = std::clamp<int64_t>(of_a_round - comparison.warmup, 1, 20);
}

measure::Exports CompareRun::exports() const {
  const std::string device = comparison.device.str().substr(0, 4);  // without the number of a card
  return flags.files.exports(
      fmt::format("{}_b{}_{}_{}", case_name, batch, comparison.dtype, device));
}

void CompareRun::check_flags(const Flags& given, bool both) const {
  SINTER_CHECK(flags.blame || flags.devices.empty(), usage,
      str("usage: --devices needs --blame: --devices is ", escaped(flags.devices)),
      "one step on one device: --device");
  std::vector<std::string> others{"expect", "fail-on", "force"};
  const profiler::TableOptions& table = flags.view.table;  // whose memory stands below, too
  if (table.columns != "all" && asks_for_memory(table)) others.emplace_back("columns");
  check_table_flags(given, flags.files, others);
  if (!flags.files.formats.empty()) exports().check(flags.files.force);
  if (fusion.dump_graph.empty()) return;
  for (const std::string& file :
      both ? graph_files(fusion.dump_graph) : std::vector{fusion.dump_graph})
    check_writable(file, "--dump-graph", flags.files.force);
}

void CompareRun::blame(measure::BlameOptions options) const {
  const std::string devices = flags.devices.empty() ? comparison.device.str() : flags.devices;
  options.devices.clear();
  for (const std::string& name : split("usage: --devices", devices))
    options.devices.push_back(Device::parse(name));
  options.rules = capture::RuleSet(comparison.rules);
  const measure::Blame blame = measure::blame(comparison.captured().recorded, inputs, options);
  out.result("blame", "{}", comparison.title);
  out.result_text(blame.table(table_width()) + "\n");
  out.result("verdict", blame.verdict());
  out.json(
      "sinter.blame/1", {{"verdict", blame.verdict()}, {"first", blame.first}, {"ops", blame.ops}});
  const char* const rule = blame.first ? blame.ops[*blame.first].rule : nullptr;
  SINTER_CHECK(!blame.first, check, str(program, ": ", blame.verdict()),
      rule ? str("--rules=-", rule, " goes without it") : "");
  SINTER_CHECK(!blame.first_nan, numeric, str(program, ": ", blame.verdict()));
}

std::string CompareRun::kept(const Outcome& outcome) const {
  const std::vector<profiler::Kept> fused =
      profiler::kept_of(measure::describe_nodes(comparison.captured()));
  return profiler::kept_lines(profiler::kept_of(outcome.eager), &fused);
}

Outcome CompareRun::run(const std::string& parity) const {
  const bool tables = flags.files.has("table");
  measure::ComparisonOptions options = flags;
  if (tables || flags.rounds >= profiler::kMinPairs)
    options.roofs = [this] { return roofs_for(comparison.device, out); };
  const Outcome outcome = measure::compare(comparison, options);
  constexpr size_t kLabel = 8;
  out.result("compare", wrapped(str(comparison.title, "   ", flags.describe(comparison)),
                            prose_width() - kLabel, kLabel));
  if (tables) {
    out.result_text("\n" + outcome.eager.table(flags.view.table) + "\n" +
                    outcome.fused.table(flags.view.table));
  }
  out.result_text("\n" + measure::report(comparison, outcome,
                             {.parity = parity,
                                 .details = common.verbose,
                                 .explain = fusion.explain,
                                 .how_to_explain = "--explain",
                                 .next = next,
                                 .width = prose_width()}));
  if (profiler::asks_for_memory(flags.view.table)) out.result_text("\n" + kept(outcome));
  if (!flags.files.formats.empty()) write_files(outcome);
  if (!fusion.dump_graph.empty()) {
    const std::vector<std::string> graphs = graph_files(fusion.dump_graph);
    write_graph(graphs[0], comparison.captured().recorded);
    write_graph(graphs[1], comparison.captured().fused.graph);
    out.note("graphs", join(graphs));
  }
  return outcome;
}

void CompareRun::write_files(const Outcome& outcome) const {
  const measure::Exports files = exports();
  const measure::PageComparison on_page{outcome.headline, outcome.table.rows,
      measure::summary(comparison, outcome) + measure::details(comparison, outcome) +
          kept(outcome)};
  const std::string text =
      fmt::format("{}\n{}\n{}\nstep {}\n", outcome.eager.table(flags.view.table),
          outcome.fused.table(flags.view.table), outcome.table.text(), outcome.headline);
  const profiler::RunFacts facts{
      workload, common.command, build_name(), std::to_string(common.seed), batch};
  const profiler::Report reports[] = {outcome.eager, outcome.fused};
  std::string opened;
  if (files.has("html")) {
    opened = measure::Inspection(comparison.captured(), inputs,
        {.rules = capture::RuleSet(comparison.rules), .passes = 3, .picture = picture})
                 .json();
  }
  files.write(reports, facts, text, &on_page, opened);
  out.note("files", join(files.files()));
}

int CompareRun::stopped(int64_t pairs) const {
  return out.stopped(str("after ", pairs, " of ", count_of(flags.rounds, "pair"), " of rounds"));
}

double CompareRun::allowed() const {
  return flags.max_rel.value_or(comparison.dtype == "f32"    ? 1e-5
                                : comparison.dtype == "tf32" ? 2e-3
                                                             : 2e-2);
}

void CompareRun::check(const measure::Parity& parity) const {
  const measure::ParityRow* const row = parity.first_beyond();
  SINTER_CHECK(!row, check, str(program, ": results differ: ", row->where));
}

void CompareRun::check(const Outcome& outcome) const {
  Measured m{.only = &outcome.fused, .eager = &outcome.eager};
  // On a card it is what CUPTI takes of each call, which says nothing of the clean step.
  if (comparison.device == kCpu) {
    m.distortion =
        std::max(std::abs(outcome.eager.distortion()), std::abs(outcome.fused.distortion()));
  }
  if (outcome.ratio.has_interval) {
    if (!outcome.ratio.is_noisy()) m.speedup = outcome.ratio;
    m.noise = 100 * outcome.ratio.noise();
  }
  cli::check_view(program, flags.view, m);
}

void add_json(Json& object, const Comparison& comparison, const Outcome& outcome) {
  const measure::ComparedRow& total = outcome.table.total;
  const measure::ComparedRow clean{.eager_us = outcome.eager_us, .fused_us = outcome.fused_us};
  const capture::Rewriter& fused = comparison.captured().fused;
  object["eager_us"] = clean.eager_time();  // NaN, as the median of nothing is, is written as null
  object["fused_us"] = clean.fused_time();
  object["ratio"] = outcome.ratio.told();
  object["distrusted"] = outcome.distrusted;
  object["layouts"] = outcome.layouts;
  object["launches"] = {{"eager", std::llround(outcome.eager.launches_per_step())},
      {"fused", std::llround(outcome.fused.launches_per_step())}, {"complete", outcome.complete}};
  object["bytes"] = {{"eager", total.eager_bytes}, {"fused", total.fused_bytes}};
  object["flops"] = {{"eager", total.eager_flops}, {"fused", total.fused_flops}};
  if (outcome.ratio.has_interval) object["saving_us"] = outcome.saving().told();
  object["capture_ms"] = comparison.step->stats().capture_ms;
  object["details"] = parts_of(measure::details(comparison, outcome), "\n");
  object["details"].erase(object["details"].size() - 1);  // behind the last line
  object["near_misses"] = fused.misses.size();
  object["kept_unfused"] = measure::kept_unfused(fused);
  object["table"] = outcome.table.rows;
}

}  // namespace sinter::cli
