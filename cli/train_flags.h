// The flags of a program that trains, but for those of its data and model: a struct and a function
// per topic, shared by the commands that have it. The structs hold checked values; resolve..()
// fills in what depends on other flags.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/app.h"
#include "cli/step.h"
#include "nn/schedule.h"

namespace sinter::cli {

struct OptimizerFlags {
  int64_t epochs = 5;
  std::optional<int64_t> steps;  // in place of epochs
  int64_t batch = 128, eval_batch = 1000;
  std::string optimizer = "adam";
  std::optional<double> lr;
  double momentum = 0.9;
  std::vector<double> betas;  // two, or unset
  std::optional<double> weight_decay;
  std::string schedule = "constant";
  std::string warmup = "";  // steps, or a share of all with %
  double clip = 0;
  int64_t accum = 1;     // parts of a step's rows, one after the other
  int64_t patience = 0;  // epochs without a better val accuracy before the run ends; 0: never

  int64_t rows_of_step() const { return batch * accum; }
  nn::Schedule schedule_of(int64_t steps_of_run) const;
};

// --profile-steps
struct ProfileSteps {
  int wait = 1, warmup = 3, active = 20, repeat = 1;
};
struct ModeFlags : FusionFlags {
  std::string mode = "fused";
  ExportFlags profile;  // formats alone
  std::string profile_steps = "1:3:20";
  ProfileSteps window{};  // the same
  ViewFlags view;         // of its table
};

struct RunFlags {
  std::string preset, out, init, resume;
  bool force = false, dry_run = false, overfit_batch = false, check_nan = false;
  int64_t save_every = 1, save_steps = 0, log_every = 100;
  std::optional<int64_t> fingerprint;  // of each Nth step
  std::optional<double> target;        // of the test's metric, as it is shown
  double rank_timeout = 60;            // seconds
};

struct TrainFlags {
  CommonFlags* common = nullptr;
  OptimizerFlags optimizer;
  ModeFlags mode;
  RunFlags run;
};

// The number that says how good a model is.
struct Metric {
  std::string name;               // "accuracy": --patience and best go by that of val
  std::string unit{};             // " %"
  double scale = 1;               // what is shown is so many times the value
  int decimals = 4;               // behind the point
  bool rises = true;              // the larger, the better
  std::string target = "target";  // the flag of a wanted one, and its range
  double low = -1e300, high = 1e300;

  std::string text(double value, int more_decimals = 0) const;
  // Of NaN neither holds.
  bool better(double a, double b) const { return rises ? a > b : a < b; }
  bool reaches(double value, double wanted) const {
    return rises ? value >= wanted : value <= wanted;
  }
};

// Topic "optimizer": how long a run is, the step, and --eval-batch-size.
void add_epoch_flags(Flags& flags, OptimizerFlags& optimizer, const Metric& metric);
void add_step_flags(Flags& flags, OptimizerFlags& optimizer);
void add_eval_flag(Flags& flags, OptimizerFlags& optimizer);
void add_mode_flags(Flags& flags, ModeFlags& mode);
void add_target_flag(Flags& flags, RunFlags& run, const Metric& metric);
void add_folder_flags(Flags& flags, RunFlags& run, const Metric& metric);

// Gives --lr and --lr-warmup their values where they depend on the optimizer and the schedule.
void resolve_optimizer(const Flags& flags, OptimizerFlags& optimizer);
// Throws usage where a type needs another device.
void check_dtype(const std::string& dtype, const CommonFlags& common);
// Checks what goes together of mode and run; resolve_optimizer() comes first.
void check_run(const Flags& flags, const TrainFlags& train);

}  // namespace sinter::cli
