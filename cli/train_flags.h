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
  double clip = 0, label_smoothing = 0;
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
  std::string mode = "eager";
  ExportFlags profile;  // formats alone
  std::string profile_steps = "1:3:20";
  ProfileSteps window{};  // the same
  ViewFlags view;         // of its table
};

struct RunFlags {
  std::string preset, out, init, resume;
  bool force = false, dry_run = false, overfit_batch = false, check_nan = false;
  int64_t save_every = 1, save_steps = 0, log_every = 100, stop_after = 0;
  std::optional<double> target_acc;
  double rank_timeout = 60;  // seconds
};

struct TrainFlags {
  CommonFlags* common = nullptr;
  OptimizerFlags optimizer;
  ModeFlags mode;
  RunFlags run;

  // What a step of this model does: of equal text, profiles can be compared.
  std::string workload(const std::string& model) const;
};

void add_optimizer_flags(Flags& flags, OptimizerFlags& optimizer);
// Those of the optimizer but for --epochs and --steps.
void add_step_flags(Flags& flags, OptimizerFlags& optimizer);
void add_mode_flags(Flags& flags, ModeFlags& mode);
// --preset NAME, of a program that has some.
void add_preset_flag(Flags& flags, RunFlags& run, std::vector<std::string> names);
void add_target_flag(Flags& flags, RunFlags& run);
void add_run_flags(Flags& flags, RunFlags& run, std::vector<std::string> presets);

// Gives --lr and --lr-warmup their values where they depend on the optimizer and the schedule.
void resolve_optimizer(const Flags& flags, OptimizerFlags& optimizer);
// Throws usage where a type needs another device.
void check_dtype(const std::string& dtype, const CommonFlags& common);
// Checks what goes together of mode and run; resolve_optimizer() comes first.
void check_run(const Flags& flags, const TrainFlags& train);

}  // namespace sinter::cli
