// What a program trains, as the commands of this folder see it. A program derives from Job, which
// has its flags, its data, its model and its loss; add_compare() and add_inspect() make commands of
// it. The optimizer is made of the flags of train_flags.h.
//
//   class Waves : public cli::Job {
//     ..
//   };
//   app.add("compare", "A step of waves, eager and fused.", [](App& app, Command& command) {
//     static Waves waves(app.common());
//     add_compare(app, command, waves);
//   });
#pragma once

#include <functional>
#include <memory>

#include "cli/train_flags.h"
#include "train/trainer.h"

namespace sinter::cli {

class Job {
 public:
  Job() = default;
  virtual ~Job() = default;
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  // ---- flags
  // Of the optimizer and the mode. `common` is not null.
  virtual TrainFlags& flags() = 0;
  // Those of data and model, and what it takes of train_flags.h.
  virtual void add_flags(Flags& flags) = 0;
  // Once they have their values: what goes together.
  virtual void check(const Flags& flags) { resolve_optimizer(flags, this->flags().optimizer); }

  // ---- what it is, in words
  virtual std::string name() const = 0;                // begins the names of files: "mlp"
  virtual std::string describe() const = 0;            // "mlp 784-256-10 relu"
  virtual std::string dtype() const { return "f32"; }  // or tf32, bf16
  // Where the weights of make_model() are from; "": they are new.
  virtual std::string weights() const { return ""; }
  // What a reader of a comparison may try; "": nothing of its own.
  virtual std::string next() const { return ""; }

  // ---- what runs
  // The same at each call, of the weights that --seed draws, or of a file's.
  virtual std::shared_ptr<nn::Module> make_model(Device device) = 0;
  // See TrainerOptions.
  virtual std::function<Tensor(const Tensor& output, const Tensor& target)> loss() const = 0;
  // {x[B, ..], target[B, ..]} of flags().optimizer.rows_of_step() rows, or of all that there are;
  // says what it is.
  virtual Tensors batch(Device device, Output& out) = 0;
  // [C, H, W] of a row of x, where that is a picture.
  virtual Shape picture() const { return {}; }

  // What a step does: of equal text, profiles can be compared.
  std::string workload();
  // Of make_model(), by `flags` in place of its own. `steps`: of the whole run, for the schedule.
  // `choices`: of an earlier capture, see capture::StepOptions.
  std::unique_ptr<Trainer> make_trainer(const TrainFlags& flags, Device device, int64_t steps,
      std::vector<capture::Refused> choices = {});
};

std::unique_ptr<Trainer> make_trainer(const TrainFlags& flags, std::shared_ptr<nn::Module> model,
    std::function<Tensor(const Tensor& output, const Tensor& target)> loss,
    const std::string& dtype, int64_t steps, std::vector<capture::Refused> choices = {});

// choose_threads() by the eager step of a scratch trainer, for all modes alike. Draws random
// numbers, if the step does. `model` and `dtype` say what the step is.
std::string choose_threads(const TrainFlags& flags, const std::string& model,
    const std::string& dtype, const Tensors& batch,
    const std::function<std::unique_ptr<Trainer>(const TrainFlags& eager)>& make_scratch);

// The job's batch on the device of its flags; threads are chosen, random numbers begin, and it is
// said what is there.
Tensors first_batch(Job& job, Output& out);

// The same step eager and fused: are the numbers the same, what became fewer, how long does it take
// (compare.cpp).
void add_compare(App& app, Command& command, Job& job);
// One step, opened: a page for a browser, or a walk in the terminal (inspect.cpp).
void add_inspect(App& app, Command& command, Job& job);

}  // namespace sinter::cli
