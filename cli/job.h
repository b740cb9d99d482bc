// What a program trains, as the commands of this folder see it. A program derives from Job, which
// has its flags, its data, its model, its loss and the number that says how good a model is; the
// functions below make commands of it. A job of tensors derives from TensorJob, which cuts them
// into batches.
//
//   class Waves : public cli::TensorJob {
//     ..
//   };
//   std::unique_ptr<cli::Job> make(cli::CommonFlags& common) {
//     return std::make_unique<Waves>(common);
//   }
//   add_train(app, "Learns how a wave goes on.", make);
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/train_flags.h"
#include "data/tensor_batches.h"
#include "train/trainer.h"

namespace sinter::cli {

// What flags and data are for: a run, or one step that is looked at.
enum class Use : uint8_t { run, step };
enum class Set : uint8_t { val, test };
inline const char* name_of(Set set) { return set == Set::val ? "val" : "test"; }

// How good a model is on a set.
struct Evaluated {
  std::string text{};         // of all that there is to say: "98.2 % +-0.3  loss 0.0614 .."
  std::string metric_text{};  // "98.2 % +-0.3"
  double metric = 0, loss = 0;
  int64_t rows = 0;
  bool complete = true;  // false: a signal came
  Json json{};
};

// The loss of a model that knows nothing, where there is one: training that stays there learns
// nothing, and diverges far above it.
struct Guessing {
  double loss = 0;
  std::string text{};  // "ln(10)"
  std::string hint{};  // where the loss stays there: "check lr, and that .."
};

// A named list of flags.
struct Preset {
  std::string name, config;  // the lines of a config
  // The training time that it is to keep on two quiet cores, and that after which a run of it ends
  // in `speedrun`, where it has such.
  std::optional<double> seconds{}, budget{};
};

struct DataFacts {
  std::string name{};
  uint64_t crc = 0;                      // of the numbers
  int64_t train = 0, val = 0, test = 0;  // rows
};

struct Loading {
  Device device;
  const Flags& given;
  Use use;
  Output& out;
  int64_t rank = 0, ranks = 1;
  bool resumed = false;  // the weights are a checkpoint's
};

class Job {
 public:
  explicit Job(CommonFlags& common) { flags.common = &common; }
  virtual ~Job() = default;
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  TrainFlags flags;  // of optimizer, mode and run: those of the commands

  // ---- flags of its own
  // Of data and model. A run that goes on must have those that it had, but for places.
  virtual void add_flags(Flags& to, Use use) = 0;
  // Of the loss; they stand behind the optimizer's, and a run that goes on may have others.
  virtual void add_loss_flags(Flags&) {}
  // Once they have their values: what goes together.
  virtual void check(const Flags&, Use) {}
  // Of --preset, which is a flag where there are some; and the config that one is.
  virtual std::vector<Preset> presets() const { return {}; }
  virtual std::string preset(const std::string& name) const { return preset_named(name).config; }
  virtual std::string preset_help() const { return "a named list of flags; others given win"; }
  // The config of the weights that make_model() has of a file, which stands for flags not given.
  virtual std::string saved_config() { return ""; }

  // ---- what it is, in words
  virtual std::string name() const = 0;                // begins the names of files: "mlp"
  virtual std::string describe() const = 0;            // "mlp 784-256-10 relu"
  virtual std::string dtype() const { return "f32"; }  // or tf32, bf16
  virtual Metric metric() const = 0;
  virtual std::optional<Guessing> guessing() const { return {}; }
  // What a row of the data is, of several and in short.
  virtual std::pair<std::string, const char*> rows() const { return {"rows", "rows"}; }
  // Where the weights of make_model() are from; "": they are new.
  virtual std::string weights() const { return ""; }
  // What a reader of a comparison may try, and one of a run's result; "": nothing of its own.
  virtual std::string next() const { return ""; }
  virtual std::string uses() const { return ""; }
  // What opens a run's model in compare and inspect, to be said behind these.
  virtual std::string opens() const { return ""; }
  // [C, H, W] of a row of x, where that is a picture.
  virtual Shape picture() const { return {}; }

  // ---- what runs
  // Data into memory, and what they are is said; for Use::step those of one batch do.
  virtual void load(const Loading& loading) = 0;
  // To the device, cut into batches.
  virtual void make_batches(const Loading& loading) = 0;
  virtual DataFacts data() const = 0;
  virtual BatchSource& batches() = 0;  // once they are made
  // {x[B, ..], target[B, ..]}, of all ranks. A source that gives a rank its own rows is to say how.
  virtual Tensors first_batch();
  // The same at each call, of the weights that --seed draws, or of a file's.
  virtual std::shared_ptr<nn::Module> make_model(Device device) = 0;
  virtual bool convolves() const { return false; }
  // What holds for some parameters alone.
  virtual void set_groups(nn::Optimizer&) const {}
  // Behind the result of a run: what its model does.
  virtual void show(nn::Module&, Output&) {}
  // --init: puts the weights of a file into the model; says what it did.
  virtual std::string take_weights(nn::Module& model, const std::string& file);
  // See TrainerOptions.
  virtual std::function<Tensor(const Tensor& output, const Tensor& target)> loss() const = 0;
  // The least mean loss that a model can have of a batch: above 0 where the same is read, and
  // another target wanted.
  virtual double least_loss(const Tensors& /*batch*/) const { return 0; }
  // Before the first step: can the trainer take each batch? See Trainer::check().
  virtual void check_batches(Trainer&) {}
  // See Trainer. `then` has the flags of the run that goes on.
  virtual void fit(Trainer& trainer, const Trainer::Callback& after) {
    trainer.fit(batches(), after);
  }
  virtual void resume(Trainer& trainer, const nn::Checkpoint& saved, const Job& /*then*/) {
    trainer.resume(saved, batches());
  }
  // Of the first `most` rows, in batches of --eval-batch-size; `ranks`, if there are some, share
  // them. Without gradients and dropout.
  virtual Evaluated evaluate(nn::Module& model, Set set, int64_t most, Communicator* ranks) = 0;

