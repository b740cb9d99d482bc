// The commands of `mnist`, and their flags: a struct and a function per topic, shared by the
// commands that have it. The structs hold checked values; resolve() fills in what depends on other
// flags.
#pragma once

#include "cli/commands.h"
#include "data/batches.h"
#include "data/dataset.h"
#include "data/digits.h"
#include "nn/schedule.h"

namespace sinter::mnist {

using namespace cli;

struct DataFlags {
  std::string what;
  int64_t val = 5000, limit = 0;
  std::string normalize = "none";
  std::string augment;  // as parse_augment() reads it; of train
  std::string
      crc32;  // of the data that a run was trained on, see Dataset; it writes it into its config

  DataOptions options(int64_t classes) const {
    return {.what = what, .val = val, .limit = limit, .classes = classes};
  }
  Normalize normalization() const {
    return normalize == "mnist" ? Normalize::mnist : Normalize::none;
  }
};

struct ModelFlags {
  std::string model = "mlp";  // a name, or layers as nn::Net reads them
  std::vector<int64_t> hidden = {256, 128};
  std::string act = "relu";
  std::optional<double> dropout;  // unset: none, or what the named net has
  int64_t classes = 10;
  std::string dtype = "f32";
  std::string image_size = ImageShape().str();  // of the data; a run writes it into its config

  ImageShape image() const { return ImageShape::parse(image_size); }
  std::vector<int64_t> sizes() const;  // of mlp, linear and geglu: 784, .., classes
  std::string net() const;             // the layers of any other, as nn::Net reads them
  std::string name() const;            // the model's, or "net" of layers
  std::string describe() const;        // mlp 784-256-128-10 relu; lenet 28x28-10; or the layers
  DType batch_dtype() const { return dtype == "bf16" ? DType::bf16 : DType::f32; }
};

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
  DataFlags data;
  ModelFlags model;
  OptimizerFlags optimizer;
  ModeFlags mode;
  RunFlags run;

  // What a step does: of equal text, profiles can be compared.
  std::string workload() const;
  // A step's rows.
  BatchOptions batches(Device device) const {
    return {.size = optimizer.rows_of_step(),
        .seed = common->seed,
        .dtype = model.batch_dtype(),
        .normalize = data.normalization(),
        .device = device,
        .augment = parse_augment(data.augment)};
  }
};

void add_data_flags(Flags& flags, DataFlags& data);
void add_model_flags(Flags& flags, ModelFlags& model);
void add_optimizer_flags(Flags& flags, OptimizerFlags& optimizer);
void add_step_flags(Flags& flags,
    OptimizerFlags& optimizer);  // those of the optimizer but for --epochs and --steps
void add_mode_flags(Flags& flags, ModeFlags& mode);
void add_preset_flag(Flags& flags, RunFlags& run);
void add_target_flag(Flags& flags, RunFlags& run);
void add_recipe_flags(Flags& flags, TrainFlags& train);  // of data, model and optimizer
void add_run_flags(Flags& flags, RunFlags& run);
void add_train_flags(Flags& flags, TrainFlags& train);

// Checks what goes together, and gives --lr and --lr-warmup their values where they depend on the
// optimizer and the schedule.
void resolve(const Flags& flags, TrainFlags& train);
void resolve_step(const Flags& flags, TrainFlags& train);  // the same without the flags of a whole
                                                           // run
// The config of --preset NAME, of those that preset_names() lists, for a command; "" of no name.
std::string preset(
    const std::string& name, const CommonFlags& common, const std::string& command = "train");
std::vector<std::string> preset_names();
// The training time that it is to keep on two quiet cores, where one is set.
std::optional<double> preset_seconds(const std::string& name);
// Is this among the flags of /proc/cpuinfo: "amx_bf16"?
bool cpu_has(std::string_view feature);

// What one types here in place of other words.
ProgramWords words();
extern const char kGlossary[];  // glossary.cpp.in

// The commands that others have not, see cli/commands.h.
Setup add_train, add_speedrun, add_eval, add_predict, add_compare, add_inspect, add_bench, add_data,
    add_doctor;

}  // namespace sinter::mnist
