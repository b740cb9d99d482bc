// A training run: what it trains, on what, where it is, and what of it is in its folder.
//
// Made by `mnist train` (train.cpp); the loop (loop.cpp) moves it on, the report (report.cpp) tells
// what came of it. Nothing is written before take_folder(). One thread.
#pragma once

#include <chrono>

#include "examples/cli/progress.h"
#include "examples/mnist/evaluate.h"
#include "examples/mnist/resume.h"
#include "examples/mnist/run_folder.h"
#include "examples/mnist/run_log.h"
#include "examples/mnist/trainer.h"

namespace sinter::mnist {

inline constexpr const char *kModelFile = "model.safetensors", *kBestFile = "best.safetensors",
                            *kLastFile = "last.safetensors";

// Runs while training does: not during evaluation and saving.
class Stopwatch {
 public:
  void start() { begin_ = Clock::now(); }
  void stop() { sum_ += Clock::now() - begin_; }
  double seconds() const { return std::chrono::duration<double>(sum_).count(); }
  double running_seconds() const {
    return std::chrono::duration<double>(sum_ + (Clock::now() - begin_)).count();
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point begin_;
  Clock::duration sum_{};
};

struct Run {
  // Loads the data, makes model and trainer, chooses the threads. `resumed_run`: null for a new
  // one. All of them outlive the run.
  Run(TrainFlags& train_flags, const cli::Flags& flags_given, const Resumed* resumed_run,
      cli::Output& output);

  // Locks the folder and begins its log; a resumed run goes on where its checkpoint is. The folder
  // is locked before anything in it is believed.
  void take_folder();
  // model or best: the weights alone.
  void save_weights(const char* name);
  // last: all that --resume needs. `planned`: a flag asked for it, rather than a signal.
  void save_all(bool planned);

  Evaluation evaluate_on(const Split& split);
  // Throws numeric if a step had a loss that is not finite.
  void check_finite(const StepState& state) const;
  void warn(const std::string& text);
  // "step 7 (epoch 1, batch 7)"
  std::string position(int64_t step) const;
  // A rate to try where the loss has run away.
  std::string smaller_lr() const;
  bool lost_patience() const {
    return flags.optimizer.patience > 0 && at.patience >= flags.optimizer.patience;
  }

  TrainFlags& flags;
  const cli::Flags& all_flags;
  const Resumed* resumed;
  cli::Output& out;
  cli::Progress progress;
  Device device;
  Dataset data;
  std::optional<Batches> batches;
  std::unique_ptr<Trainer> trainer;
  std::unique_ptr<RunFolder> folder;
  std::optional<RunLog> log;
  std::string config;
  Stopwatch time, data_wait;
  int64_t per_epoch = 0, steps = 0, epochs = 0;
  nn::TrainingState at;     // where the run is
  int64_t first_step = 0;   // of this process
  int64_t saved_step = -1;  // of the newest checkpoint

 private:
  void set_up();
  void note_preset();
  void note_model(nn::Module& model);
  void note_sizes();
  void go_on();
  void note_differences(const nn::TrainingState& now);
  void link_once();
  bool linked = false;
};

}  // namespace sinter::mnist
