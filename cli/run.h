// A training run of a job: on what it runs, where it is, and what of it is in its folder; the
// profile of its steps, its loop and its report. Nothing is written before take_folder(). One
// thread.
#pragma once

#include <thread>

#include "cli/job.h"
#include "cli/ranks.h"
#include "cli/run_folder.h"
#include "measure/fingerprint.h"
#include "measure/timer.h"
#include "nn/checkpoint.h"
#include "profiler/session.h"

namespace sinter::cli {

inline constexpr const char *kModelFile = "model.safetensors", *kBestFile = "best.safetensors",
                            *kLastFile = "last.safetensors", *kPrintsFile = "fingerprints.jsonl";

// Runs while training does: not during evaluation and saving.
class Stopwatch {
 public:
  void start() { timer_ = {}; }
  void stop() { sum_ = running_seconds(); }
  double seconds() const { return sum_; }
  double running_seconds() const { return sum_ + timer_.seconds(); }

 private:
  measure::Timer timer_;
  double sum_ = 0;
};

// `train --resume` (train.cpp): the run to go on with. Its flags stand for those that are not given
// now; some must be as they were, others may differ and it is said that the run then is not that of
// the undisturbed one to the bit.
struct Resumed {
  std::string folder, file;  // relative to here where they lie below
  nn::Checkpoint checkpoint;
  CommonFlags common{};
  std::unique_ptr<Job> then{};             // with the flags as they were
  std::vector<std::string> differences{};  // "--lr was 0.001, now 0.01"
};

struct Run {
  // Loads the data, makes model and trainer, chooses the threads. `resumed_run`: null for a new
  // one. All of them outlive the run. Of several ranks each makes a Run, and calls the same
  // functions.
  Run(Job& job_of_run, const Flags& flags_given, const Resumed* resumed_run, Ranks& ranks_of_run,
      Output& output);

  // Locks the folder and begins its log; a resumed run goes on where its checkpoint is. The folder
  // is locked before anything in it is believed.
  void take_folder();
  // In its place log.emplace("", 0): nothing is written.
  // model or best: the weights alone.
  void save_weights(const char* name);
  // last: all that --resume needs. `planned`: a flag asked for it, rather than a signal. Without a
  // folder neither is written.
  void save_all(bool planned);

  Evaluated evaluate_on(Set set, int64_t most = INT64_MAX);
  // Throws numeric if a step had a loss that is not finite.
  void check_finite(const StepState& state) const;
  void warn(const std::string& text);
  // "step 7 (epoch 1, batch 7)"
  std::string position(int64_t step) const;
  // Is the loss far above that of guessing, where that is known? Such weights are not the best of a
  // run, and a run that ends with them has failed.
  bool diverges(double loss) const { return guessing && loss > 10 * guessing->loss; }
  // "3,440 steps"; of a resumed run "860 steps, 2 epochs now; in all 3,440 steps, 8 epochs in 2.1
  // s but for what stops cut off"; "of" those planned where they are given.
  std::string steps_text(std::optional<int64_t> planned = {}) const;
  // A rate to try where the loss has run away.
  std::string smaller_lr() const;
  bool lost_patience() const {
    return flags.optimizer.patience > 0 && at().patience >= flags.optimizer.patience;
  }
  // Where the run is.
  nn::TrainingState& at() const { return trainer->at(); }

  Job& job;
  TrainFlags& flags;  // the job's
  const Flags& all_flags;
  const Resumed* resumed;
  Ranks& ranks;
  Output& out;
  Progress progress;
  Device device;
  const Metric metric;
  std::optional<Guessing> guessing;
  DataFacts data;
  int64_t batch_bytes = 0;  // of x of a step
  std::unique_ptr<Trainer> trainer;
  std::unique_ptr<RunFolder> folder;
  std::optional<RunLog> log;
  std::unique_ptr<measure::Fingerprints> prints;  // of --fingerprint, of the first rank
  std::string config;
  Stopwatch time;
  int64_t per_epoch = 0, steps = 0, epochs = 0;
  // Of `speedrun --budget`: a run ends with the first step that ends later than so many seconds of
  // training after the first began. Then there is the mean of the losses of the last 100 steps,
  // each taken before its update; for that the loss is read after each step.
  std::optional<double> budget;
  double recent_loss = 0;
  int64_t first_step = 0, first_epoch = 0;  // of this process
  int64_t saved_step = -1;                  // of the newest checkpoint

 private:
  void note_preset();
  void note_model(nn::Module& model, const Shape& inputs);
  void note_rate() const;
  void check_ranks(const std::string& build) const;
  void go_on();
  void keep_prints();
  void check_room() const;
  void link_once();
  bool linked = false;
  std::jthread opens_;
};

// --profile of a run: the window of steps that is recorded, as many clean steps behind it, the
// table and the files. Without --profile nothing happens.
class StepProfile {
 public:
  explicit StepProfile(Run& run) : run_(run) {}
  // Before the folder is touched. Throws usage if the run is too short for the window, and where
  // it would write over the profile of a run that goes on; one that nobody asks for now is then
  // left out.
  void prepare();
  // Before the first step.
  void start();
  // After each step; `timer` began with it.
  void step(const measure::Timer& timer);
  // Of what is no part of a step, see profiler::Pause.
  profiler::Session* session() const { return session_.get(); }
  // What follows is no part of a step.
  void end();
  // Files and table, of all ranks together. After the results of the run: a full disk is not to
  // cost them.
  void report();
  // Throws where --expect or --fail-on ask for it.
  void check() const;

 private:
  void report_ranks();
  // Of mode fused not: the first two steps of a shape of batch, which are recorded and captured.
  bool is_usual();
  Run& run_;
  std::unique_ptr<profiler::Session> session_;
  std::optional<profiler::Report> report_;
  std::vector<double> clean_us_;  // steps after the window, as many as it has
  int64_t after_window_ = 0;
  int64_t recorded_ = 0;  // recordings and captures so far
};

// The training loop (train.cpp): a batch, a step, now and then a look at the loss; at the end of an
// epoch an evaluation and a save. From where the run is to its end, or until a signal comes; then
// all is saved. Trainer is the same without everything around it.
void train_steps(Run& run, StepProfile& profile);

// Memory of all of them.
int64_t bytes_of(const nn::NamedTensors& tensors);

// What came of it (report.cpp): test, time, files, what the capture did; and the object of --json.
// Both return the exit status. report() evaluates on the test set; it throws check if the target
// was missed.
int report(Run& run, StepProfile& profile);
int report_interrupted(Run& run, StepProfile& profile);
// Of mode fused: what the capture did.
void report_capture(Run& run);

}  // namespace sinter::cli
