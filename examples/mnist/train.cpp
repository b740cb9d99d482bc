// mnist train: the command. The run, its loop and its report have a file each.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "distributed/mpi.h"
#include "examples/cli/messages.h"
#include "examples/cli/signals.h"
#include "examples/cli/text.h"
#include "examples/mnist/commands.h"
#include "examples/mnist/run.h"

namespace sinter::mnist {
namespace {

// --dry-run
int dry_run(Run& run) {
  // Fused, two steps are recorded, then one is replayed.
  const int64_t steps = run.flags.mode.mode == "fused" ? 3 : 1;
  const Batch batch = run.batches->next();
  for (int64_t i = 0; i < steps; ++i) run.trainer->step(batch);
  const int64_t n = std::min(run.flags.optimizer.eval_batch, run.data.test.size());
  const Evaluation e = run.evaluate_on(slice(run.data.test, 0, n));
  run.out.result("dry run", "{}: loss {:.4f}; {} test images: accuracy {}; nothing was written",
      count_of(steps, "step"), run.trainer->state().last_loss, n, proportion(e.correct, e.images));
  report_capture(run);
  run.out.json("sinter.dry-run/1",
      {{"loss", run.trainer->state().last_loss}, {"images", n}, {"accuracy", e.accuracy()}});
  return 0;
}

// --overfit-batch
int overfit_batch(Run& run) {
  constexpr int kSteps = 500;
  constexpr double kWanted = 0.01;
  const Batch batch = run.batches->next();
  StepState state;
  int steps = 0;
  do {
    run.trainer->step(batch);
    state = run.trainer->state();
  } while (++steps < kSteps && !(state.last_loss < kWanted) && !interrupted());
  run.out.result("overfit", "loss {:.4f} on one batch of {} after {} steps", state.last_loss,
      batch.labels.numel(), steps);
  run.out.json("sinter.overfit-batch/1", {{"loss", state.last_loss}, {"steps", steps}});
  if (interrupted()) return exit_code(Error::Kind::interrupted);
  SINTER_CHECK(state.last_loss < kWanted, check,
      fmt::format("train: one batch cannot be learnt: loss {:.4g} after {} steps, wanted < {}",
          state.last_loss, steps, kWanted),
      "another --lr, or a mistake in the model");
  return 0;
}

int train(Run& run) {
  if (run.flags.run.dry_run) return dry_run(run);
  if (run.flags.run.overfit_batch) return overfit_batch(run);
  run.take_folder();
  StepProfile profile(run);
  profile.start();
  try {
    train_steps(run, profile);
  } catch (const Error& error) {
    // What is there of the run, and what to do with it, the writer of one file cannot know.
    if (error.kind() != Error::Kind::checkpoint || !run.ranks.first()) throw;
    const std::string name = escaped(run.folder->name());
    throw Error(error.kind(), cat(error.message(), "; ", name, " holds ", run.folder->holds()),
        run.saved_step < 0 ? error.hint()
                           : cat("make room there, then mnist train --resume ", name,
                                 " goes on after step ", run.saved_step));
  }
  return run.ranks.interrupted() ? report_interrupted(run, profile) : report(run, profile);
}

// What the ranks would not do alike.
void check_alone(const TrainFlags& flags) {
  SINTER_CHECK(!flags.run.overfit_batch && flags.mode.measure != "on", usage,
      cat("usage: ", flags.run.overfit_batch ? "--overfit-batch" : "--measure on",
          " is for one process: the launcher has started ", distributed::launched_ranks()),
      "mnist train without mpirun");
}

}  // namespace

void add_train(App& app) {
  static TrainFlags flags;
  flags.common = &app.common();
  Command& command = app.add(
      "train", "Trains a model on handwritten digits, tests it and saves it in a run folder.");
  command.many_processes = true;
  add_train_flags(command.flags, flags);
  command.preset = [&app] { return preset(flags.run.preset, app.common()); };
  static std::optional<Resumed> resumed;
  command.check = [&command] {
    if (flags.run.resume.empty()) {
      resolve(command.flags, flags);
    } else {
      resumed = open_resumed(command.flags, flags);
    }
  };
  command.run = [&command](Output& out) {
    catch_signals();
    Ranks ranks(flags.run.rank_timeout);
    if (ranks.many()) check_alone(flags);
    try {
      Run run(flags, command.flags, resumed ? &*resumed : nullptr, ranks, out);
      return train(run);
    } catch (...) {
      if (ranks.many()) ranks.fail(*flags.common);
      throw;
    }
  };
}

}  // namespace sinter::mnist
