#include <algorithm>

#include "core/device/memory.h"
#include "core/parallel.h"
#include "examples/cli/profile.h"
#include "examples/mnist/run.h"
#include "measure/comparison_table.h"
#include "profiler/exports.h"
#include "profiler/trace.h"

namespace sinter::mnist {

void StepProfile::start() {
  if (run_.flags.mode.profile.formats.empty()) return;
  const auto [wait, warmup, active, repeat] = run_.flags.mode.window;
  SINTER_CHECK(run_.steps - run_.at().step > wait + warmup, usage,
      cat("usage: --profile-steps ", run_.flags.mode.profile_steps,
          " records nothing: the run has ", run_.steps - run_.at().step, " steps, wanted ",
          wait + warmup + 1, " at least"),
      cat("--profile-steps 0:0:", run_.steps - run_.at().step, " records them all"));
  const bool fused = run_.flags.mode.mode == "fused", cuda = run_.device.type == Device::Type::cuda;
  int64_t resident = 0;  // parameters and gradients, optimizer state, the batch
  for (const auto& [name, p] : run_.trainer->model().named_parameters())
    resident += 2 * p.numel() * int64_t(size_of(p.dtype()));
  for (const auto& [name, t] : run_.trainer->optimizer().state_tensors())
    resident += t.numel() * int64_t(size_of(t.dtype()));
  resident += run_.flags.optimizer.batch * run_.flags.model.image().pixels() *
              int64_t(size_of(run_.flags.model.batch_dtype()));
  const std::string type = cuda ? "CUDA" : run_.device == kCpu ? "CPU" : run_.device.str();
  session_ = std::make_unique<profiler::Session>(profiler::Options{
      .schedule = {.wait = wait, .warmup = warmup, .active = active, .repeat = repeat},
      .title = type + " " + run_.flags.mode.mode,
      .threads = num_threads(),
      .device = run_.device,
      .mode = run_.flags.mode.mode,
      .rules = fused ? run_.flags.mode.rules : "",
      .dtype = run_.flags.model.dtype,
      .replayed = fused && cuda,
      .roofs = run_.ranks.first() ? roofs_for(run_.device, run_.out) : std::nullopt,
      .resident_bytes = resident});
}

void StepProfile::step(const measure::Timer& timer) {
  if (!session_) return;
  if (!session_->done()) return session_->step();
  const auto wanted = size_t(run_.flags.mode.window.active);
  // The first is left out: on a device it waits for the window's work.
  if (++after_window_ == 1 || clean_us_.size() >= wanted) return;
  if (run_.device != kCpu) synchronize(run_.device);
  clean_us_.push_back(timer.us());
}

void StepProfile::end() {
  const ProfileSteps& window = run_.flags.mode.window;
  if (!session_ || report_ || run_.at().step - run_.first_step <= window.wait + window.warmup)
    return;
  report_ = session_->finish();
  report_->clean_us = clean_us_;
}

void StepProfile::report() {
  if (!report_) return;
  const capture::Captured* captured =
      run_.trainer->captured_step() ? run_.trainer->captured_step()->captured() : nullptr;
  if (captured) report_->candidates.emplace();  // what can be fused, is
  if (captured && report_->replayed) report_->name_nodes(measure::describe_nodes(*captured));
  if (!run_.ranks.first()) return report_ranks();
  const profiler::Exports files{run_.folder->file("profile"), run_.flags.mode.profile.formats};
  const std::string table = report_->table(run_.flags.mode.view.table);
  files.write({&*report_, 1},
      {run_.flags.model.describe() + ", " + run_.flags.optimizer.optimizer,
          run_.flags.common->command, build_name(), std::to_string(run_.flags.common->seed),
          run_.flags.optimizer.batch},
      table);
  report_ranks();
  run_.out.note("files", join(files.files()));
  std::string shown = files.has("table") || run_.flags.mode.view.guess ? "\n" + table : "";
  if (run_.flags.mode.view.guess) shown = "\n" + guess(*report_, run_.out) + shown;
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
  if (!report_ || !run_.ranks.first()) return;
  Measured measured{.only = &*report_};
  const profiler::Estimate clean = profiler::median_interval(report_->clean_us);
  if (clean.has_interval && run_.device.type != Device::Type::simt) {
    measured.distortion = report_->distortion();
    measured.noise = 100 * clean.noise();
  }
  cli::check_view("train", run_.flags.mode.view, measured);
}

}  // namespace sinter::mnist
