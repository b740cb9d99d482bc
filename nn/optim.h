// Optimizers: SGD with momentum, Adam, AdamW, RMSprop, Lion. The update of each parameter is one
// op; learning rate, step count and loss sums live in a StepState on the device
// (ops/optim/step_state.h), which the step's last update advances: nothing of them is baked into a
// captured step.
//
//   nn::Adam adam(net.named_parameters(), {.lr = 0.001});
//   adam.zero_grad();
//   Tensor losses = cross_entropy(net(x), labels);
//   backward(losses);
//   adam.step(losses);
//
// Their formulas and options are structs in ops/optim/optimizers.h, as in PyTorch; the classes here
// follow from them. What a step does to a parameter without a gradient is PyTorch's as well:
// nothing, and Adam does not count the step for it (Note [Steps of a parameter]).
//
// Not thread-safe.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "nn/named_tensor.h"
#include "ops/optim/optimizers.h"

namespace sinter::nn {

// Adam's slot of the steps that each parameter took no part in.
inline constexpr const char* kSkippedSteps = "skipped_steps";

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  // Updates every parameter that has a gradient; `losses` (one per row) are added to the StepState.
  // Throws state if none has one.
  void step(const Tensor& losses = {});
  // Makes all gradients undefined.
  void zero_grad();

  // Of the next step. Throws usage unless lr is finite and >= 0. Only reading it after set_rates()
  // waits for the device.
  double lr() const;
  void set_lr(double lr);
  // Of the next steps, one each, as a schedule has them; the last one stays. They are copied to the
  // device once, where each step finds its own: with set_lr() the host would copy one a step.
  void set_rates(const std::vector<double>& rates);
  // What parameter groups are for, mostly: the weight decay becomes `value` where `in_group` holds.
  //   adamw.set_weight_decay(0, nn::is_vector);  // of biases and norms; matrices keep theirs
  // Throws usage unless it is finite and >= 0, or if it holds for no parameter.
  void set_weight_decay(double value, const std::function<bool(const NamedTensor&)>& in_group);
  // Learning rate, steps done, loss sums: see StepState. Reading it waits for the device.
  const Tensor& state() const { return state_; }
  int64_t steps() const { return read_step_state(state_).step; }
  const NamedTensors& parameters() const { return params_; }

  // For checkpoints: "exp_avg/0.weight", .., "skipped_steps/0.weight"; the tensors themselves. Copy
  // values into them, then tell how many steps were done; what set_rates() was told of later steps
  // is forgotten.
  NamedTensors state_tensors() const;
  void set_steps(int64_t steps);

  // A parameter as a step would leave it that now found this gradient, in f64 on the CPU. Nothing
  // is changed.
  Tensor after_step(size_t i, const Tensor& grad) const;
  // What its formula is, and the names of its states.
  const OptimizerRow& row() const { return row_; }

 protected:
  // Throws usage unless every parameter requires grad, stands there once, there is one at least,
  // and all numbers are in their ranges. `class_name` begins messages.
  Optimizer(NamedTensors params, const char* class_name, double lr, const UpdateAttrs& attrs);

 private:
  // A tensor per parameter. kSkippedSteps: f64[1], at how many of the steps done it had no
  // gradient.
  struct Slot {
    std::string name;
    Tensors tensors;
  };
  void write_rates(double lr, const Tensor& next);
  void count_skipped(const AutogradMeta* rows);
  // Without the gradient.
  UpdateGroup operands(size_t i) const;
  UpdateAttrs attrs_of(size_t i) const;

  NamedTensors params_;
  const OptimizerRow& row_;
  const UpdateAttrs attrs_;
  std::vector<double> weight_decays_;  // of each parameter
  std::vector<Slot> slots_;
  Tensor state_, next_rates_;  // next_rates_: what the state points to, or undefined
  Tensor skipped_;             // of all parameters, in one storage; or undefined
  std::map<std::vector<double>, Tensor> skips_;  // what a step adds to it, kept for captured steps
  double lr_ = -1;                               // as in the state, without next_rates_
};

// Of less than two dims, as biases and the weights of norms.
inline bool is_vector(const NamedTensor& param) { return param.tensor.rank() < 2; }

// A struct of ops/optim/optimizers.h as an optimizer: nn::Adam(params, {.lr = 0.01}).
template <class Options> class OptimizerOf : public Optimizer {
 public:
  explicit OptimizerOf(NamedTensors params, const Options& options = {})
      : Optimizer(std::move(params), Options::class_name, options.lr, attrs_of(options)) {}

 private:
  static UpdateAttrs attrs_of(const Options& options) {
    Attrs attrs = UpdateAttrs{.optimizer = kind_of(options)};
    visit_fields(options, [&](auto name, const auto& value) { attrs.set(name, value); });
    return attrs.as<UpdateAttrs>();
  }
};
#define SINTER_VARIANT(Struct, Of)               \
  using Struct##Options = sinter::optim::Struct; \
  using Struct = OptimizerOf<Struct##Options>;
#define SINTER_ROW(op, signature, Struct) SINTER_VARIANT(Struct, Struct)
SINTER_OPTIMIZERS(SINTER_ROW, SINTER_VARIANT)
#undef SINTER_ROW
#undef SINTER_VARIANT

// beta1 and beta2.
using Betas = std::array<double, 2>;
// What a program asks that lets its user name an optimizer.
struct OptimizerChoice {
  const char* name;
  double lr, weight_decay;  // the usual ones
  bool has_momentum;
  Betas betas;  // the usual ones; of an optimizer that has none 0, and what it is given is unused
  std::unique_ptr<Optimizer> (*make)(
      NamedTensors params, double lr, double weight_decay, double momentum, const Betas& betas);
  bool has_betas() const { return betas != Betas{}; }
};
std::span<const OptimizerChoice> optimizers();
std::vector<std::string> optimizer_names();
// By its name; throws usage if there is none.
const OptimizerChoice& optimizer_named(const std::string& name);

}  // namespace sinter::nn
