#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "capture/explain.h"
#include "capture/measure.h"
#include "cli/process.h"
#include "cli/run.h"
#include "cli/step.h"
#include "core/device/memory.h"
#include "core/json.h"
#include "core/parallel.h"
#include "measure/comparison.h"
#include "measure/exports.h"
#include "profiler/trace.h"

namespace sinter::cli {
namespace {

void report_json(const Run& run, const Evaluated* test) {
  Json object = {{"run", run.folder->name()}, {"interrupted", test == nullptr}};
  if (test) object["test"] = test->json;
  object["train_seconds"] = run.time.seconds();
  object["data_wait_seconds"] = run.trainer->wait_seconds();
  object["steps"] = run.at().step;
  object["steps_now"] = run.at().step - run.first_step;
  object["data"] = {{"name", run.data.name}, {"train", run.data.train}, {"val", run.data.val},
      {"test", run.data.test}};
  object["model"] = {{"name", run.job.describe()},
      {"parameters", run.trainer->model().num_parameters()}, {"dtype", run.job.dtype()}};
  object["optimizer"] = {{"name", run.flags.optimizer.optimizer}, {"lr", *run.flags.optimizer.lr},
      {"batch_size", run.flags.optimizer.batch}, {"accum", run.flags.optimizer.accum}};
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
  object["epochs"] = Json::array();
  for (const EpochRow& row : run.log->rows())
    object["epochs"].push_back(json_of(row, run.metric.name));
  run.out.json("sinter.train/1", object);
}

// "0.91 s of training, 3,440 steps, 264.5 us/step, 2 threads", and a line of the run's folder. On
// the CPU threads decide the time.
std::string time_text(const Run& run, std::optional<int64_t> planned = {}) {
  const int64_t steps = run.at().step - run.first_step;
  const double us = 1e6 * run.time.seconds() / double(std::max<int64_t>(steps, 1));
  const profiler::Unit unit = profiler::unit_of_us(us);
  return fmt::format("{} of training, {}{}{}\nrun     {}", cli::seconds(run.time.seconds()),
      run.steps_text(planned),
      steps > 0 ? str(", ", profiler::time_text(us / unit.size), " ", unit.name, "/step") : "",
      run.device == kCpu ? ", " + count_of(num_threads(), "thread") : "",
      escaped(run.folder->name()));
}

// That another epoch than the last had the better weights.
void note_best(const Run& run) {
  const std::vector<EpochRow>& rows = run.log->rows();
  const auto last = rows.empty() ? std::nullopt : rows.back().val_metric;
  if (!last || !run.metric.better(run.at().best, *last) || run.flags.run.save_every == 0) return;
  const std::string uses = run.job.uses(), file = as_word(run.folder->file(kBestFile));
  run.out.note("best", "by val {} {}: test is of the last weights, {}; {}{}", run.metric.name,
      run.metric.text(run.at().best, 1), run.metric.text(*last, 1),
      uses.empty() ? "" : uses + " --from ", file);
}

// What --fingerprint kept, and what that took.
void report_prints(const Run& run) {
  if (!run.prints || run.prints->cost().steps == 0) return;
  const auto& [steps, bytes, seconds] = run.prints->cost();
  const double each = seconds / double(steps),
               rest = (run.time.seconds() - seconds) / double(run.at().step - run.first_step);
  run.out.note("prints",
      "{} of a step hashed in {}, {:.1f} GB/s, {:.0f} % of what it takes without; {} diff RUN RUN "
      "tells where two runs part",
      cli::bytes(bytes / steps), cli::seconds(each), double(bytes) / seconds / 1e9,
      100 * each / rest, program_name());
}

}  // namespace

void StepProfile::prepare() {
  std::vector<std::string>& formats = run_.flags.mode.profile.formats;
  const int64_t left = run_.steps - (run_.resumed ? run_.resumed->checkpoint.state.step : 0);
  // A run that is finished takes no step; --profile may be from its config.
  if (formats.empty() || left <= 0) return;
  const ProfileSteps& window = run_.flags.mode.window;
  SINTER_CHECK(left > window.wait + window.warmup, usage,
      str("usage: --profile-steps ", run_.flags.mode.profile_steps,
          " records nothing: the run has ", left, " steps, wanted ",
          window.wait + window.warmup + 1, " at least"),
      str("--profile-steps 0:0:", left, " records them all"));
  if (!run_.resumed) return;
  const measure::Exports files{run_.resumed->folder + "/profile", formats, false,
      "usage: --profile", "move it away, or leave out --profile"};
  if (run_.all_flags["profile"].source > Source::checkpoint) return files.check(false);
  const auto is_there = [](const std::string& file) {
    std::error_code error;
    return std::filesystem::exists(file, error);
  };
  if (run_.ranks.of_first(std::ranges::any_of(files.files(), is_there) ? "kept" : "").empty())
    return;
  formats.clear();
  run_.out.note("profile", "that of the earlier steps stays as it is");
}

void StepProfile::start() {
  if (run_.flags.mode.profile.formats.empty() || run_.at().ended) return;
  const auto [wait, warmup, active, repeat] = run_.flags.mode.window;
  const bool fused = run_.flags.mode.mode == "fused", cuda = run_.device.type == Device::Type::cuda;
  const std::string type = cuda ? "CUDA" : run_.device == kCpu ? "CPU" : run_.device.str();
  session_ = std::make_unique<profiler::Session>(profiler::Options{
      .schedule = {.wait = wait, .warmup = warmup, .active = active, .repeat = repeat},
      .title = type + " " + run_.flags.mode.mode,
      .threads = num_threads(),
      .device = run_.device,
      .mode = run_.flags.mode.mode,
      .rules = fused ? run_.flags.mode.rules : "",
      .dtype = run_.job.dtype(),
      .roofs = run_.ranks.first() ? roofs_for(run_.device, run_.out) : std::nullopt,
      // Parameters and gradients, optimizer state, the batch.
      .resident_bytes = 2 * bytes_of(run_.trainer->model().named_parameters()) +
                        bytes_of(run_.trainer->optimizer().state_tensors()) + run_.batch_bytes});
}

bool StepProfile::is_usual() {
  const capture::Step* step = run_.trainer->captured_step();
  const int64_t recorded = step ? step->stats().recordings + step->stats().captures : 0;
  return std::exchange(recorded_, recorded) == recorded;
}

void StepProfile::step(const measure::Timer& timer) {
  if (!session_) return;
  const bool usual = is_usual();
  if (!session_->done()) return session_->step(usual);
  const auto wanted = size_t(run_.flags.mode.window.active);
  // The first is left out: on a device it waits for the window's work.
  if (++after_window_ == 1 || clean_us_.size() >= wanted || !usual) return;
  if (run_.device != kCpu) synchronize(run_.device);
  clean_us_.push_back(timer.us());
}

void StepProfile::end() {
  const ProfileSteps& window = run_.flags.mode.window;
  const int64_t behind = run_.at().step - run_.first_step - window.wait - window.warmup;
  if (!session_ || report_ || behind <= 0) return;
  const std::string left_out = str(count_of(session_->left_out(), "step"),
      " left out, in which a shape of batch was recorded or captured");
  if (behind == session_->left_out()) return run_.out.note("profile", "none: " + left_out);
  report_ = session_->finish();
  report_->clean_us = clean_us_;
  if (session_->left_out() > 0) report_->notes.push_back(left_out);
}

void StepProfile::report() {
  if (!report_) return;
  const capture::Captured* captured =
      run_.trainer->captured_step() ? run_.trainer->captured_step()->captured() : nullptr;
  if (captured) {
    report_->candidates.emplace();  // what can be fused, is
    report_->name_nodes(measure::describe_nodes(*captured));
  }
  if (!run_.ranks.first()) return report_ranks();
  const measure::Exports files{run_.folder->file("profile"), run_.flags.mode.profile.formats};
  const std::string table = report_->table(run_.flags.mode.view.table);
  files.write({&*report_, 1},
      {run_.job.workload(), run_.flags.common->command, build_name(),
          std::to_string(run_.flags.common->seed), run_.flags.optimizer.rows_of_step()},
      table);
  report_ranks();
  run_.out.note("files", join(files.files()));
  std::string shown = files.has("table") ? "\n" + table : "";
  if (!shown.empty()) run_.out.result_text(shown);
}

// The traces of all ranks: together in place of rank 0's, for Perfetto, and each for itself, for
// tools that compare ranks. On one machine they have one clock; those of several begin together.
void StepProfile::report_ranks() {
  Ranks& ranks = run_.ranks;
  if (!ranks.many() || !std::ranges::count(run_.flags.mode.profile.formats, "trace")) return;
  const std::string base = ranks.of_first(std::to_string(report_->steps.front().t0));
  const std::vector<std::string> all = ranks.communicator()->gather(profiler::chrome_trace(
      {&*report_, 1}, {.rank = ranks.rank(), .ranks = ranks.size(), .base = std::stoll(base)}));
  if (!ranks.first()) return;
  for (size_t r = 0; r < all.size(); ++r)
    profiler::write_trace(run_.folder->file("profile.rank") + std::to_string(r), all[r]);
  profiler::write_trace(run_.folder->file("profile"), profiler::joined_traces(all));
}

void StepProfile::check() const {
  if (!session_ || !run_.ranks.first()) return;
  const ViewFlags& view = run_.flags.mode.view;
  SINTER_CHECK(report_ || (view.expect.empty() && view.fail_on.empty()), untrusted,
      "train: --expect and --fail-on not decided; no step was recorded");
  if (!report_) return;
  Measured measured{.only = &*report_};
  const profiler::Estimate clean = profiler::median_interval(report_->clean_us);
  if (clean.has_interval && run_.device.type != Device::Type::simt) {
    measured.distortion = report_->distortion();
    measured.noise = 100 * clean.noise();
  }
  cli::check_view("train", view, measured);
}

void report_capture(Run& run) {
  const ModeFlags& mode = run.flags.mode;
  const capture::Step* step = run.trainer->captured_step();
  if (!step) return;
  const capture::Captured* captured = step->captured();
  // What Trainer::resume() rehearsed are calls of the captured step, and no steps of the run.
  const std::string steps = count_of(run.at().step - run.first_step, "step");
  if (!captured) {
    run.out.note("capture",
        "none: the first step of each batch shape runs eagerly, to be recorded; this run had {}",
        steps);
    return;
  }
  if (!mode.dump_graph.empty() && run.ranks.first())
    write_graph(mode.dump_graph, captured->fused.graph);
  if (mode.explain)
    run.out.result_text("\n" + capture::explain(*captured, capture::RuleSet(mode.rules)));
  const capture::StepStats& stats = step->stats();
  run.out.note("capture", "{} launches -> {} (rules {}), {} of {} replayed",
      captured->recorded.launches(), captured->executor->launches(), mode.rules,
      grouped(stats.replays), steps);
  if (run.flags.common->verbose)
    run.out.note("capture", "shape-specialised, {} in {}, {} per replay",
        count_of(stats.captures, "capture"), cli::seconds(stats.capture_ms * 1e-3),
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
  const int64_t step = run.at().step;
  const int status = run.out.stopped(
      str(step > 0 ? "after " + run.position(step) : "before the first step", ": ", kLastFile,
          " saved; ", program_name(), " train --resume ", as_word(run.folder->name()), " goes on"));
  run.out.result("time", time_text(run, run.steps));
  report_prints(run);
  report_json(run, nullptr);
  profile.report();
  return status;
}

int report(Run& run, StepProfile& profile) {
  profile.end();
  const Evaluated test = run.evaluate_on(Set::test);
  if (!test.complete) return report_interrupted(run, profile);
  const std::optional<double> target = run.flags.run.target;
  const bool fused = run.flags.mode.mode == "fused",
             reached = !target || run.metric.reaches(run.metric.scale * test.metric, *target);
  run.out.result("test", test.text + (target ? fmt::format("   target {}{}: {}", *target,
                                                   run.metric.unit, reached ? "reached" : "missed")
                                             : ""));
  note_best(run);
  run.out.result("time", time_text(run));
  report_prints(run);
  if (const Communicator* ranks = run.ranks.communicator()) {
    const Communicator::Stats& sums = ranks->stats();
    run.out.note("ranks", "{} by {}: {} of {} in {}, of which {:.0f} % ran beside the step",
        ranks->size(), ranks->describe(), count_of(sums.sums, "sum"), cli::bytes(sums.bytes),
        cli::seconds(sums.under_way_s), 100 * sums.hidden_s() / sums.under_way_s);
  }
  report_json(run, &test);
  if (run.ranks.first()) run.job.show(run.trainer->model(), run.out);
  profile.report();
  report_capture(run);
  profile.check();
  SINTER_CHECK(!std::isnan(test.metric), numeric,
      str("train: ", run.metric.name, " is nan on the test set; such a score is never the best"));
  SINTER_CHECK(reached, check,
      fmt::format("train: target missed: test {} {}, --{} {}", run.metric.name,
          run.metric.text(test.metric, 1), run.metric.target, *target));
  if (const auto& guessing = run.guessing) {
    const bool ran_away = std::ranges::any_of(
        run.log->rows(), [&run](const EpochRow& row) { return run.diverges(row.loss); });
    SINTER_CHECK(!run.diverges(test.loss) && !(ran_away && test.loss > guessing->loss), numeric,
        fmt::format("train: diverged: loss {:.3g} on the test set, and guessing has {} = {:.3f}; "
                    "the weights in {} are of no use",
            test.loss, guessing->text, guessing->loss, escaped(run.folder->name())),
        fmt::format("--lr {} or --clip 1", run.smaller_lr()));
  }
  const std::string uses = run.job.uses(), name = program_name(), opens = run.job.opens();
  run.out.note("next", "{}{}{} compare{}, {} {}", uses, uses.empty() ? "" : ", ", name, opens, name,
      fused ? "inspect" + opens : "train --mode fused");
  return 0;
}

}  // namespace sinter::cli
