#include "nn/optim.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "autograd/autograd.h"
#include "core/device/memory.h"
#include "profiler/phase.h"

namespace sinter::nn {
namespace {

void check_option(const char* optimizer, const char* name, double value, double below = INFINITY) {
  SINTER_CHECK(std::isfinite(value) && value >= 0 && value < below, usage,
      cat(optimizer, ": ", name, " out of range: ", value, "; allowed 0 <= ", name, " < ", below));
}

}  // namespace

Optimizer::Optimizer(NamedTensors params, double lr, double beta1, double beta2)
    : params_(std::move(params)), beta1_(beta1), beta2_(beta2) {
  SINTER_CHECK(!params_.empty(), usage, "optimizer: no parameters given: the list has 0");
  for (auto item = params_.begin(); item != params_.end(); ++item) {
    const auto& [name, param] = *item;
    SINTER_CHECK(param.requires_grad(), usage,
        cat("optimizer: not a parameter: ", name, " is ", param.describe(),
            "; it does not require grad"));
    const auto first = std::find_if(params_.begin(), item,
        [&item](const NamedTensor& before) { return before.tensor.is_same(item->tensor); });
    SINTER_CHECK(first == item, usage,
        cat("optimizer: one parameter given twice: ", first->name, " and ", name,
            " are tied; it would be updated twice a step"),
        "Module::named_parameters() lists it once");
    param.autograd().known = true;
  }
  state_ = make_step_state(params_[0].tensor.device());
  set_lr(lr);
  set_steps(0);
}

void Optimizer::add_slot(const std::string& name) {
  Slot slot{name, {}};
  for (const auto& [key, param] : params_) {
    slot.tensors.push_back(Tensor::zeros(param.shape(), param.dtype(), param.device()));
    slot.tensors.back().autograd().name = name + "/" + key;
  }
  slots_.push_back(std::move(slot));
}

void Optimizer::add_skipped_steps() {
  const int64_t n = int64_t(params_.size());
  skipped_ = Tensor::zeros({n}, DType::f64, state_.device());
  skipped_.autograd().name = kSkippedSteps;
  Slot slot{kSkippedSteps, {}};
  for (int64_t i = 0; i < n; ++i) {
    slot.tensors.push_back(Tensor::view_of(skipped_.storage(), DType::f64, {1}, {1}, i));
    slot.tensors.back().autograd().name = cat(kSkippedSteps, "/", params_[i].name);
  }
  slots_.push_back(std::move(slot));
}

// After the step, whose updates read the counts: one launch, and none where all have a gradient.
void Optimizer::count_skipped() {
  if (!skipped_.defined()) return;
  const auto has_gradient = [](const NamedTensor& p) { return p.tensor.grad().defined(); };
  if (std::ranges::all_of(params_, has_gradient)) return;
  std::vector<double> counts;
  for (const NamedTensor& p : params_) counts.push_back(has_gradient(p) ? 0 : 1);
  Tensor& skips = skips_[counts];
  if (!skips.defined()) {
    skips = Tensor::from(counts, skipped_.shape(), skipped_.device());
    skips.autograd().name = cat("skips", skips_.size());
  }
  accumulate(skipped_, skips);
}

void Optimizer::step(const Tensor& losses) {
  const NoGrad no_grad;
  const profiler::PhaseScope phase(Phase::optimizer);
  size_t last = params_.size();
  for (size_t i = 0; i < params_.size(); ++i) {
    if (params_[i].tensor.grad().defined()) last = i;
  }
  SINTER_CHECK(last < params_.size(), state,
      cat("step: no gradient: 0 of ", params_.size(), " parameters have one"),
      "call backward(loss) first");
  for (size_t i = 0; i <= last; ++i) {
    const Tensor& param = params_[i].tensor;
    const Tensor grad = param.grad();
    if (grad.defined())
      update(i, param, grad, i == last ? Tail{true, losses, rng_state(param.device())} : Tail{});
  }
  count_skipped();
}

void Optimizer::zero_grad() {
  for (const auto& [_, param] : params_) {
    param.autograd().grad = {};
    param.autograd().grad_taken_by = nullptr;
  }
}

void Optimizer::set_lr(double lr) {
  check_outside_step("set_lr");
  check_option("optimizer", "lr", lr);
  if (lr != lr_ || next_rates_.defined()) write_rates(lr, {});
}

double Optimizer::lr() const { return next_rates_.defined() ? read_step_state(state_).lr : lr_; }

void Optimizer::set_rates(const std::vector<double>& rates) {
  check_outside_step("set_rates");
  SINTER_CHECK(!rates.empty(), usage, "optimizer: no rates given: the list has 0; at least 1");
  for (const double lr : rates) check_option("optimizer", "lr", lr);
  write_rates(rates[0], Tensor::from(std::vector<double>(rates.begin() + 1, rates.end()),
                            {int64_t(rates.size()) - 1}, state_.device()));
}

// The fields of the state from lr to rates_left, in one copy.
void Optimizer::write_rates(double lr, const Tensor& next) {
  StepState state{.lr = lr};
  if (next.defined()) {
    state.next_rates = next.data<double>();
    state.rates_left = next.numel();
  }
  copy_to_device(static_cast<char*>(state_.raw()) + offsetof(StepState, lr), state_.device(),
      &state.lr, offsetof(StepState, step_scale) - offsetof(StepState, lr));
  lr_ = lr;
  next_rates_ = next;
}

NamedTensors Optimizer::state_tensors() const {
  NamedTensors out;
  for (const auto& [slot_name, tensors] : slots_) {
    for (size_t i = 0; i < tensors.size(); ++i)
      out.push_back({slot_name + "/" + params_[i].name, tensors[i]});
  }
  return out;
}

void Optimizer::set_steps(int64_t steps) {
  check_outside_step("set_steps");
  const StepState now = read_step_state(state_);
  StepState state{.lr = now.lr};
  reset_step_state(state, beta1_, beta2_);
  // By the same recurrence as in training, so that the powers are the same bits; those that no
  // longer move need no more of it.
  for (StepState before{.beta1_power = 2};
       state.step < steps &&
       (state.beta1_power != before.beta1_power || state.beta2_power != before.beta2_power);) {
    before = state;
    advance(state, 0, 0, beta1_, beta2_);
  }
  state.step = steps;
  state.cursor = now.cursor;
  state.batch_rows = now.batch_rows;
  state.set_rows = now.set_rows;
  write_step_state(state_, state);
  lr_ = now.lr;
  next_rates_ = {};
}

Sgd::Sgd(NamedTensors params, const SgdOptions& options)
    : Optimizer(std::move(params), options.lr, 0, 0), options_(options) {
  check_option("Sgd", "momentum", options.momentum, 1);
  check_option("Sgd", "weight_decay", options.weight_decay);
  SINTER_CHECK(!options.nesterov || options.momentum > 0, usage,
      "Sgd: nesterov without momentum: momentum is 0; it must be above 0");
  if (options.momentum != 0) add_slot("momentum_buffer");
}

void Sgd::update(size_t i, const Tensor& param, const Tensor& grad, const Tail& tail) {
  const UpdateAttrs attrs{.momentum = options_.momentum,
      .weight_decay = options_.weight_decay,
      .nesterov = options_.nesterov,
      .tail = tail.is_tail};
  sgd_update(param, grad, options_.momentum != 0 ? slot(0, i) : Tensor(), bf16_copy_of(param),
      state(), attrs, tail.losses, tail.rng);
}

Adam::Adam(NamedTensors params, const AdamOptions& options, bool decoupled)
    : Optimizer(std::move(params), options.lr, options.beta1, options.beta2),
      options_(options),
      decoupled_(decoupled) {
  const char* name = decoupled ? "AdamW" : "Adam";
  check_option(name, "beta1", options.beta1, 1);
  check_option(name, "beta2", options.beta2, 1);
  check_option(name, "eps", options.eps);
  check_option(name, "weight_decay", options.weight_decay);
  add_slot("exp_avg");
  add_slot("exp_avg_sq");
  add_skipped_steps();
}

void Adam::update(size_t i, const Tensor& param, const Tensor& grad, const Tail& tail) {
  const UpdateAttrs attrs{.weight_decay = options_.weight_decay,
      .beta1 = options_.beta1,
      .beta2 = options_.beta2,
      .eps = options_.eps,
      .decoupled = decoupled_,
      .tail = tail.is_tail};
  adam_update(param, grad, slot(0, i), slot(1, i), bf16_copy_of(param), state(), attrs, tail.losses,
      tail.rng, slot(2, i));
}

}  // namespace sinter::nn
