// Trainer: a model, a loss and an optimizer as one training step, eager or fused; the loop over
// batches; evaluation; and checkpoints from which training goes on to the bit.
//
//   nn::Mlp model({784, 256, 128, 10});
//   nn::Adam optimizer(model.named_parameters(), {.lr = 0.001});
//   Trainer trainer(model, optimizer);
//   Batches batches(load_dataset().train, {.size = 128});
//   trainer.resume("digits.safetensors", batches);  // if it is there
//   while (trainer.epoch() < 5) {
//     const double loss = trainer.fit(batches);
//     trainer.save("digits.safetensors");
//   }
//
// A batch is Tensors {x[B, ..], target[B, ..]} or a Batch. Batches come from a BatchSource
// (data/batch_source.h), which goes to any place of an epoch: TensorBatches of tensors of yours, or
// Batches of images, of which, where they lie on the device, the step draws its rows itself. Or
// they are any range, such as a vector, or a view that makes each as it is asked for; an epoch is a
// pass over the range.
//
// The step is a pure function of the batch and of state that stays on the device: it reads nothing
// on the host, so it can be captured, and the learning rates of the steps to come are written to
// the device now and then.
//
// A trainer that is made while a Communicator is current() trains together with the trainers of the
// other ranks. All of them call the same functions. Each gets the whole batch and takes its rows of
// it, or gets only its rows, from Batches that know of the ranks.
//
// Note [Resumed to the bit]
//   A fused step rounds otherwise than an eager one, and the first of a shape runs eagerly, as it
//   is recorded. So resume() has a step run for each shape of which the run had done one, before it
//   puts everything where the checkpoint has it: then no step runs eagerly which was a replay in
//   the run that went on. A range is walked once for that, to see its shapes; steps of other
//   batches in between are not rehearsed.
//   A source must be that of the save: its data, size and order are in the checkpoint, and others
//   are refused by name. A range of yours is taken as it is: that it holds what it held is yours to
//   see to.
//
// Not thread-safe. It cannot be moved, because the captured step knows its address.
#pragma once

#include <concepts>
#include <filesystem>
#include <functional>
#include <iterator>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "autograd/autograd.h"
#include "capture/step.h"
#include "data/batches.h"
#include "data/tensor_batches.h"
#include "distributed/data_parallel.h"
#include "measure/timer.h"
#include "nn/checkpoint.h"
#include "nn/loss.h"
#include "nn/optim.h"
#include "nn/schedule.h"

namespace sinter {

struct TrainerOptions {
  // Of what the model gives for x: a loss for each row [B], or as many for each, a place of a
  // sequence one [B S]; one mean of all is refused. The loss of an epoch is the mean over all of
  // them, however its rows are cut into batches and parts.
  std::function<Tensor(const Tensor& output, const Tensor& target)> loss = nn::CrossEntropyLoss{};
  // In place of forward, loss, backward, clipping and update: a step of your own, of any tensors.
  // It may update as often as it likes, or not in every call. fit() gives the mean of what it hands
  // to Optimizer::step().
  capture::Step::Function step = {};
  bool fused = true;                  // else op by op
  capture::StepOptions capture = {};  // of mode fused, but for `parameters` and `mode`
  // Of the learning rate, which it gives each update its own of; unset: the optimizer's stays.
  std::optional<nn::Schedule> schedule = {};
  double clip = 0;   // of the norm of all gradients together; 0: none
  int64_t part = 0;  // so many rows at a time, whose gradients are added up; 0: all rows at once
  distributed::DataParallelOptions parallel = {};
};

// Of a pass without gradients and dropout.
struct Score {
  int64_t rows = 0, labels = 0, correct = 0;
  double loss_sum = 0;
  double loss() const { return share(loss_sum, rows); }
  // The share of labels that are the largest of their row; NaN where the targets are no integers.
  double accuracy() const { return share(double(correct), labels); }
  static double share(double sum, int64_t n) {
    return n > 0 ? sum / double(n) : std::numeric_limits<double>::quiet_NaN();
  }
};

// Throws shape unless there is a number for each row, or as many for each: "a loss", and no mean of
// them.
void check_each_row(const char* what, const Tensor& numbers, int64_t rows);

// Of batches, and no source of them.
template <class Range>
concept BatchRange = !std::derived_from<std::remove_cvref_t<Range>, BatchSource>;

class Trainer {
 public:
  using Callback = std::function<void()>;
  // REQUIRES: both outlive it.
  Trainer(nn::Module& model, nn::Optimizer& optimizer, TrainerOptions options = {});
  // Without an optimizer (null): a step of your own. fit() then gives NaN, and what needs one, such
  // as save(), throws usage.
  Trainer(std::shared_ptr<nn::Module> model, std::shared_ptr<nn::Optimizer> optimizer,
      TrainerOptions options = {});

  // One step. Returns {losses [B]}, or what a step of your own returns; the next step overwrites
  // it. Throws usage for another number of tensors than two, shape for rows that differ, and what
  // the model and the loss throw.
  const Tensors& step(const Tensors& batch) {
    give(batch);
    return step_given();
  }
  template <std::same_as<Batch> B> const Tensors& step(const B& batch) {
    give(batch);
    return step_given();
  }
  // The step op by op, of any batch, for a capture::Step of your own. REQUIRES: the trainer
  // outlives it.
  capture::Step::Function function();

