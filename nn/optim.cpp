#include "nn/optim.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "autograd/autograd.h"
#include "core/device/memory.h"
#include "core/numbers.h"
#include "profiler/phase.h"

namespace sinter::nn {
namespace {

void check_option(
    const char* optimizer, std::string_view name, double value, double below = INFINITY) {
  SINTER_CHECK(std::isfinite(value) && value >= 0 && value < below, usage,
      sinter::str(
          optimizer, ": ", name, " out of range: ", value, "; allowed 0 <= ", name, " < ", below));
}

// Of a step: those of its gradients, else of its losses; nullptr: all do.
const AutogradMeta* rows_that_count(const Tensor& grad, const Tensor& losses) {
  for (const Tensor* t : {&grad, &losses}) {
    if (t->has_autograd() && t->autograd().counted.defined()) return &t->autograd();
  }
  return nullptr;
}
const Tensor& all_counted(const AutogradMeta& rows) {
  return rows.counted_of_all.defined() ? rows.counted_of_all : rows.counted;
}

}  // namespace

Optimizer::Optimizer(
    NamedTensors params, const char* class_name, double lr, const UpdateAttrs& attrs)
    : params_(std::move(params)), row_(optimizer_row(attrs.optimizer)), attrs_(attrs) {
  SINTER_CHECK(!params_.empty(), usage, "optimizer: no parameters given: the list has 0",
      "a module registers its own by add() and add_parameter()");
  for (auto item = params_.begin(); item != params_.end(); ++item) {
    const auto& [name, param] = *item;
    SINTER_CHECK(param.requires_grad(), usage,
        sinter::str("optimizer: not a parameter: ", name, " is ", param.describe(),
            "; it does not require grad"));
    const auto first = std::find_if(params_.begin(), item,
        [&item](const NamedTensor& before) { return before.tensor.is_same(item->tensor); });
    SINTER_CHECK(first == item, usage,
        sinter::str("optimizer: one parameter given twice: ", first->name, " and ", name,
            " are tied; it would be updated twice a step"),
        "Module::named_parameters() lists it once");
    param.autograd().known = true;
  }
  weight_decays_.assign(params_.size(), attrs_.weight_decay);
  state_ = make_step_state(params_[0].tensor.device());
  set_lr(lr);
  set_steps(0);
  visit_fields(attrs_, [&]<class T>(std::string_view field, const T& value) {
    if constexpr (std::is_same_v<T, double>) {
      const bool is_share = field != "weight_decay" && field != "eps";
      check_option(class_name, field, value, is_share ? 1 : INFINITY);
    }
  });
  SINTER_CHECK(!attrs_.nesterov || attrs_.momentum > 0, usage,
      sinter::str(class_name, ": nesterov without momentum: momentum is 0; it must be above 0"));
  const auto add_slot = [this](const std::string& name, auto make) {
    Slot& slot = slots_.emplace_back(Slot{name, {}});
    for (const auto& [key, param] : params_) {
      slot.tensors.push_back(make(param));
      slot.tensors.back().autograd().name = name + "/" + key;
    }
  };
  for (const OptimizerState& state : row_.states.first(row_.used_states(attrs_))) {
    add_slot(state.name,
        [](const Tensor& p) { return Tensor::zeros(p.shape(), p.dtype(), p.device()); });
  }
  if (!row_.counts_steps) return;
  skipped_ = Tensor::zeros({int64_t(params_.size())}, DType::f64, state_.device());
  skipped_.autograd().name = kSkippedSteps;
  add_slot(kSkippedSteps, [this, i = int64_t{0}](const Tensor&) mutable {
    return Tensor::view_of(skipped_.storage(), DType::f64, {1}, {1}, i++);
  });
}

// After the step, whose updates read the counts: one launch, and none where all have a gradient.
// `rows`: which of the step count, if not all; of none it was no step.
void Optimizer::count_skipped(const AutogradMeta* rows) {
  if (!skipped_.defined()) return;
  const auto has_gradient = [](const NamedTensor& p) { return p.tensor.grad().defined(); };
  if (std::ranges::all_of(params_, has_gradient)) return;
  std::vector<double> counts;
  for (const NamedTensor& p : params_) counts.push_back(has_gradient(p) ? 0 : 1);
  // Of more patterns than this those go that no captured step holds.
  constexpr size_t kPatterns = 64;
  if (skips_.size() >= kPatterns && !skips_.contains(counts))
    std::erase_if(skips_, [](const auto& kept) { return kept.second.is_sole_owner(); });
  Tensor& skips = skips_[counts];
  if (!skips.defined()) {
    skips = Tensor::from(counts, skipped_.shape(), skipped_.device());
    skips.autograd().name = sinter::str("skips", skips_.size());
  }
  if (!rows) return accumulate(skipped_, skips);
  const Tensor any = lt(constant_like(rows->counted, 0), all_counted(*rows));
  accumulate(skipped_, mul(skips, cast(any, DType::f64)));
}

void Optimizer::set_weight_decay(
    double value, const std::function<bool(const NamedTensor&)>& in_group) {
  check_outside_step("set_weight_decay");
  check_option("optimizer", "weight_decay", value);
  bool found = false;
  for (size_t i = 0; i < params_.size(); ++i) {
    if (!in_group(params_[i])) continue;
    weight_decays_[i] = value;
    found = true;
  }
  SINTER_CHECK(found, usage,
      sinter::str("optimizer: set_weight_decay: no parameter is in the group: it has ",
          params_.size(), ", the first is ", params_[0].name, " ", params_[0].tensor.describe()));
}

UpdateAttrs Optimizer::attrs_of(size_t i) const {
  UpdateAttrs attrs = attrs_;
  attrs.weight_decay = weight_decays_[i];
  return attrs;
}

void Optimizer::step(const Tensor& losses) {
  const NoGrad no_grad;
  const profiler::PhaseScope phase(Phase::optimizer);
  size_t last = params_.size();
  for (size_t i = 0; i < params_.size(); ++i) {
    if (params_[i].tensor.grad().defined()) last = i;
  }
  SINTER_CHECK(last < params_.size(), state,
      sinter::str("step: no gradient: 0 of ", params_.size(), " parameters have one"),
      "call backward(loss) first");
  const AutogradMeta* rows = rows_that_count(params_[last].tensor.grad(), losses);
  if (rows) count_rows(state_, rows->counted, all_counted(*rows));
  for (size_t i = 0; i <= last; ++i) {
    const Tensor& param = params_[i].tensor;
    const Tensor grad = param.grad();
    if (!grad.defined()) continue;
    UpdateGroup group = operands(i);
    group.grad = grad;
    group.bf16_copy = bf16_copy_of(param);
    UpdateAttrs attrs = attrs_of(i);
    attrs.tail = i == last;
    update_parameter(group, state_, attrs, attrs.tail ? losses : Tensor(),
        attrs.tail ? rng_state(param.device()) : Tensor());
  }
  count_skipped(rows);
}

UpdateGroup Optimizer::operands(size_t i) const {
  const size_t states = row_.used_states(attrs_);
  const auto slot = [&](size_t k) { return k < states ? slots_[k].tensors[i] : Tensor(); };
  return {.param = params_[i].tensor,
      .state1 = slot(0),
      .state2 = slot(1),
      .skipped = row_.counts_steps ? slots_.back().tensors[i] : Tensor()};
}

Tensor Optimizer::after_step(size_t i, const Tensor& grad) const {
  const NoGrad no_grad;
  const auto copied = [](const Tensor& t) { return t.defined() ? copy(t.to(kCpu)) : t; };
  const auto exact = [](const Tensor& t) {
    return t.defined() ? cast(copy(t.to(kCpu)), DType::f64) : t;
  };
  UpdateGroup group = operands(i);
  for (Tensor* t : {&group.param, &group.state1, &group.state2}) *t = exact(*t);
  group.grad = exact(grad);
  group.skipped = copied(group.skipped);
  update_parameter(group, copied(state_), attrs_of(i));
  return group.param;
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
  // Of the powers in the state; 0 of an optimizer that does not ask for them.
  const double beta1 = row_.counts_steps ? attrs_.beta1 : 0,
               beta2 = row_.counts_steps ? attrs_.beta2 : 0;
  reset_step_state(state, beta1, beta2);
  // By the same recurrence as in training, so that the powers are the same bits; those that no
  // longer move need no more of it.
  for (StepState before{.beta1_power = 2};
       state.step < steps &&
       (state.beta1_power != before.beta1_power || state.beta2_power != before.beta2_power);) {
    before = state;
    advance(state, 0, 0, beta1, beta2);
  }
  state.step = steps;
  write_step_state(state_, state);
  lr_ = now.lr;
  next_rates_ = {};
}

namespace {

template <class O>
concept HasMomentum = requires(O options) { options.momentum; };
template <class O>
concept HasBetas = requires(O options) { options.beta2; };

template <class O>
std::unique_ptr<Optimizer> make(
    NamedTensors params, double lr, double weight_decay, double momentum, const Betas& betas) {
  O options{.lr = lr};
  options.weight_decay = weight_decay;
  if constexpr (HasMomentum<O>) options.momentum = momentum;
  if constexpr (HasBetas<O>) {
    options.beta1 = betas[0];
    options.beta2 = betas[1];
  }
  return std::make_unique<OptimizerOf<O>>(std::move(params), options);
}
template <class O> constexpr Betas usual_betas() {
  if constexpr (HasBetas<O>) return {O().beta1, O().beta2};
  return {};
}
template <class O>
constexpr OptimizerChoice kChoice{
    O::name, O().lr, O().weight_decay, HasMomentum<O>, usual_betas<O>(), make<O>};

}  // namespace

std::span<const OptimizerChoice> optimizers() {
#define SINTER_ROW(op, signature, Struct) kChoice<Struct##Options>,
#define SINTER_VARIANT(Struct, Of) kChoice<Struct##Options>,
  static constexpr OptimizerChoice kChoices[] = {SINTER_OPTIMIZERS(SINTER_ROW, SINTER_VARIANT)};
#undef SINTER_ROW
#undef SINTER_VARIANT
  return kChoices;
}

std::vector<std::string> optimizer_names() {
  std::vector<std::string> names;
  for (const OptimizerChoice& choice : optimizers()) names.push_back(choice.name);
  return names;
}

const OptimizerChoice& optimizer_named(const std::string& name) {
  std::vector<std::string_view> names;
  for (const OptimizerChoice& choice : optimizers()) names.push_back(choice.name);
  return optimizers()[place_of("optimizer", name, names)];
}

}  // namespace sinter::nn
