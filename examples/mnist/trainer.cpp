#include "examples/mnist/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "autograd/autograd.h"
#include "core/allocator.h"
#include "examples/cli/text.h"
#include "nn/clip.h"
#include "nn/glu.h"
#include "nn/mlp.h"
#include "nn/net.h"
#include "ops/product/gemm_library.h"
#include "profiler/phase.h"

namespace sinter::mnist {
namespace {

std::unique_ptr<nn::Optimizer> make_optimizer(
    const OptimizerFlags& flags, const nn::Module& model) {
  const nn::OptimizerChoice& choice = nn::optimizer_named(flags.optimizer);
  return choice.make(model.named_parameters(), flags.lr.value(),
      flags.weight_decay.value_or(choice.weight_decay), flags.momentum);
}

std::shared_ptr<nn::Net> make_net(const ModelFlags& flags) {
  const ImageShape image = flags.image();
  auto net =
      std::make_shared<nn::Net>(flags.net(), Shape{image.channels, image.height, image.width});
  SINTER_CHECK(net->output() == Shape{flags.classes}, usage,
      cat("usage: --model gives ", net->output().str(), " for an image, wanted ",
          Shape{flags.classes}.str(), ": a number for each of --classes"),
      net->output().rank() == 1 ? cat("--classes ", net->output()[0], ", or linear ", flags.classes,
                                      " at the end of --model")
                                : cat("flatten; linear ", flags.classes, " at the end of --model"));
  return net;
}

}  // namespace

std::shared_ptr<nn::Module> make_model(const ModelFlags& flags, uint64_t seed, Device device) {
  std::shared_ptr<nn::Module> model;
  const std::vector<int64_t> sizes = flags.sizes();
  if (!flags.net().empty()) {
    model = make_net(flags);
    model->init_parameters(seed);
  } else if (flags.model == "geglu") {
    model = std::make_shared<nn::Glu>(sizes[0], sizes[1], sizes[2]);
    model->init_parameters(seed);
  } else {
    model = std::make_shared<nn::Mlp>(
        sizes, nn::MlpOptions{
                   .activation = flags.act, .dropout = flags.dropout.value_or(0), .seed = seed});
  }
  if (flags.dtype == "bf16") model->enable_bf16();
  model->to(device);
  return model;
}

Trainer::Trainer(const TrainFlags& flags, std::shared_ptr<nn::Module> model, int64_t steps,
    std::vector<capture::Refused> choices)
    : flags_(flags.optimizer),
      model_(std::move(model)),
      parameters_(model_->parameters()),
      schedule_(flags_.schedule_of(steps)),
      optimizer_(make_optimizer(flags_, *model_)),
      device_(parameters_[0].device()) {
  set_allow_tf32(flags.model.dtype == "tf32");
  if (Communicator* ranks = Communicator::current())
    parallel_ = std::make_unique<distributed::DataParallel>(*model_, ranks);
  if (flags.mode.mode == "eager") return;
  const auto function = [this](const Tensors&) {
    const Tensor losses = eager_step();
    return losses.defined() ? Tensors{losses} : Tensors{};
  };
  // What one rank measures the others do not, and all are to run the same plan.
  const std::optional<bool> measures = parallel_ ? std::optional(false) : flags.mode.measures();
  step_ = std::make_unique<capture::Step>(
      function, capture::StepOptions{.rules = capture::RuleSet(flags.mode.rules),
                    .parameters = nn::parameter_visitor(*model_),
                    .mode = [this] { return parallel_ ? of_ : rows_; },
                    .measure = measures,
                    .choices = std::move(choices),
                    .cuda_graph = flags.mode.cuda_graph});
}

// Rates are told for some thousand steps at once: a run may be of any length.
void Trainer::tell_rates() {
  constexpr int64_t kAhead = 4096;
  if (steps_ == rates_until_) {
    std::vector<double> rates;
    for (; rates_until_ < steps_ + kAhead; ++rates_until_) rates.push_back(lr_of(rates_until_));
    optimizer_->set_rates(rates);
  }
  ++steps_;
}

void Trainer::set_step(int64_t number) { steps_ = rates_until_ = number; }

void Trainer::fetch(Batches& batches) {
  inputs_.clear();
  batches_ = &batches;
  rows_ = batches.resident() ? batches.begin_step(optimizer_->state()) : 0;
  of_ = rows_;
  if (rows_ > 0) return;
  const Batch batch = batches.next();
  if (batch.labels.numel() > 0) inputs_ = {batch.images, batch.labels};
  of_ = batch.of;
}

Tensor Trainer::step(const Batch& batch) {
  inputs_ = {batch.images, batch.labels};
  rows_ = 0;
  of_ = batch.of;
  return step();
}

Tensor Trainer::step() {
  tell_rates();
  if (!step_) return eager_step();
  const auto requests = [this] { return allocator(device_).stats().requests; };
  const int64_t replays = step_->stats().replays, before = requests();
  const Tensors& losses = (*step_)(inputs_);
  if (step_->stats().replays > replays) allocations_ = std::max(allocations_, requests() - before);
  return losses.empty() ? Tensor() : losses[0];
}

void Trainer::reset_loss() {
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

void Trainer::rehearse(Batches& batches, BatchPosition position, int64_t calls) {
  for (int64_t i = 0; step_ && i < std::min<int64_t>(calls, 2); ++i) {
    batches.seek(position);
    fetch(batches);
    step();
  }
}

void Trainer::restore(const nn::Checkpoint& checkpoint) {
  nn::restore(checkpoint, *model_, *optimizer_);
  if (parallel_ && Communicator::current()->rank() > 0) reset_loss();  // rank 0 has the sums of all
  set_step(checkpoint.state.step);
}

Tensor Trainer::eager_step() {
  Batch batch;
  if (!inputs_.empty()) {
    batch = {inputs_[0], inputs_[1]};
  } else if (rows_ > 0 && batches_->own_rows(rows_) > 0) {
    batch = batches_->draw(optimizer_->state(), rows_);
  }
  return parallel_ ? shared_step(batch.images, batch.labels)
                   : eager_step(batch.images, batch.labels);
}

// This rank's rows of the step, part by part; both are undefined or empty if it has none.
Tensor Trainer::shared_step(const Tensor& images, const Tensor& labels) {
  optimizer_->zero_grad();
  Tensor losses;
  for (int64_t row = 0, own = 0; row < of_; row += flags_.batch) {
    const int64_t rows = std::min(flags_.batch, of_ - row);
    const int64_t begin = own;
    own += parallel_->begin_batch(rows, {.of = of_, .last = row + rows == of_}).size();
    const bool all = flags_.accum == 1;
    Tensor part;
    if (own > begin) {
      part = loss_of(
          all ? images : slice(images, 0, begin, own), all ? labels : slice(labels, 0, begin, own));
    }
    parallel_->backward(part);
    if (part.defined()) losses = losses.defined() ? cat({detach(losses), detach(part)}) : part;
  }
  if (flags_.clip > 0) nn::clip_grad_norm(parameters_, flags_.clip);
  optimizer_->step(losses);
  return losses;
}

Tensor Trainer::loss_of(const Tensor& images, const Tensor& labels) {
  const profiler::PhaseScope forward(Phase::forward);
  return cross_entropy((*model_)(images), labels, flags_.label_smoothing);
}

Tensor Trainer::eager_step(const Tensor& images, const Tensor& labels) {
  optimizer_->zero_grad();
  Tensor losses;
  if (flags_.accum == 1) {
    losses = loss_of(images, labels);
    backward(losses);
  }
  // In parts that add up their gradients; the loss is then one number, the mean.
  for (int64_t rows = labels.numel(), at = 0; flags_.accum > 1 && at < rows; at += flags_.batch) {
    const int64_t end = std::min(rows, at + flags_.batch);
    const Tensor part = loss_of(slice(images, 0, at, end), slice(labels, 0, at, end));
    const Tensor share = scale(sum(part), 1.0 / double(rows));
    backward(share);
    losses = losses.defined() ? detach(losses) + detach(share) : share;
  }
  if (flags_.clip > 0) nn::clip_grad_norm(parameters_, flags_.clip);
  optimizer_->step(losses);
  return losses;
}

std::string choose_threads(const TrainFlags& flags, const Batch& batch) {
  const Device device = batch.images.device();
  return cli::choose_threads(flags.common->threads, device, [&] {
    const auto scratch =
        std::make_shared<Trainer>(flags, make_model(flags.model, flags.common->seed, device), 1000);
    return [scratch, &batch] { scratch->step(batch); };
  });
}

}  // namespace sinter::mnist