  // Trains on the batches of an epoch, or on what is left of it; `after` follows each step. Returns
  // the mean loss of the rows since the epoch began, on each rank that of all. Throws usage for an
  // empty range, numeric at the end of the epoch if a step had a loss that is not finite.
  template <BatchRange Range> double fit(Range&& batches, const Callback& after = {}) {
    auto at = std::begin(batches);
    const auto end = std::end(batches);
    for (int64_t i = 0; i < at_.batch && at != end; ++i) ++at;
    const auto next = [&] {
      if (at == end) return false;
      give(*at);
      ++at;
      return true;
    };
    return run(next, after);
  }
  double fit(BatchSource& batches, const Callback& after = {});
  // Before the first step: throws shape where the last batch of an epoch has one row, and the model
  // a batch normalization that cannot take it. fit() asks it, too, even if you mean to stop it.
  void check(const BatchSource& batches);
  // Call it in `after`: then fit() returns within the epoch, and the next fit() goes on from there.
  void stop() { stopped_ = true; }

  // Loss and accuracy over a range, or what is left of a source's epoch. Nothing of the training
  // changes.
  template <class Range> Score evaluate(Range&& batches) {
    const NoGrad no_grad;
    const nn::EvalMode evaluation(*model_);
    Score score;
    if constexpr (BatchRange<Range>) {
      for (const auto& batch : batches) add(score, give(batch));
    } else {
      for (int64_t i = batches.position().batch; i < batches.per_epoch(); ++i)
        add(score, give(batches.take()));
    }
    return score;
  }

  // Weights, optimizer, random numbers and position; of several ranks the first one writes.
  // `config`: text of yours. Throws checkpoint where the file cannot be written.
  void save(const std::string& file, const std::string& config = "");
  // Goes on where save() was called; false, and nothing is done, if there is no such file.
  // `batches`: those of fit(). Throws checkpoint for a file that is none, or of another model,
  // optimizer, data set or batches. Note [Resumed to the bit].
  template <class Range> bool resume(const std::string& file, Range&& batches) {
    if (!std::filesystem::exists(file)) return false;
    resume(nn::read_checkpoint(file), batches);
    return true;
  }
  template <BatchRange Range> void resume(const nn::Checkpoint& saved, Range&& batches) {
    make_step(saved.state.unfused);
    std::set<std::string> done;
    int64_t i = 0;
    for (const auto& batch : batches) {
      give(batch);
      if (saved.state.epoch > 0 || i < saved.state.batch) rehearse(done);
      ++i;
    }
    SINTER_CHECK(i >= saved.state.batch, checkpoint,
        str("checkpoint: of other batches: ", saved.path, "; it is behind batch ",
            saved.state.batch, " of an epoch, and the range has ", i));
    restore(saved);
  }
  void resume(const nn::Checkpoint& saved, BatchSource& batches);
  // Weights, optimizer and step become those of another trainer of the same model.
  void copy_from(const Trainer& other);

  int64_t epoch() const { return at_.epoch; }  // passes that are over
  // Steps, epochs and batches done. What no field of the trainer's is, such as `best`, is yours.
  nn::TrainingState& at() { return at_; }
  // The epoch is over; fit() says so itself unless it was stopped.
  void end_epoch();
  // Loss sums, first bad step: reading them waits for the device. Of this rank alone.
  StepState state() const { return read_step_state(optimizer().state()); }
  // All ranks together: the state with the loss sums and the first bad step of all. On the devices
  // rank 0's loss sums become those, and the others' begin anew. Throws state if weights differ.
  StepState collect_state();
  // The rate of an update, from 0: of a step unless that is your own, whose updates are counted by
  // state().step.
  double lr_of(int64_t update) const {
    return options_.schedule ? nn::learning_rate(*options_.schedule, update) : optimizer().lr();
  }

  nn::Module& model() { return *model_; }
  nn::Optimizer& optimizer() const;
  distributed::DataParallel* parallel() { return parallel_.get(); }  // null: no other ranks
  // Mode fused only, else nullptr.
  const capture::Step* captured_step() const { return step_.get(); }
  // Tensor memory asked of the allocator by the replay that asked most.
  int64_t allocations_per_replay() const { return allocations_; }
  // Since this step of fit() began to fetch its batch, and of all such waits together.
  const measure::Timer& timer() const { return timer_; }
  double wait_seconds() const { return wait_seconds_; }

 private:
  // The batch of the next step.
  const Tensors& give(const Tensors& batch);
  const Tensors& give(const Batch& batch) { return give(batch.fed()); }
  const Tensors& give(Fed batch);
  void check_pair(const Tensors& batch) const;
  const Tensors& step_given();
  double run(const std::function<bool()>& next, const Callback& after);
  void make_step(std::vector<capture::Refused> choices);
  void run_step(const Tensors& given, Tensors& out);
  Tensor losses_of(const Tensors& batch, int64_t begin, int64_t end);
  Tensor backward_of(const Tensors& batch);
  void tell_rates();
  void reset_loss();
  void add(Score& score, const Tensors& batch);
  void rehearse(std::set<std::string>& done);
  void restore(const nn::Checkpoint& checkpoint);

  const TrainerOptions options_;
  const std::shared_ptr<nn::Module> model_;
  const std::shared_ptr<nn::Optimizer> optimizer_;
  const std::vector<Tensor> parameters_;
  const Device device_;
  std::unique_ptr<distributed::DataParallel> parallel_;  // null: alone
  std::unique_ptr<capture::Step> step_;
  Fed given_;        // the batch of the next step
  Tensors results_;  // of the last step in mode eager
  nn::TrainingState at_;
  int64_t rates_until_ = 0;  // the step at which the device has to be told more rates
  int64_t allocations_ = 0;
  bool stopped_ = false;
  measure::Timer timer_;
  double wait_seconds_ = 0;
};

}  // namespace sinter
