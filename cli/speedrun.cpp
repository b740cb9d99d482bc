// speedrun: trains a job's preset over several seeds; its metric and the training time with
// intervals, and whether its target holds. The runs are those of `train`, one after the other in
// one process, so the first also pays for what a process does once; they write nothing. Where rows
// are held out the metric is that of them: a recipe is chosen by them, and never by the test set.
// With --budget a run ends after so many seconds, and its loss stands beside that of the last
// steps.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "cli/process.h"
#include "cli/run.h"
#include "core/json.h"
#include "core/parallel.h"
#include "profiler/roofs.h"
#include "profiler/stats.h"

namespace sinter::cli {
namespace {

struct SpeedrunFlags {
  int64_t seeds = 5;
  std::optional<double> target_seconds, budget;
};

struct SeedRow {
  uint64_t seed;
  int64_t steps;
  double metric, loss, seconds;  // the metric as it is shown
  double recent_loss;            // with a budget: of the last steps
};

struct Speedrun {
  Metric metric;
  std::string set{};  // of the rows that were read: "test", or "held-out"
  int64_t rows = 0;
  std::vector<SeedRow> runs{};
  profiler::Estimate mean{}, seconds{}, loss{}, recent_loss{};
  std::optional<double> target, target_seconds, budget;

  std::vector<double> all(double SeedRow::*number) const {
    std::vector<double> out;
    for (const SeedRow& run : runs) out.push_back(run.*number);
    return out;
  }
  int64_t steps() const {  // their mean: without a budget all have as many
    double sum = 0;
    for (const SeedRow& run : runs) sum += double(run.steps);
    return std::llround(sum / double(runs.size()));
  }
  double worst() const {
    const std::vector<double> found = all(&SeedRow::metric);
    return metric.rises ? std::ranges::min(found) : std::ranges::max(found);
  }
  // Does it hold for the whole interval of the mean? Nothing where no target is set.
  std::optional<bool> holds() const {
    if (!target && !target_seconds) return {};
    return (!target || metric.reaches(metric.rises ? mean.low : mean.high, *target)) &&
           (!target_seconds || seconds.high <= *target_seconds);
  }
  std::string target_text() const {
    return str(target ? fmt::format("{}{}", *target, metric.unit) : "any", " in ",
        target_seconds ? fmt::format("{} s", *target_seconds) : "any time");
  }
};

std::string interval(const profiler::Estimate& e, const std::string& unit, int decimals = 2) {
  return fmt::format(
      "{:.{}f}{} [{:.{}f}, {:.{}f}]", e.value, decimals, unit, e.low, decimals, e.high, decimals);
}

// The runs as far as no signal comes.
void run_seeds(int64_t seeds, Job& job, const Flags& given, Speedrun& speedrun, Output& out) {
  TrainFlags& train = job.flags;
  Ranks alone(train.run.rank_timeout);
  const uint64_t first = train.common->seed;
  {
    // This one only says what all are, and finds how many threads they have: a run of `train`
    // finds them as part of its time.
    const Run trial(job, given, nullptr, alone, out);
    train.common->threads = num_threads();
  }
  Output::Options no_notes = *train.common;
  no_notes.quiet = true;
  Output silent(no_notes);
  for (int64_t i = 0; i < seeds && !interrupted(); ++i) {
    train.common->seed = first + uint64_t(i);
    Run run(job, given, nullptr, alone, silent);
    run.log.emplace("", 0, run.metric.name);
    run.budget = speedrun.budget;
    // What is before the first step is no part of a budget.
    const double before = run.budget ? run.time.seconds() : 0;
    StepProfile none(run);
    train_steps(run, none);
    const bool is_test = run.data.val == 0;
    const Evaluated e = run.evaluate_on(is_test ? Set::test : Set::val);
    if (!e.complete) break;
    speedrun.set = is_test ? "test" : "held-out";
    speedrun.rows = e.rows;
    const SeedRow& row = speedrun.runs.emplace_back(SeedRow{train.common->seed, run.at().step,
        run.metric.scale * e.metric, e.loss, run.time.seconds() - before, run.recent_loss});
    const std::string recent = run.budget
                                   ? fmt::format("  last 100 steps {}  {}",
                                         cli::loss(row.recent_loss), count_of(row.steps, "step"))
                                   : "";
    out.result(str("seed ", row.seed), "{:.2f}{}  loss {}{}  {:.2f} s", row.metric, run.metric.unit,
        cli::loss(row.loss), recent, row.seconds);
  }
}

int run_speedrun(
    const SpeedrunFlags& flags, Job& job, const Flags& given, const App& app, Output& out) {
  const Device device = choose_device(job.flags.common->device).first;
  SINTER_CHECK(device.type != Device::Type::simt, usage,
      "usage: speedrun needs a device whose times mean something: the device is simt",
      program_name() + " train --device simt");
  catch_signals();
  const Metric metric = job.metric();
  const std::string rows = job.rows().first;
  Speedrun speedrun{.metric = metric,
      .target = job.flags.run.target,
      .target_seconds = flags.target_seconds,
      .budget = flags.budget};
  run_seeds(flags.seeds, job, given, speedrun, out);
  if (interrupted())
    return out.stopped(str(
        "after ", speedrun.runs.size(), " of ", count_of(flags.seeds, "seed"), ": no interval"));
  // "roofs/3 cpu, NAME, 2 threads, .."
  const std::string key = profiler::roofs_key(device), machine = key.substr(key.find(' ') + 1);
  const auto mean_of = [&](double SeedRow::*number, double low, double high) {
    profiler::Estimate e = profiler::mean_interval(speedrun.all(number));
    e.low = std::max(e.low, low);  // of few seeds it is wide
    e.high = std::min(e.high, high);
    return e;
  };
  const profiler::Estimate &mean = speedrun.mean =
                               mean_of(&SeedRow::metric, metric.low, metric.high),
                           &time = speedrun.seconds = mean_of(&SeedRow::seconds, 0, INFINITY);
  const std::string found = interval(mean, metric.unit), seconds = interval(time, " s");
  out.result(metric.name, "{}, worst {:.2f}, of {} {} {}", found, speedrun.worst(),
      grouped(speedrun.rows), speedrun.set, rows);
  std::string losses;  // columns of the row
  if (speedrun.budget) {
    speedrun.loss = mean_of(&SeedRow::loss, 0, INFINITY);
    speedrun.recent_loss = mean_of(&SeedRow::recent_loss, 0, INFINITY);
    const std::string loss = interval(speedrun.loss, "", 3),
                      recent = interval(speedrun.recent_loss, "", 3);
    out.result("loss", "{}, of the last 100 steps {}", loss, recent);
    losses = str(loss, " | ", recent, " | ");
  }
  out.result("time", "{} of training, {}", seconds, count_of(speedrun.steps(), "step"));
  out.result("machine", machine);
  const std::optional<bool> holds = speedrun.holds();
  if (holds) {
    out.result(
        "target", "{}: {} at 95 %", speedrun.target_text(), *holds ? "holds" : "does not hold");
  }
  // Of docs/results/README.md.
  const std::string row = fmt::format("| {} | {} | {:.2f} | {}{} | {} | {} | {} | {}{} |",
      job.flags.run.preset, interval(mean, ""), speedrun.worst(), losses, interval(time, ""),
      speedrun.runs.size(), speedrun.steps(), machine, app.git_id(),
      speedrun.set == "test" ? "" : ", " + speedrun.set);
  out.result("row", row);
  Json object = {{"preset", job.flags.run.preset}, {"machine", machine}, {"commit", app.git_id()},
      {"set", speedrun.set}, {rows, speedrun.rows}, {"steps", speedrun.steps()},
      {metric.name, mean}, {"worst_" + metric.name, speedrun.worst()}, {"seconds", time}};
  std::string target = metric.target;
  std::ranges::replace(target, '-', '_');
  object[target] = speedrun.target;
  object["target_seconds"] = speedrun.target_seconds;
  object["holds"] = holds;
  if (speedrun.budget) {
    object["budget"] = *speedrun.budget;
    object["loss"] = speedrun.loss;
    object["last_100_loss"] = speedrun.recent_loss;
  }
  for (const SeedRow& run : speedrun.runs) {
    Json& of_run = object["runs"].emplace_back(Json{{"seed", std::to_string(run.seed)},
        {metric.name, run.metric}, {"loss", run.loss}, {"seconds", run.seconds}});
    if (speedrun.budget) of_run.update({{"last_100_loss", run.recent_loss}, {"steps", run.steps}});
  }
  object["row"] = row;
  out.json("sinter.speedrun/1", object);
  SINTER_CHECK(holds.value_or(true), check,
      fmt::format("speedrun: the target does not hold at 95 %: {} {}, time {}, wanted {}",
          metric.name, found, seconds, speedrun.target_text()),
      "more --seeds make the intervals shorter; other programs make the time longer");
  return 0;
}

}  // namespace

void add_speedrun(App& app, std::string summary, const JobMaker& make, const std::string& preset) {
  app.add("speedrun", std::move(summary), [make, preset](App& here, Command& command) {
    static SpeedrunFlags speedrun;
    static const std::unique_ptr<Job> job = make(here.common());
    TrainFlags& train = job->flags;
    train.run.preset = preset;
    Flags& flags = command.flags;
    flags.topic("speedrun");
    add_preset_flag(flags, *job);
    flags.number("seeds", speedrun.seeds, 2, 1000, "runs, of --seed, --seed + 1, ..");
    add_target_flag(flags, train.run, job->metric());
    Flag& seconds = flags.number(
        "target-seconds", speedrun.target_seconds, 0, 1e6, "wanted training time; exit 7 above it");
    Flag& budget = flags.number("budget", speedrun.budget, 0, 1e6,
        "seconds from a run's first step, behind which it ends; the last 100 losses are told");
    for (const Preset& one : job->presets()) {
      const auto add = [&one](std::string& to, std::optional<double> number) {
        if (number) to += fmt::format("{}{} {}", to.empty() ? "" : ", ", one.name, *number);
      };
      add(seconds.standard, one.seconds);
      add(budget.standard, one.budget);
    }
    flags.choice("mode", train.mode.mode, {"eager", "fused"}, "");
    add_rules_flag(flags, train.mode.rules);
    train.run.save_every = 0;
    not_saved(flags.number("save-every", train.run.save_every, 0, 0, "nothing is")).hidden = true;
    add_recipe_flags(flags, *job);
    command.preset = [&train] {
      const std::vector<std::string> names = job->preset_names();
      SINTER_CHECK(!names.empty(), usage,
          str("usage: speedrun trains a preset: ", program_name(), " has none"),
          "presets() of its job has some");
      SINTER_CHECK(!train.run.preset.empty(), usage,
          "usage: --preset is not given: speedrun trains one", "--preset " + join(names, ", or "));
      return "[speedrun]\n" + job->preset(train.run.preset);
    };
    command.check = [&flags, &train] {
      const Preset chosen = job->preset_named(train.run.preset);
      if (!speedrun.target_seconds) speedrun.target_seconds = chosen.seconds;
      if (!speedrun.budget) speedrun.budget = chosen.budget;
      check_flags(flags, *job, Use::run);
    };
    command.run = [&](Output& out) { return run_speedrun(speedrun, *job, flags, here, out); };
  });
}

}  // namespace sinter::cli
