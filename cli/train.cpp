// train: the command, and the training loop. The run and its report have a file each.
#include <fmt/format.h>

#include <cmath>
#include <deque>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "autograd/autograd.h"
#include "cli/process.h"
#include "cli/run.h"
#include "distributed/mpi.h"

namespace sinter::cli {
namespace {

class Loop {
 public:
  Loop(Run& run, StepProfile& profile) : run_(run), at_(run.at()), profile_(profile) {}
  void run();

 private:
  bool epoch_is_over() const { return at_.batch == run_.per_epoch || at_.step == run_.steps; }
  bool save_is_due() const {
    return run_.flags.run.save_steps && at_.step % run_.flags.run.save_steps == 0;
  }
  void fit();
  void after_step();
  void keep_to_budget();
  void show_progress();
  void look_at_loss();
  void end_epoch();

  Run& run_;
  nn::TrainingState& at_;
  StepProfile& profile_;
  double before_ = run_.time.seconds(), before_epoch_ = before_;  // seconds of training
  // With a budget: sum and number of all losses of the epoch so far, and of each of the last steps.
  std::pair<double, double> of_epoch_{};
  std::deque<std::pair<double, double>> of_steps_;
  bool told_flat_ = false, told_diverges_ = false, told_nan_ = false;  // each once, in all epochs
};

void Loop::run() {
  std::optional<AnomalyMode> check_nan;
  if (run_.flags.run.check_nan) check_nan.emplace();
  run_.time.start();
  while (!at_.ended && !run_.ranks.interrupted()) {
    if (!epoch_is_over()) fit();
    const bool over = epoch_is_over();
    if (!over && !save_is_due()) continue;
    run_.time.stop();
    const profiler::Pause no_step(profile_.session());
    if (over) {
      end_epoch();
      before_epoch_ = run_.time.seconds();
    } else {
      run_.save_all(true);
    }
    run_.time.start();
  }
  run_.time.stop();
  run_.progress.clear();
  if (!at_.ended) return run_.save_all(false);
  if (at_.step < run_.steps) {
    run_.out.note("stop", "by --patience: val {} has not {} for {}, best {}", run_.metric.name,
        run_.metric.rises ? "risen" : "fallen", count_of(run_.flags.optimizer.patience, "epoch"),
        run_.metric.text(at_.best));
  }
}

void Loop::fit() {
  measure::Fingerprints* const prints = run_.prints.get();
  if (prints) prints->begin_step(at_.step + 1);
  run_.job.fit(*run_.trainer, [this, prints] {
    if (prints) prints->end_step();
    after_step();
    if (prints) prints->begin_step(at_.step + 1);
  });
  if (prints) prints->listen(false);
}

void Loop::after_step() {
  profile_.step(run_.trainer->timer());
  if (run_.budget) keep_to_budget();
  const double minutes =
      (run_.time.running_seconds() - before_) * double(run_.steps - run_.first_step) / 60;
  if (at_.step == run_.first_step + 1 && run_.device.type == Device::Type::simt && minutes > 1)
    run_.out.note("note", "simt emulates threads: about {:.0f} min; try --limit 1000 --epochs 1",
        std::ceil(minutes));
  if (epoch_is_over() || at_.step % run_.flags.run.log_every == 0) {
    const profiler::Pause no_step(profile_.session());
    look_at_loss();
  }
  if (epoch_is_over() || save_is_due() || run_.ranks.interrupted()) run_.trainer->stop();
  if (epoch_is_over() || !run_.progress.due()) return;
  const profiler::Pause no_step(profile_.session());
  show_progress();
}

void Loop::keep_to_budget() {
  constexpr size_t kRecent = 100;
  const StepState state = run_.trainer->state();
  const std::pair<double, double> now{state.loss_sum, double(state.loss_rows)};
  of_steps_.emplace_back(now.first - of_epoch_.first, now.second - of_epoch_.second);
  of_epoch_ = now;
  if (of_steps_.size() > kRecent) of_steps_.pop_front();
  if (run_.time.running_seconds() - before_ >= *run_.budget) run_.steps = at_.step;
  if (at_.step < run_.steps) return;
  std::pair<double, double> all{};
  for (const auto& [sum, n] : of_steps_) all = {all.first + sum, all.second + n};
  run_.recent_loss = all.first / all.second;
}

void Loop::show_progress() {
  const StepState state = run_.trainer->state();
  const double seconds = run_.time.running_seconds(), done = double(at_.step - run_.first_step);
  run_.progress.show({.epoch = at_.epoch + 1,
      .epochs = run_.epochs,
      .done = double(at_.batch) / double(run_.per_epoch),
      .loss = state.loss_sum / double(state.loss_rows),
      .rows_per_second = done * double(run_.flags.optimizer.rows_of_step()) / seconds,
      .data_wait = run_.trainer->wait_seconds() / seconds,
      .eta_seconds = seconds / done * double(run_.steps - at_.step),
      .row = run_.job.rows().second});
}

// The one place where training reads the loss: every --log-every steps and at the end of an epoch.
void Loop::look_at_loss() {
  const StepState state = run_.trainer->collect_state();
  run_.check_finite(state);
  const double rows = double(state.loss_rows - at_.window_rows);
  const double window = (state.loss_sum - at_.window_loss) / rows;
  run_.log->add({{"step", at_.step}, {"loss", window}, {"lr", run_.trainer->lr_of(at_.step - 1)}});
  at_.window_loss = state.loss_sum;
  at_.window_rows = state.loss_rows;
  if (!run_.guessing) return;
  const int64_t before = at_.flat_steps;
  // Steps since the last look: it was at the last multiple of --log-every, or where the epoch
  // began.
  const int64_t steps = std::min(at_.batch, (at_.step - 1) % run_.flags.run.log_every + 1);
  at_.flat_steps = std::abs(window - run_.guessing->loss) < 0.003 ? at_.flat_steps + steps : 0;
  if (before >= 200 || at_.flat_steps < 200 || std::exchange(told_flat_, true)) return;
  run_.warn(fmt::format("loss has stayed at {:.3f} = {} for {} steps; {}", window,
      run_.guessing->text, at_.flat_steps, run_.guessing->hint));
}

// Evaluates, notes and saves what the epoch has come to; interrupted, it leaves all that to the run
// that goes on.
void Loop::end_epoch() {
  const StepState state = run_.trainer->collect_state();
  EpochRow row{.step = at_.step,
      .number = at_.epoch + 1,
      .loss = state.loss_sum / double(state.loss_rows),
      .lr = run_.trainer->lr_of(at_.step - 1),
      .seconds = run_.time.seconds() - before_epoch_};
  std::string val;
  bool best = false;
  const int64_t every = run_.flags.run.save_every;
  if (run_.data.val > 0) {
    const Evaluated e = run_.evaluate_on(Set::val);
    if (!e.complete) return;
    row.val_metric = e.metric;
    row.val_loss = e.loss;
    val = "  val " + e.metric_text;
    if (std::isnan(e.metric) && !std::exchange(told_nan_, true))
      run_.warn(str("val ", run_.metric.name, " is nan: such an epoch is never the best"));
    ++at_.patience;
    if (run_.metric.better(e.metric, at_.best) && !run_.diverges(e.loss) &&
        !run_.diverges(row.loss)) {
      at_.best = e.metric;
      at_.patience = 0;
      best = every > 0;
      if (best) run_.save_weights(kBestFile);
    }
  }
  const bool ends = at_.step == run_.steps || run_.lost_patience();
  run_.log->add(row);
  if (run_.diverges(row.loss) && !std::exchange(told_diverges_, true)) {
    run_.warn(fmt::format(
        "the loss of epoch {} is {:.3g}, and guessing has {} = {:.3f}: training diverges; try --lr "
        "{}",
        row.number, row.loss, run_.guessing->text, run_.guessing->loss, run_.smaller_lr()));
  }
  if (ends) run_.save_weights(kModelFile);
  at_.ended = ends;
  // Else the run ends within an epoch, which more steps would go on with.
  if (at_.batch == run_.per_epoch) {
    at_.window_loss = 0;
    at_.window_rows = 0;
    run_.trainer->end_epoch();
    of_epoch_ = {};
  }
  const bool planned = ends || (every > 0 && row.number % every == 0) || save_is_due();
  if (planned) run_.save_all(true);
  run_.progress.clear();
  run_.out.note(fmt::format("epoch {}/{}", row.number, run_.epochs), " loss {}{}  {}{}",
      cli::loss(row.loss), val, cli::seconds(row.seconds),
      planned ? best ? "  saved, best" : "  saved"
      : best  ? "  best"
              : "");
}

// --dry-run
int dry_run(Run& run) {
  // Fused, the first step runs, the second is captured, and the third is as all that follow.
  const int64_t steps = run.flags.mode.mode == "fused" ? 3 : 1;
  const Tensors batch = run.job.first_batch();
  for (int64_t i = 0; i < steps; ++i) run.trainer->step(batch);
  const Evaluated e = run.evaluate_on(Set::test, run.flags.optimizer.eval_batch);
  if (!e.complete) return run.out.stopped("in a dry run");
  const std::string rows = run.job.rows().first, &name = run.metric.name;
  const bool named = e.metric_text.find(name) != std::string::npos;  // "4.104 bits"
  run.out.result("dry run", "{}: loss {:.4f}; {} test {}: {}{}; nothing was written",
      count_of(steps, "step"), run.trainer->state().last_loss, e.rows, rows,
      named ? "" : name + " ", e.metric_text);
  report_capture(run);
  run.out.json("sinter.dry-run/1",
      {{"loss", run.trainer->state().last_loss}, {rows, e.rows}, {run.metric.name, e.metric}});
  return 0;
}

// --overfit-batch
int overfit_batch(Run& run) {
  const Tensors batch = run.job.first_batch();
  const double least = run.job.least_loss(batch), wanted = least + 0.01;
  StepState state;
  int steps = 0;
  do {
    run.trainer->step(batch);
    state = run.trainer->state();
  } while (++steps < run.steps && !(state.last_loss < wanted) && !interrupted());
  const std::string at_best = least > 0 ? fmt::format("; it allows {:.4f}", least) : "";
  run.out.result("overfit", "loss {:.4f} on one batch of {} after {} steps{}", state.last_loss,
      batch[0].size(0), steps, at_best);
  run.out.json(
      "sinter.overfit-batch/1", {{"loss", state.last_loss}, {"least", least}, {"steps", steps}});
  if (interrupted()) return run.out.stopped("after " + count_of(steps, "step"));
  SINTER_CHECK(state.last_loss < wanted, check,
      fmt::format(
          "train: one batch cannot be learnt: loss {:.4g} after {} steps, wanted < {:.4g}{}",
          state.last_loss, steps, wanted, at_best),
      "another --lr, a smaller --batch-size, or a mistake in the model");
  return 0;
}

int train(Run& run) {
  if (run.flags.run.dry_run) return dry_run(run);
  if (run.flags.run.overfit_batch) return overfit_batch(run);
  StepProfile profile(run);
  profile.prepare();
  run.take_folder();
  profile.start();
  try {
    train_steps(run, profile);
  } catch (const Error& error) {
    // What is there of the run, and what to do with it, the writer of one file cannot know.
    if (error.kind() != Error::Kind::checkpoint || !run.ranks.first()) throw;
    const std::string name = run.folder->name();
    throw Error(error.kind(),
        str(error.message(), "; ", escaped(name), " holds ", run.folder->holds()),
        run.saved_step < 0 ? error.hint()
                           : str("make room there, then ", program_name(), " train --resume ",
                                 as_word(name), " goes on after step ", run.saved_step));
  }
  return run.ranks.interrupted() ? report_interrupted(run, profile) : report(run, profile);
}

// ---- --resume

constexpr const char* kExcluded[] = {"out", "force", "init", "dry-run", "overfit-batch"};

std::string said_of(const Flags& flags, std::string_view name) {
  const std::string value = flags.value(flags[name]);
  return value.empty() ? "not given" : escaped(value);
}

// Reads the checkpoint of --resume, completes and resolves the flags. Throws checkpoint: there is
// none, or another --batch-size is asked for; usage: a flag that does not go with --resume.
std::unique_ptr<Resumed> open_resumed(Flags& flags, Job& job, const JobMaker& make) {
  for (const char* name : kExcluded) {
    SINTER_CHECK(flags[name].source != Source::command_line, usage,
        str("usage: --resume and --", name, " exclude each other: both are given"));
  }
  namespace fs = std::filesystem;
  // Of a run without last.safetensors the others are looked at, to say that they are weights only.
  const std::string file =
      find_checkpoint(job.flags.run.resume, {kLastFile, kModelFile, kBestFile});
  const fs::path real = fs::canonical(file);  // runs/last is to name the run, not itself
  auto out = std::make_unique<Resumed>(fs::proximate(real.parent_path()).string(),
      fs::proximate(real).string(), nn::read_checkpoint(file));
  const nn::Checkpoint& checkpoint = out->checkpoint;

  out->then = make(out->common);
  const Flags saved = saved_flags(checkpoint.config, checkpoint.path, *out->then);
  apply_saved_config(checkpoint.config, checkpoint.path, flags);
  check_flags(flags, job, Use::run);
  for (const Flag& flag : flags.all()) {
    const bool plans = flag.name == "epochs" || flag.name == "steps";  // the length of a schedule
    const Kept kept =
        plans && job.flags.optimizer.schedule != "constant" ? Kept::or_said : flag.kept;
    if (kept == Kept::no) continue;
    const std::string was = said_of(saved, flag.name), now = said_of(flags, flag.name);
    SINTER_CHECK(was == now || kept == Kept::or_said, checkpoint,
        str("checkpoint: cannot resume with another --", flag.name, ": ", checkpoint.path, " has ",
            was, ", asked ", now));
    if (was != now) out->differences.push_back(str("--", flag.name, " was ", was, ", now ", now));
  }
  return out;
}

// What the ranks would not do alike.
void check_alone(const TrainFlags& flags) {
  SINTER_CHECK(!flags.run.overfit_batch && flags.mode.measure != "on", usage,
      str("usage: ", flags.run.overfit_batch ? "--overfit-batch" : "--measure on",
          " is for one process: the launcher has started ", distributed::launched_ranks()),
      program_name() + " train without mpirun");
}

}  // namespace

void train_steps(Run& run, StepProfile& profile) { Loop(run, profile).run(); }

void add_train(App& app, std::string summary, const JobMaker& make) {
  app.add("train", std::move(summary), [make](App& here, Command& command) {
    static const std::unique_ptr<Job> job = make(here.common());
    static std::unique_ptr<Resumed> resumed;
    TrainFlags& flags = job->flags;
    command.many_processes = true;
    add_run_flags(command.flags, *job);
    command.preset = [&flags] {
      const std::string& name = flags.run.preset;
      return name.empty() ? "" : "[train]\n" + job->preset(name);
    };
    command.check = [&command, &flags, make] {
      if (flags.run.resume.empty()) {
        check_flags(command.flags, *job, Use::run);
      } else {
        resumed = open_resumed(command.flags, *job, make);
      }
      check_run(command.flags, flags);
      if (!flags.mode.dump_graph.empty())
        check_writable(flags.mode.dump_graph, "--dump-graph", flags.run.force);
    };
    command.run = [&command, &flags](Output& out) {
      catch_signals();
      Ranks ranks(flags.run.rank_timeout);
      if (ranks.many()) check_alone(flags);
      try {
        Run run(*job, command.flags, resumed.get(), ranks, out);
        return train(run);
      } catch (...) {
        if (ranks.many()) ranks.fail(*flags.common);
        throw;
      }
    };
  });
}

}  // namespace sinter::cli
