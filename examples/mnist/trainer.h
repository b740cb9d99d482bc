// Trainer: a model, its optimizer, and the training step: forward, loss, backward, clipping,
// update. Made while a Communicator is current(), it trains together with the trainers of the other
// ranks, each on its part of the batch. The step is a pure function of the batch and of state that
// stays on the device: it reads nothing on the host, so it can be captured. The learning rates of
// the steps to come are written to the device now and then.
#pragma once

#include <memory>

#include "capture/step.h"
#include "data/batches.h"
#include "distributed/data_parallel.h"
#include "examples/cli/text.h"
#include "examples/mnist/flags.h"
#include "nn/checkpoint.h"
#include "nn/module.h"
#include "nn/optim.h"

namespace sinter::mnist {

// Drawn on the CPU, so that the numbers are those of every device.
std::shared_ptr<nn::Module> make_model(const ModelFlags& flags, uint64_t seed, Device device);

class Trainer {
 public:
  // `steps`: of the whole run, for the schedule. `choices`: of an earlier capture, see
  // capture::StepOptions.
  Trainer(const TrainFlags& flags, std::shared_ptr<nn::Module> model, int64_t steps,
      std::vector<capture::Refused> choices = {});

  // The next batch of `batches`, always the same ones, for step(): one of a resident set the step
  // draws itself.
  void fetch(Batches& batches);
  // The losses of the rows; in mode fused the next step overwrites them. Of the batch fetched last,
  // or of this one.
  Tensor step();
  Tensor step(const Batch& batch);
  // Loss sums, first bad step: reading them waits for the device. Of this rank, since
  // collect_state().
  StepState state() const { return read_step_state(optimizer_->state()); }
  // All ranks together: rank 0's loss sums become those of all, the others' begin anew, the first
  // bad step is that of all. Throws state if their weights differ.
  void collect_state();
  // The sums of loss begin anew.
  void reset_loss();
  // Before restore(): the undisturbed run had done `calls` steps with batches of the shape of that
  // one. In mode fused the first two of a shape run as they are recorded, so as many are spent
  // here, that none runs eagerly which was a replay there.
  void rehearse(Batches& batches, BatchPosition position, int64_t calls);
  void restore(const nn::Checkpoint& checkpoint);
  nn::Module& model() { return *model_; }
  nn::Optimizer& optimizer() { return *optimizer_; }
  // Mode fused only, else nullptr.
  const capture::Step* captured_step() const { return step_.get(); }
  // Tensor memory asked of the allocator by the replay that asked most.
  int64_t allocations_per_replay() const { return allocations_; }
  // Where the run is, for the schedule.
  int64_t step_number() const { return steps_; }
  void set_step(int64_t number);
  double lr_of(int64_t step) const { return nn::learning_rate(schedule_, step); }

 private:
  void tell_rates();
  Tensor eager_step();
  Tensor eager_step(const Tensor& images, const Tensor& labels);
  Tensor shared_step(const Tensor& images, const Tensor& labels);
  Tensor loss_of(const Tensor& images, const Tensor& labels);

  OptimizerFlags flags_;
  std::shared_ptr<nn::Module> model_;
  std::vector<Tensor> parameters_;
  nn::Schedule schedule_;
  std::unique_ptr<nn::Optimizer> optimizer_;
  std::unique_ptr<distributed::DataParallel> parallel_;  // null: alone
  std::unique_ptr<capture::Step> step_;
  Device device_;
  Tensors inputs_;              // the batch; empty if the step draws it:
  Batches* batches_ = nullptr;  // from these,
  int64_t rows_ = 0;            // so many rows, else 0
  int64_t of_ = 0;              // rows of the step on all ranks
  int64_t steps_ = 0, allocations_ = 0;
  int64_t rates_until_ = 0;  // the step behind the last one whose rate is on the device
};

// cli::choose_threads() by the step of a scratch model. Draws random numbers, if the step does.
std::string choose_threads(const TrainFlags& flags, const Batch& batch);

}  // namespace sinter::mnist