  // What a step does: of equal text, profiles can be compared.
  std::string workload() const;
  std::vector<std::string> preset_names() const;
  Preset preset_named(const std::string& name) const;  // REQUIRES: there is one
  int64_t rows_of(Set set) const { return set == Set::val ? data().val : data().test; }
  // Of make_model(), by `by` in place of its own flags. `steps`: of the whole run, for the
  // schedule. `choices`: of an earlier capture, see capture::StepOptions.
  std::unique_ptr<Trainer> make_trainer(const TrainFlags& by, Device device, int64_t steps,
      std::vector<capture::Refused> choices = {});
  std::unique_ptr<Trainer> make_trainer(const TrainFlags& by, std::shared_ptr<nn::Module> model,
      int64_t steps, std::vector<capture::Refused> choices = {});
  // choose_threads() of step.h by the eager step of a scratch trainer, for all modes alike. Draws
  // random numbers, if the step does.
  std::string choose_threads(const Tensors& batch);
};

// A new one each time, whose flags have their defaults.
using JobMaker = std::function<std::unique_ptr<Job>(CommonFlags& common)>;

// Of tensors: an epoch takes the rows of `train` in an order that --seed and its number draw, in
// batches of --batch-size (data/tensor_batches.h).
class TensorJob : public Job {
 public:
  using Job::Job;
  void load(const Loading& loading) override;
  void make_batches(const Loading& loading) override;
  DataFacts data() const override { return facts_; }
  BatchSource& batches() override { return *batches_; }
  Evaluated evaluate(nn::Module& model, Set set, int64_t most, Communicator* ranks) override;

 protected:
  // {x[N, ..], target[N, ..]} on the CPU; without val it has no tensors.
  struct Sets {
    Tensors train, val, test;
  };
  virtual Sets make_sets(const Loading& loading) = 0;
  // TensorBatchOptions::then of the batches that are trained on.
  virtual std::function<Tensors(const Tensors&)> then() const { return {}; }
  // What the data are called.
  virtual std::string data_name() const { return name(); }
  // A number for each of the losses, of which one a row is usual: the metric is their mean, of
  // those that count (Note [Rows that do not count] in ops/rows/losses.cpp).
  virtual Tensor score(const Tensor& output, const Tensor& target) const = 0;

 private:
  Sets sets_;
  DataFacts facts_;
  Device device_ = kCpu;
  std::optional<TensorBatches> batches_;
};

// The flags of one step: the job's and the optimizer's, and where there are some --preset. Of a
// preset, and of Job::saved_config(), counts what a step has.
void add_step_flags(Command& command, Job& job);
// --preset, of a job that has some.
void add_preset_flag(Flags& to, Job& job);
// Of what a run learns: those, and how long it learns.
void add_recipe_flags(Flags& to, Job& job);
// Of a run: those, and of mode and run folder.
void add_run_flags(Flags& to, Job& job);
// Checks what goes together, and gives flags their values that depend on others; check_run() has
// what is a run's.
void check_flags(const Flags& given, Job& job, Use use);

// The config that a checkpoint holds, into the flags of a run. Throws checkpoint.
void apply_saved_config(const std::string& config, const std::string& file, Flags& flags);
// The same into a job of its own, with the flags of a run, which it returns. The job outlives them.
Flags saved_flags(const std::string& config, const std::string& file, Job& job);
// The file itself, or the first of `names` in a run folder. Throws checkpoint if there is none.
std::string find_checkpoint(
    const std::string& run_or_file, std::initializer_list<const char*> names);

// What one step needs of the data, into memory: the job's batch.
Tensors load_first_batch(Job& job, const Flags& given, Device device, Output& out);
// The job's batch on the device of its flags; threads are chosen, random numbers begin, and it is
// said what is there.
Tensors load_batch(Job& job, const Flags& given, Output& out);

// Commands of a job. train: the run is in a folder, saves itself, ends on a signal and can go on.
void add_train(App& app, std::string summary, const JobMaker& make);
// resume-check: does a run's checkpoint hold what the run came to, and go on as it would?
void add_resume_check(App& app, const JobMaker& make);
// speedrun: trains a preset, this one unless another is given, with several seeds: metric and time
// with intervals.
void add_speedrun(
    App& app, std::string summary, const JobMaker& make, const std::string& preset = "");
// What bench varies: rows of a step, and a number of the model.
struct Sizes {
  std::string title;       // "mlp 784-H-H-10"
  std::string name, help;  // of the flag for the number: "hidden"
  std::vector<int64_t> batches, others;
  int64_t most_rows;
  std::function<void(int64_t)> set;  // the number, into the job
  std::function<void(Flags& to)> add_flags = [](Flags&) {};
};
// Times the whole step, eager against fused, over these sizes (bench.cpp).
void add_bench(App& app, Command& command, std::shared_ptr<Job> job, Sizes of_job);
// compare: the same step eager and fused: are the numbers the same, what became fewer, how long
// does it take.
void add_compare(App& app, const JobMaker& make);
// inspect: one step, opened: a page for a browser, or a walk in the terminal.
void add_inspect(App& app, const JobMaker& make);

}  // namespace sinter::cli
