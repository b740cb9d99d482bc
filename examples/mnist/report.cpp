#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "capture/explain.h"
#include "capture/measure.h"
#include "core/json.h"
#include "core/parallel.h"
#include "examples/cli/messages.h"
#include "examples/cli/text.h"
#include "examples/mnist/run.h"
#include "measure/comparison.h"

namespace sinter::mnist {
namespace {

void report_json(const Run& run, const Evaluation* test) {
  Json object = {{"run", run.folder->name()}, {"interrupted", test == nullptr}};
  if (test) object["test"] = *test;
  object["train_seconds"] = run.time.seconds();
  object["data_wait_seconds"] = run.trainer->wait_seconds();
  object["steps"] = run.at().step;
  object["steps_now"] = run.at().step - run.first_step;
  object["data"] = {{"name", run.data.name}, {"train", run.data.train.size()},
      {"val", run.data.val.size()}, {"test", run.data.test.size()}};
  object["model"] = {{"name", run.flags.model.describe()},
      {"parameters", run.trainer->model().num_parameters()}, {"dtype", run.flags.model.dtype}};
  object["optimizer"] = {{"name", run.flags.optimizer.optimizer}, {"lr", *run.flags.optimizer.lr},
      {"batch_size", run.flags.optimizer.batch}};
  object["seed"] = std::to_string(run.flags.common->seed);
  object["device"] = run.device;
  object["threads"] = num_threads();
  object["ranks"] = run.ranks.size();
  if (const Communicator* ranks = run.ranks.communicator()) {
    const Communicator::Stats& sums = ranks->stats();
    object["all_reduce"] = {{"sums", sums.sums}, {"bytes", sums.bytes},
        {"hidden_seconds", sums.hidden_s()}, {"exposed_seconds", sums.exposed_s}};
  }
  object["mode"] = run.flags.mode.mode;
  object["epochs"] = run.log->rows();
  run.out.json("sinter.train/1", object);
}

}  // namespace

void report_capture(Run& run) {
  const ModeFlags& mode = run.flags.mode;
  std::unique_ptr<Trainer> scratch;
  const bool fused = run.trainer->captured_step() != nullptr,
             captured_one = fused && run.trainer->captured_step()->captured();
  if (fused && !captured_one) {
    run.out.note("capture",
        "none: the first two steps of each batch shape run eagerly, to be recorded; this run had "
        "{}",
        count_of(run.at().step, "step"));
  }
  if (!captured_one && (!mode.dump_graph.empty() || mode.explain)) {
    TrainFlags flags = run.flags;
    flags.mode.mode = "fused";
    if (!fused) flags.mode.rules = "none";
    scratch = make_trainer(flags, make_model(flags.model, flags.common->seed, run.device), 2);
    const Batch batch = run.batches->next();
    for (int i = 0; i < 2; ++i) scratch->step(batch);
  }
  const capture::Step* step = scratch ? scratch->captured_step() : run.trainer->captured_step();
  const capture::Captured* captured = step ? step->captured() : nullptr;
  if (!captured) return;
  if (!mode.dump_graph.empty() && run.ranks.first())
    write_graph(mode.dump_graph, captured->fused.graph);
  if (mode.explain)
    run.out.result_text("\n" + capture::explain(*captured, capture::RuleSet(mode.rules)));
  if (scratch) return;
  const capture::StepStats& stats = step->stats();
  run.out.note("capture",
      "{} launches -> {} (rules {}), shape-specialised, {} in {}, {} of {} "
      "replayed, {} per replay",
      captured->recorded.launches(), captured->executor->launches(), mode.rules,
      count_of(stats.captures, "capture"), cli::seconds(stats.capture_ms * 1e-3),
      grouped(stats.replays), count_of(stats.calls, "step"),
      count_of(run.trainer->allocations_per_replay(), "allocation"));
  if (const int64_t kept = measure::kept_unfused(captured->fused); kept > 0) {
    run.out.note("note", "{} of {} run unfused: measured here, fused is no faster{}", kept,
        count_of(int64_t(captured->fused.groups.size()), "group"),
        mode.explain ? "" : " (--explain; --measure off fuses all)");
  }
  if (const int64_t open = capture::undecided(captured->fused); open > 0)
    run.out.note("note", "fused all the same: {}, no difference measured{}",
        count_of(open, "group"), mode.explain ? "" : " (--explain says why)");
  for (const std::string& miss : stats.misses) run.out.note("note", miss);
}

int report_interrupted(Run& run, StepProfile& profile) {
  profile.end();
  run.out.note("stop", "interrupted after {}: {} saved; mnist train --resume {} goes on",
      run.position(std::max<int64_t>(run.at().step, 1)), kLastFile, escaped(run.folder->name()));
  run.out.result("time", "{} of training, {}     run {}", cli::seconds(run.time.seconds()),
      run.steps_text(run.steps), escaped(run.folder->name()));
  report_json(run, nullptr);
  profile.report();
  return exit_code(Error::Kind::interrupted);
}

int report(Run& run, StepProfile& profile) {
  profile.end();
  const Evaluation test = run.evaluate_on(run.data.test);
  if (!test.complete) return report_interrupted(run, profile);
  const std::optional<double> target = run.flags.run.target_acc;
  const bool fused = run.flags.mode.mode == "fused",
             reached = !target || 100 * test.accuracy() >= *target;
  run.out.result("test", test.summary() + (target ? fmt::format("   target {} %: {}", *target,
                                                        reached ? "reached" : "missed")
                                                  : ""));
  run.out.result("time", "{} of training, {}     run {}", cli::seconds(run.time.seconds()),
      run.steps_text(), escaped(run.folder->name()));
  if (const Communicator* ranks = run.ranks.communicator()) {
    const Communicator::Stats& sums = ranks->stats();
    run.out.note("ranks", "{} by {}: {} of {} in {}, of which {:.0f} % ran beside the step",
        ranks->size(), ranks->describe(), count_of(sums.sums, "sum"), cli::bytes(sums.bytes),
        cli::seconds(sums.under_way_s), 100 * sums.hidden_s() / sums.under_way_s);
  }
  report_json(run, &test);
  profile.report();
  report_capture(run);
  profile.check();
  SINTER_CHECK(reached, check,
      fmt::format("train: target missed: test accuracy {:.2f} %, --target-acc {}",
          100 * test.accuracy(), *target));
  const double guessing = std::log(double(run.flags.model.classes));
  const bool ran_away = std::ranges::any_of(
      run.log->rows(), [&run](const EpochRow& row) { return run.diverges(row.loss); });
  SINTER_CHECK(!run.diverges(test.loss()) && !(ran_away && test.loss() > guessing), numeric,
      fmt::format("train: diverged: loss {:.3g} on the test set, and guessing has ln({}) = {:.3f}; "
                  "the weights in {} are of no use",
          test.loss(), run.flags.model.classes, guessing, escaped(run.folder->name())),
      fmt::format("--lr {} or --clip 1", run.smaller_lr()));
  run.out.note("next", "mnist predict --index 0, mnist predict FILE.png, mnist compare, {}",
      fused ? "mnist inspect" : "mnist train --mode fused");
  return 0;
}

}  // namespace sinter::mnist
