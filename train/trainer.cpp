#include "train/trainer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/allocator.h"
#include "core/numbers.h"
#include "core/parallel.h"
#include "nn/clip.h"
#include "profiler/phase.h"

namespace sinter {
namespace {

// A shared_ptr that owns nothing.
template <class T> std::shared_ptr<T> borrowed(T& object) {
  return {std::shared_ptr<void>(), &object};
}

}  // namespace

Trainer::Trainer(nn::Module& model, nn::Optimizer& optimizer, TrainerOptions options)
    : Trainer(borrowed(model), borrowed(optimizer), std::move(options)) {}

Trainer::Trainer(std::shared_ptr<nn::Module> model, std::shared_ptr<nn::Optimizer> optimizer,
    TrainerOptions options)
    : options_(std::move(options)),
      model_(std::move(model)),
      optimizer_(std::move(optimizer)),
      parameters_(model_->parameters()),
      device_(parameters_.empty() ? kCpu : parameters_[0].device()) {
  SINTER_CHECK(optimizer_ || options_.step, usage,
      "trainer: no optimizer: only a step of your own (TrainerOptions::step) goes without");
  SINTER_CHECK(options_.clip >= 0 && options_.part >= 0, usage,
      cat("trainer: clip is ", options_.clip, ", part is ", options_.part,
          "; both are at least 0"));
  if (Communicator* ranks = Communicator::current())
    parallel_ = std::make_unique<distributed::DataParallel>(*model_, ranks, options_.parallel);
  make_step(options_.capture.choices);
  at_.device = device_.str();
  at_.mode = options_.fused ? "fused" : "eager";
  at_.threads = num_threads();
}

// Of mode fused, with no capture yet.
void Trainer::make_step(std::vector<capture::Refused> choices) {
  if (!options_.fused) return;
  capture::StepOptions options = options_.capture;
  options.parameters = nn::parameter_visitor(*model_);
  options.mode = [this] { return parallel_ ? of_ : rows_; };
  options.choices = std::move(choices);
  // What one rank measures the others do not, and all are to run the same plan.
  if (parallel_) options.measure = false;
  step_ = std::make_unique<capture::Step>(function(), std::move(options));
}

capture::Step::Function Trainer::function() {
  return [this](const Tensors& given) {
    Tensors out;
    run_step(given, out);
    return out;
  };
}

const Tensors& Trainer::give(const Tensors& batch) {
  for (const Tensor& t : batch) check_defined("trainer", "a tensor of the batch", t);
  SINTER_CHECK(options_.step || batch.size() == 2, usage,
      cat("trainer: a batch has inputs and targets: 2 tensors are wanted, ", batch.size(),
          " are given"),
      "a step of other tensors is TrainerOptions::step");
  SINTER_CHECK(options_.step || batch[0].size(0) == batch[1].size(0), shape,
      cat("trainer: rows differ: inputs are ", batch[0].describe(), ", targets are ",
          batch[1].describe()));
  inputs_ = batch;
  rows_ = 0;
  of_ = batch.empty() || batch[0].rank() == 0 ? 0 : batch[0].size(0);
  return inputs_;
}

const Tensors& Trainer::give(const Batch& batch) {
  inputs_.clear();
  if (batch.labels.numel() > 0) inputs_ = {batch.images, batch.labels};
  rows_ = 0;
  of_ = batch.of;
  return inputs_;
}

void Trainer::fetch(Batches& batches) {
  if (!batches.resident() || !optimizer_) {
    give(batches.next());
    return;
  }
  inputs_.clear();
  batches_ = &batches;
  rows_ = of_ = batches.begin_step(optimizer_->state());
}

double Trainer::fit(Batches& batches, const Callback& after) {
  const int64_t n = batches.per_epoch();
  const auto next = [&] {
    if (at_.batch >= n) return false;
    const BatchPosition here{at_.epoch, at_.batch};  // `after` may have read some of them
    if (batches.position() != here) batches.seek(here);
    fetch(batches);
    return true;
  };
  return run(next, after);
}

double Trainer::run(const std::function<bool()>& next, const Callback& after) {
  const auto next_batch = [&] {
    timer_ = {};
    const profiler::Scope scope("next_batch", profiler::ScopeKind::data);
    const bool found = next();
    wait_seconds_ += timer_.seconds();
    return found;
  };
  stopped_ = false;
  while (next_batch()) {
    {
      const profiler::Scope scope("train_step");
      step_given();
    }
    ++at_.batch;
    if (after) after();
    if (stopped_) break;
  }
  SINTER_CHECK(at_.batch > 0, usage, "trainer: no batch: the range is empty; at least 1");
  StepState state;
  if (optimizer_) {
    collect_state();
    state = this->state();
  }
  const int64_t bad = state.first_bad_step;
  SINTER_CHECK(stopped_ || bad < 0, numeric,
      cat("trainer: the loss of step ", bad + 1, " is not finite; last good ", state.last_good_loss,
          ", lr ", lr_of(bad)),
      "a smaller learning rate, or TrainerOptions::clip; AnomalyMode names the op");
  if (!stopped_) end_epoch();
  return state.loss_sum / double(state.loss_rows);
}

nn::Optimizer& Trainer::optimizer() const {
  SINTER_CHECK(optimizer_, usage, "trainer: it was made without an optimizer, and this needs one");
  return *optimizer_;
}

void Trainer::end_epoch() {
  ++at_.epoch;
  at_.batch = 0;
  reset_loss();
}

// Rates are told for some thousand steps at once: a run may be of any length.
void Trainer::tell_rates() {
  constexpr int64_t kAhead = 4096;
  if (!options_.schedule || at_.step != rates_until_) return;
  std::vector<double> rates;
  for (; rates_until_ < at_.step + kAhead; ++rates_until_) rates.push_back(lr_of(rates_until_));
  optimizer().set_rates(rates);
}

const Tensors& Trainer::step_given() {
  tell_rates();
  const Tensors* results = &results_;
  if (step_) {
    const auto requests = [this] { return allocator(device_).stats().requests; };
    const int64_t replays = step_->stats().replays, before = requests();
    results = &(*step_)(inputs_);
    if (step_->stats().replays > replays)
      allocations_ = std::max(allocations_, requests() - before);
  } else {
    run_step(inputs_, results_);
  }
  ++at_.step;
  return *results;
}

void Trainer::run_step(const Tensors& given, Tensors& out) {
  Batch batch;
  if (rows_ > 0) {
    if (batches_->own_rows(rows_) > 0) batch = batches_->draw(optimizer_->state(), rows_);
  } else if (!given.empty() && !options_.step) {
    batch = {given[0], given[1]};
  }
  if (options_.step) {
    out = options_.step(rows_ > 0 ? Tensors{batch.images, batch.labels} : given);
    return;
  }
  optimizer_->zero_grad();
  const Tensor losses = parallel_ ? shared_backward_of(batch) : backward_of(batch);
  if (options_.clip > 0) nn::clip_grad_norm(parameters_, options_.clip);
  optimizer_->step(losses);
  out.clear();
  if (losses.defined()) out.push_back(losses);
}

// Of some rows of the batch.
Tensor Trainer::losses_of(const Batch& batch, int64_t begin, int64_t end) {
  const profiler::PhaseScope forward(Phase::forward);
  const auto part = [&](const Tensor& t) {
    return begin == 0 && end == t.size(0) ? t : slice(t, 0, begin, end);
  };
  return options_.loss((*model_)(part(batch.images)), part(batch.labels));
}

Tensor Trainer::backward_of(const Batch& batch) {
  const int64_t rows = batch.images.size(0);
  if (options_.part == 0) {
    const Tensor losses = losses_of(batch, 0, rows);
    backward(losses);
    return losses;
  }
  // In parts that add up their gradients; the loss is then one number, the mean.
  Tensor mean;
  for (int64_t at = 0; at < rows; at += options_.part) {
    const int64_t end = std::min(rows, at + options_.part);
    const Tensor part = losses_of(batch, at, end);
    SINTER_CHECK(part.numel() == end - at, shape,
        cat("trainer: a loss for each row is wanted of ", end - at, " rows: it is ",
            part.describe(), "; by parts a mean would count as one row"));
    const Tensor share = scale(sum(part), 1.0 / double(rows));
    backward(share);
    mean = mean.defined() ? detach(mean) + detach(share) : share;
  }
  return mean;
}

// This rank's rows of the step, part by part; the batch is undefined if it has none.
Tensor Trainer::shared_backward_of(const Batch& batch) {
  const int64_t part = options_.part > 0 ? options_.part : of_;
  const bool all_rows = batch.images.defined() && batch.images.size(0) == of_;  // of all ranks
  Tensor losses;
  for (int64_t row = 0, own = 0; row < of_; row += part) {
    const int64_t rows = std::min(part, of_ - row);
    const RowRange mine = parallel_->begin_batch(rows, {.of = of_, .last = row + rows == of_});
    const int64_t begin = all_rows ? row + mine.begin : own;
    own += mine.size();
    Tensor some;
    if (mine.size() > 0) some = losses_of(batch, begin, begin + mine.size());
    parallel_->backward(some);
    if (some.defined()) losses = losses.defined() ? cat({detach(losses), detach(some)}) : some;
  }
  return losses;
}

void Trainer::reset_loss() {
  if (!optimizer_) return;
  StepState state = this->state();
  state.loss_sum = 0;
  state.loss_rows = 0;
  write_step_state(optimizer_->state(), state);
}

void Trainer::collect_state() {
  if (!parallel_) return;
  parallel_->check_equal();
  Communicator& ranks = *Communicator::current();
  StepState state = this->state();
  state.loss_sum = ranks.sum(state.loss_sum);
  state.loss_rows = std::llround(ranks.sum(double(state.loss_rows)));
  if (ranks.sum(state.first_bad_step >= 0) > 0) {
    for (const std::string& text : ranks.gather(std::to_string(state.first_bad_step))) {
      const int64_t step = std::stoll(text);
      if (step >= 0 && (state.first_bad_step < 0 || step < state.first_bad_step))
        state.first_bad_step = step;
    }
  }
  if (ranks.rank() > 0) {
    state.loss_sum = 0;
    state.loss_rows = 0;
  }
  write_step_state(optimizer_->state(), state);
}

void Trainer::add(Score& score, const Tensors& batch) {
  if (batch.empty()) return;
  const Tensor output = (*model_)(batch[0]);
  for (const double loss : options_.loss(output, batch[1]).to_vector<double>()) {
    ++score.rows;
    score.loss_sum += loss;
  }
  if (is_float(batch[1].dtype())) return;
  const auto read = argmax(output).to_vector<int64_t>(), labels = batch[1].to_vector<int64_t>();
  if (read.size() != labels.size()) return;
  for (size_t i = 0; i < labels.size(); ++i) score.correct += read[i] == labels[i];
  score.labels += int64_t(labels.size());
}

void Trainer::save(const std::string& file, const std::string& config) {
  collect_state();
  if (step_) at_.unfused = step_->choices();
  if (parallel_ && Communicator::current()->rank() > 0) return;
  nn::save_checkpoint(file, *model_, optimizer(), config, at_);
}

void Trainer::resume(const nn::Checkpoint& saved, Batches& batches) {
  const nn::TrainingState& at = saved.state;
  const int64_t n = batches.per_epoch();
  SINTER_CHECK(at.batch <= n && at.epoch <= at.step && at.epoch * n + at.batch == at.step,
      checkpoint,
      cat("checkpoint: of other batches: ", saved.path, "; ", n,
          " batches make an epoch here: step ", at.step, " is not batch ", at.batch, " after ",
          count_of(at.epoch, "epoch")),
      "the data and the size of a batch are to be those of the save");
  make_step(at.unfused);
  const bool ragged = batches.rows_of({0, n - 1}) != batches.rows_of({0, 0});
  const int64_t last_batches = ragged ? at.epoch + (at.batch == n) : 0;
  for (const auto& [batch, calls] :
      {std::pair{int64_t{0}, at.step - last_batches}, std::pair{n - 1, last_batches}}) {
    for (int64_t i = 0; step_ && i < std::min<int64_t>(calls, 2); ++i) {
      batches.seek({0, batch});
      fetch(batches);
      step_given();
    }
  }
  restore(saved);
  batches.seek(at.batch == n ? BatchPosition{at.epoch + 1, 0} : BatchPosition{at.epoch, at.batch});
}

// `done`: steps rehearsed, by the shapes of the batch.
void Trainer::rehearse(int64_t calls, std::map<std::string, int64_t>& done) {
  std::string shapes;
  for (const Tensor& t : inputs_) shapes += t.describe() + " ";
  for (int64_t& n = done[shapes]; step_ && calls > 0 && n < 2; --calls, ++n) step_given();
}

void Trainer::restore(const nn::Checkpoint& checkpoint) {
  nn::restore(checkpoint, *model_, optimizer());
  if (parallel_ && Communicator::current()->rank() > 0) reset_loss();  // rank 0 has the sums of all
  const nn::TrainingState here = std::exchange(at_, checkpoint.state);
  at_.device = here.device;
  at_.mode = here.mode;
  at_.threads = here.threads;
  at_.build = here.build;
  rates_until_ = at_.step;
}

void Trainer::copy_from(const Trainer& other) {
  const auto copy_all = [](const nn::NamedTensors& to, const nn::NamedTensors& from) {
    for (size_t i = 0; i < to.size(); ++i) nn::copy_values(to[i].tensor, from[i].tensor, "trainer");
  };
  copy_all(model_->state_dict(), other.model_->state_dict());
  copy_all(optimizer().state_tensors(), other.optimizer().state_tensors());
  optimizer().set_steps(other.optimizer().steps());
  at_.step = rates_until_ = other.at_.step;
}

}  // namespace sinter
