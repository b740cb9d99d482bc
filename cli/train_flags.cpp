#include "cli/train_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "nn/optim.h"

namespace sinter::cli {
namespace {

constexpr int64_t kMany = 1'000'000'000'000;

// Warm-up steps of a run: "200" or "20%".
int64_t warmup_steps(const std::string& text, int64_t steps) {
  const std::string what = "usage: --lr-warmup";
  if (!text.ends_with('%')) return std::min(parse<int64_t>(what, text, 0, kMany), steps);
  return std::llround(
      parse(what, text.substr(0, text.size() - 1), 0.0, 100.0) / 100 * double(steps));
}

// "1:3:20" or "1:3:20:2"
ProfileSteps parse_profile_steps(const std::string& text) {
  const std::string what = "usage: --profile-steps";
  const std::vector<std::string_view> items = parts_of(text, ":");
  SINTER_CHECK(items.size() == 3 || items.size() == 4, usage,
      str(what, " is not W:U:A[:R]: ", in_message(text), "; ",
          count_of(std::ssize(items), "number"), ", wanted 3 or 4"),
      "--profile-steps 1:3:20");
  ProfileSteps steps;
  int* const fields[] = {&steps.wait, &steps.warmup, &steps.active, &steps.repeat};
  for (size_t i = 0; i < items.size(); ++i)
    *fields[i] = parse(what, std::string(items[i]), int(i == 2), 1'000'000);
  return steps;
}

template <class Has> std::vector<std::string> optimizers_with(Has has) {
  std::vector<std::string> names;
  for (const nn::OptimizerChoice& choice : nn::optimizers()) {
    if (std::invoke(has, choice)) names.emplace_back(choice.name);
  }
  return names;
}

std::string text_of(double number) { return fmt::format("{}", number); }
std::string text_of(const nn::Betas& betas) { return fmt::format("{}", fmt::join(betas, ",")); }

// "0.001, sgd 0.1": Adam's numbers, and those of each optimizer that has others.
template <class Numbers> std::string usual_numbers(Numbers nn::OptimizerChoice::*of) {
  const Numbers usual = nn::optimizer_named("adam").*of;
  std::string text = text_of(usual);
  for (const nn::OptimizerChoice& choice : nn::optimizers()) {
    const bool has_others = choice.*of != usual && choice.*of != Numbers{};
    if (has_others) text += str(", ", choice.name, " ", text_of(choice.*of));
  }
  return text;
}

}  // namespace

std::string Metric::text(double value, int more_decimals) const {
  return fmt::format("{:.{}f}{}", scale * value, decimals + more_decimals, unit);
}

nn::Schedule OptimizerFlags::schedule_of(int64_t steps_of_run) const {
  return {.kind = nn::parse_schedule(schedule),
      .lr = lr.value(),
      .steps = steps_of_run,
      .warmup = warmup_steps(warmup, steps_of_run)};
}

void add_epoch_flags(Flags& flags, OptimizerFlags& optimizer, const Metric& metric) {
  flags.topic("optimizer");
  flags.number("epochs,num-epochs", optimizer.epochs, 1, 1'000'000, "passes over the training set")
      .get = [&optimizer] { return optimizer.steps ? "" : std::to_string(optimizer.epochs); };
  flags.number("steps", optimizer.steps, 1, kMany, "steps in place of epochs");
  flags.number("patience", optimizer.patience, 0, 1'000'000,
      str("end after N epochs without a better val ", metric.name, "; 0 never"));
}

void add_step_flags(Flags& flags, OptimizerFlags& optimizer) {
  flags.topic("optimizer");
  flags.number("batch-size,batch", optimizer.batch, 1, 1'000'000, "");
  flags.number(
      "accum", optimizer.accum, 1, 10'000, "batches whose gradients are added up for one step");
  flags.choice("optimizer", optimizer.optimizer, nn::optimizer_names(), "");
  flags.number("lr,learning-rate", optimizer.lr, 0, 1e6, "learning rate; the peak of a schedule")
      .standard = usual_numbers(&nn::OptimizerChoice::lr);
  only_for(flags.number("momentum", optimizer.momentum, 0, 0.9999, "of sgd"), "optimizer",
      optimizers_with(&nn::OptimizerChoice::has_momentum));
  Flag& betas = flags.number("betas", optimizer.betas, 0, 0.999999,
      "of adam, adamw, lion: how much of its averages each step keeps");
  betas.value = "B1,B2";
  betas.standard = usual_numbers(&nn::OptimizerChoice::betas);
  only_for(betas, "optimizer", optimizers_with(&nn::OptimizerChoice::has_betas));
  flags.number("weight-decay,wd", optimizer.weight_decay, 0, 1000, "").standard =
      usual_numbers(&nn::OptimizerChoice::weight_decay);
  flags.choice("schedule,lr-schedule", optimizer.schedule,
      {"constant", "cosine", "step", "onecycle", "linear"}, "of the learning rate",
      {{"cosineannealinglr", "cosine"}, {"steplr", "step"}, {"onecyclelr", "onecycle"},
          {"linearlr", "linear"}});
  flags
      .word("lr-warmup", optimizer.warmup, "N|P%", "steps with a rising rate, or a share of all",
          [](const std::string& text) { warmup_steps(text, 1); })
      .standard = "0, onecycle 20%";
  flags.number(
      "clip,max-grad-norm", optimizer.clip, 0, 1e6, "largest norm of all gradients; 0 off");
}

void add_eval_flag(Flags& flags, OptimizerFlags& optimizer) {
  flags.number("eval-batch-size,test-batch-size", optimizer.eval_batch, 1, 1'000'000, "");
}

void add_mode_flags(Flags& flags, ModeFlags& mode) {
  flags.topic("mode, looking in");
  flags.choice("mode", mode.mode, {"eager", "fused"}, "");
  add_fusion_flags(flags, mode);
  add_profile_flag(flags, mode.profile);
  flags.word("profile-steps", mode.profile_steps, "W:U:A[:R]",
      "steps to wait, to warm up, to record; R times, 0 to the end",
      [&mode](const std::string& text) { mode.window = parse_profile_steps(text); });
  add_view_flags(flags, mode.view);
}

void add_target_flag(Flags& flags, RunFlags& run, const Metric& metric) {
  flags.number(metric.target, run.target, metric.low, metric.high,
      fmt::format("wanted test {}{}; exit 7 {} it", metric.name,
          metric.unit.empty() ? "" : " in" + metric.unit, metric.rises ? "below" : "above"));
}

void add_folder_flags(Flags& flags, RunFlags& run, const Metric& metric) {
  flags.topic("run");
  flags.word("out", run.out, "DIR", "the run folder").standard = "runs/DATE-TIME";
  not_saved(flags.toggle("force", run.force,
      "start over in a folder that holds a run, write over a graph that is there"));
  flags.number(
      "save-every", run.save_every, 0, 1'000'000, "epochs between saves; 0 at the end only");
  flags.number("save-steps", run.save_steps, 0, kMany, "also save every N steps; 0 off");
  Flag& resume = flags.word("resume", run.resume, "RUN", "go on with a run that was stopped");
  resume.saved = false;
  resume.bare_value = "runs/last";
  flags.word("init", run.init, "FILE", "start from these weights (safetensors)");
  flags.number(
      "log-every,log-interval", run.log_every, 1, 1'000'000'000, "steps between looks at the loss");
  add_target_flag(flags, run, metric);
  not_saved(flags.number("rank-timeout", run.rank_timeout, 1, 1e6,
      "of several processes (mpirun): seconds to wait for one that hangs"));
  not_saved(flags.toggle("dry-run", run.dry_run,
      "one step (fused: two to record, one to replay) and one evaluation batch, nothing is "
      "written"));
  not_saved(flags.toggle("overfit-batch", run.overfit_batch,
      "500 steps on one batch must reach loss < 0.01, or what it allows and 0.01; else exit 7"));
  flags.toggle("check-nan", run.check_nan, "look for NaN behind every op and name it (slow)");
  not_saved(flags.number("fingerprint", run.fingerprint, 1, kMany,
                "keep hashes of what each op of each Nth step writes, for diff RUN RUN"))
      .bare_value = "1";
}

void resolve_optimizer(const Flags& flags, OptimizerFlags& optimizer) {
  flags.check_uses();
  const std::vector<double>& betas = optimizer.betas;
  SINTER_CHECK(betas.empty() || betas.size() == 2, usage,
      str("usage: --betas has ", count_of(std::ssize(betas), "number"), ": ", join(betas, ","),
          "; wanted 2"),
      "--betas 0.9,0.999");
  const nn::OptimizerChoice& choice = nn::optimizer_named(optimizer.optimizer);
  if (!optimizer.lr) optimizer.lr = choice.lr;
  if (!optimizer.weight_decay) optimizer.weight_decay = choice.weight_decay;
  if (optimizer.betas.empty() && choice.has_betas())
    optimizer.betas.assign(choice.betas.begin(), choice.betas.end());
  if (optimizer.warmup.empty()) optimizer.warmup = optimizer.schedule == "onecycle" ? "20%" : "0";
}

void check_dtype(const std::string& dtype, const CommonFlags& common) {
  if (dtype == "tf32") {
    const Device device = choose_device(common.device).first;
    SINTER_CHECK(device.type != Device::Type::cpu, usage,
        str("usage: --dtype tf32 needs cuda or simt: the device is ", device.str()),
        "--dtype f32, or --dtype bf16");
  }
}

void check_run(const Flags& flags, const TrainFlags& train) {
  SINTER_CHECK(!train.run.dry_run || !train.run.overfit_batch, usage,
      "usage: --dry-run and --overfit-batch exclude each other: both are given");
  const bool no_training = train.run.dry_run || train.run.overfit_batch;
  SINTER_CHECK(!no_training || flags["profile"].source != Source::command_line, usage,
      str("usage: ", train.run.dry_run ? "--dry-run" : "--overfit-batch",
          " and --profile exclude each other: both are given"),
      "--steps 24 --profile is a short run with a profile");
  const bool profiles = !train.mode.profile.formats.empty();
  SINTER_CHECK(!train.run.fingerprint || !(no_training || profiles), usage,
      str("usage: --fingerprint and ",
          train.run.dry_run         ? "--dry-run"
          : train.run.overfit_batch ? "--overfit-batch"
                                    : "--profile",
          " exclude each other: both are given"),
      "a run of its own: --steps 40 --fingerprint");
  check_table_flags(flags, train.mode.profile);
  if (train.mode.mode == "fused") {
    SINTER_CHECK(!train.run.check_nan, usage,
        "usage: --check-nan needs --mode eager: the mode is fused; it reads what every op makes",
        "the numbers are those of --mode eager --check-nan");
    return;
  }
  for (const char* name : {"rules", "explain", "dump-graph"}) {
    SINTER_CHECK(flags[name].source != Source::command_line, usage,
        str("usage: --", name, " needs --mode fused: the mode is eager"),
        str(program_name(), " compare --explain shows what fusing changes"));
  }
}

}  // namespace sinter::cli
