// mnist speedrun: trains a recipe over several seeds; accuracy and training time with intervals,
// and whether its target holds. The runs are those of `mnist train`, one after the other in one
// process, so the first also pays for what a process does once; they write nothing. With --val the
// accuracy is that of the images held out: a recipe is chosen by them, and never by the test set.
#include <fmt/format.h>

#include <algorithm>

#include "cli/process.h"
#include "core/json.h"
#include "core/parallel.h"
#include "examples/mnist/run.h"
#include "profiler/roofs.h"
#include "profiler/stats.h"

namespace sinter::mnist {
namespace {

struct SpeedrunFlags {
  TrainFlags train;
  int64_t seeds = 5;
  std::optional<double> target_seconds;
};

struct SeedRow {
  uint64_t seed;
  double accuracy, loss, seconds;  // accuracy in %
  SINTER_FIELD_LIST(named("seed", written(std::to_string(seed))), accuracy, loss, seconds)
};

struct Speedrun {
  std::string preset, machine, commit;
  std::string set;  // of images that were read: "test", or "held-out"
  int64_t images = 0, steps = 0;
  std::vector<SeedRow> runs{};
  profiler::Estimate accuracy{}, seconds{};  // the means
  std::optional<double> target_acc, target_seconds;

  std::vector<double> all(double SeedRow::*number) const {
    std::vector<double> out;
    for (const SeedRow& run : runs) out.push_back(run.*number);
    return out;
  }
  double worst() const { return std::ranges::min(all(&SeedRow::accuracy)); }
  // Does it hold for the whole interval of the mean? Nothing where no target is set.
  std::optional<bool> holds() const {
    if (!target_acc && !target_seconds) return {};
    return (!target_acc || accuracy.low >= *target_acc) &&
           (!target_seconds || seconds.high <= *target_seconds);
  }
  std::string target_text() const {
    return str(target_acc ? fmt::format("{} %", *target_acc) : "any", " in ",
        target_seconds ? fmt::format("{} s", *target_seconds) : "any time");
  }
  // Of docs/results/speedrun.md.
  std::string row() const {
    return fmt::format(
        "| {} | {:.2f} [{:.2f}, {:.2f}] | {:.2f} | {:.2f} [{:.2f}, {:.2f}] | {} | "
        "{} | {} | {}{} |",
        preset, accuracy.value, accuracy.low, accuracy.high, worst(), seconds.value, seconds.low,
        seconds.high, runs.size(), steps, machine, commit, set == "test" ? "" : ", " + set);
  }
  SINTER_FIELD_LIST(preset, machine, commit, set, images, steps, accuracy,
      named("worst_accuracy", written(worst())), seconds, target_acc, target_seconds,
      named("holds", written(holds())), runs, named("row", written(row())))
};

std::string interval(const profiler::Estimate& e, const char* unit) {
  return fmt::format("{:.2f} {} [{:.2f}, {:.2f}]", e.value, unit, e.low, e.high);
}

// The runs as far as no signal comes.
void run_seeds(SpeedrunFlags& flags, const Flags& all_flags, Speedrun& speedrun, Output& out) {
  TrainFlags& train = flags.train;
  Ranks alone(train.run.rank_timeout);
  const uint64_t first = train.common->seed;
  {
    // This one only says what all are, and finds how many threads they have: a run of `mnist train`
    // finds them as part of its time.
    const Run trial(train, all_flags, nullptr, alone, out);
    train.common->threads = num_threads();
  }
  Output::Options no_notes = *train.common;
  no_notes.quiet = true;
  Output silent(no_notes);
  for (int64_t i = 0; i < flags.seeds && !interrupted(); ++i) {
    train.common->seed = first + uint64_t(i);
    Run run(train, all_flags, nullptr, alone, silent);
    run.log.emplace("", 0);
    StepProfile none(run);
    train_steps(run, none);
    const bool is_test = run.data.val.size() == 0;
    const Evaluation e = run.evaluate_on(is_test ? run.data.test : run.data.val);
    if (!e.complete) break;
    speedrun.set = is_test ? "test" : "held-out";
    speedrun.images = e.images;
    speedrun.steps = run.at().step;
    const SeedRow& row = speedrun.runs.emplace_back(
        SeedRow{train.common->seed, 100 * e.accuracy(), e.loss(), run.time.seconds()});
    out.result(str("seed ", row.seed), "{:.2f} %  loss {}  {:.2f} s", row.accuracy,
        cli::loss(row.loss), row.seconds);
  }
}

int run_speedrun(SpeedrunFlags& flags, const Flags& all_flags, const App& app, Output& out) {
  const Device device = choose_device(flags.train.common->device).first;
  SINTER_CHECK(device.type != Device::Type::simt, usage,
      "usage: speedrun needs a device whose times mean something: the device is simt",
      "mnist train --device simt");
  catch_signals();
  Speedrun speedrun{.preset = flags.train.run.preset,
      .machine = {},
      .commit = app.git_id(),
      .set = {},
      .target_acc = flags.train.run.target_acc,
      .target_seconds = flags.target_seconds};
  run_seeds(flags, all_flags, speedrun, out);
  if (interrupted()) return exit_code(Error::Kind::interrupted);
  // "roofs/3 cpu, NAME, 2 threads, .."
  const std::string key = profiler::roofs_key(device);
  speedrun.machine = key.substr(key.find(' ') + 1);
  speedrun.accuracy = profiler::mean_interval(speedrun.all(&SeedRow::accuracy));
  speedrun.accuracy.low = std::max(speedrun.accuracy.low, 0.0);  // of few seeds it is wide
  speedrun.accuracy.high = std::min(speedrun.accuracy.high, 100.0);
  speedrun.seconds = profiler::mean_interval(speedrun.all(&SeedRow::seconds));
  const std::string accuracy = interval(speedrun.accuracy, "%"),
                    seconds = interval(speedrun.seconds, "s");
  out.result("accuracy", "{}, worst {:.2f}, of {} {} images", accuracy, speedrun.worst(),
      grouped(speedrun.images), speedrun.set);
  out.result("time", "{} of training, {}", seconds, count_of(speedrun.steps, "step"));
  out.result("machine", speedrun.machine);
  const std::optional<bool> holds = speedrun.holds();
  if (holds) {
    out.result(
        "target", "{}: {} at 95 %", speedrun.target_text(), *holds ? "holds" : "does not hold");
  }
  out.result("row", speedrun.row());
  out.json("sinter.speedrun/1", speedrun);
  SINTER_CHECK(holds.value_or(true), check,
      fmt::format("speedrun: the target does not hold at 95 %: accuracy {}, time {}, wanted {}",
          accuracy, seconds, speedrun.target_text()),
      "more --seeds make the intervals shorter; other programs make the time longer");
  return 0;
}

}  // namespace

void add_speedrun(App& app, Command& command) {
  static SpeedrunFlags speedrun;
  TrainFlags& train = speedrun.train;
  train.common = &app.common();
  train.run.preset = "fast99";
  Flags& flags = command.flags;
  flags.topic("speedrun");
  add_preset_flag(flags, train.run, preset_names());
  flags.number("seeds", speedrun.seeds, 2, 1000, "runs, of --seed, --seed + 1, ..");
  add_target_flag(flags, train.run);
  Flag& seconds = flags.number(
      "target-seconds", speedrun.target_seconds, 0, 1e6, "wanted training time; exit 7 above it");
  for (const std::string& name : preset_names()) {
    if (const std::optional<double> wanted = preset_seconds(name))
      seconds.standard +=
          fmt::format("{}{} {}", seconds.standard.empty() ? "" : ", ", name, *wanted);
  }
  flags.choice("mode", train.mode.mode, {"eager", "fused"}, "");
  add_rules_flag(flags, train.mode.rules);
  train.run.save_every = 0;
  not_saved(flags.number("save-every", train.run.save_every, 0, 0, "nothing is")).hidden = true;
  add_recipe_flags(flags, train);
  command.preset = [&app, &train] { return preset(train.run.preset, app.common(), "speedrun"); };
  command.check = [&flags, &train] {
    if (!speedrun.target_seconds) speedrun.target_seconds = preset_seconds(train.run.preset);
    if (flags.first_wins("epochs", "steps")) train.optimizer.steps.reset();
    resolve_step(flags, train);
  };
  command.run = [&](Output& out) { return run_speedrun(speedrun, flags, app, out); };
}

}  // namespace sinter::mnist
