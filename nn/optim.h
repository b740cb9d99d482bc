// Optimizers: SGD with momentum, Adam, AdamW. The update of each parameter is one op; learning
// rate, step count and loss sums live in a StepState on the device (ops/optim/step_state.h), which
// the step's last update advances: nothing of them is baked into a captured step.
//
//   nn::Adam adam(net.named_parameters(), {.lr = 0.001});
//   adam.zero_grad();
//   Tensor losses = cross_entropy(net(x), labels);
//   backward(losses);
//   adam.step(losses);
//
// The formulas are PyTorch's (ops/optim/update_formulas.h). So is what a step does to a parameter
// without a gradient: nothing, and Adam does not count the step for it (Note [Steps of a
// parameter]).
//
// Not thread-safe.
#pragma once

#include <map>
#include <vector>

#include "nn/named_tensor.h"
#include "ops/ops.h"

namespace sinter::nn {

// The slot of Adam that a checkpoint of before it may lack; then nothing was skipped.
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
  // Learning rate, steps done, loss sums: see StepState. Reading it waits for the device.
  const Tensor& state() const { return state_; }
  int64_t steps() const { return read_step_state(state_).step; }
  const NamedTensors& parameters() const { return params_; }

  // For checkpoints: "exp_avg/0.weight", .., "skipped_steps/0.weight"; the tensors themselves. Copy
  // values into them, then tell how many steps were done; what set_rates() was told of later steps
  // is forgotten.
  NamedTensors state_tensors() const;
  void set_steps(int64_t steps);

 protected:
  // Throws usage unless every parameter requires grad, stands there once, and there is one at
  // least.
  Optimizer(NamedTensors params, double lr, double beta1, double beta2);
  // What the last update of a step does beyond its own parameter; empty for the others.
  struct Tail {
    bool is_tail = false;
    Tensor losses, rng;
  };
  virtual void update(size_t i, const Tensor& param, const Tensor& grad, const Tail& tail) = 0;
  // One zeroed tensor per parameter, under that name in state_tensors().
  void add_slot(const std::string& name);
  // kSkippedSteps: f64[1] per parameter, at how many of the steps done it had no gradient.
  void add_skipped_steps();
  const Tensor& slot(size_t which, size_t i) const { return slots_[which].tensors[i]; }

 private:
  struct Slot {
    std::string name;
    Tensors tensors;
  };
  void write_rates(double lr, const Tensor& next);
  void count_skipped();
  NamedTensors params_;
  std::vector<Slot> slots_;
  Tensor state_, next_rates_;  // next_rates_: what the state points to, or undefined
  Tensor skipped_;             // of all parameters, in one storage; or undefined
  std::map<std::vector<double>, Tensor> skips_;  // what a step adds to it, kept for captured steps
  double beta1_, beta2_, lr_ = -1;               // lr_: as in the state, without next_rates_
};

struct SgdOptions {
  double lr = 0.1, momentum = 0.9, weight_decay = 0;
  bool nesterov = false;
};
class Sgd : public Optimizer {
 public:
  explicit Sgd(NamedTensors params, const SgdOptions& options = {});

 private:
  void update(size_t i, const Tensor& param, const Tensor& grad, const Tail& tail) override;
  SgdOptions options_;
};

struct AdamOptions {
  double lr = 0.001, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
};
class Adam : public Optimizer {
 public:
  explicit Adam(NamedTensors params, const AdamOptions& options = {})
      : Adam(std::move(params), options, false) {}

 protected:
  Adam(NamedTensors params, const AdamOptions& options, bool decoupled);  // decoupled: AdamW

 private:
  void update(size_t i, const Tensor& param, const Tensor& grad, const Tail& tail) override;
  AdamOptions options_;
  bool decoupled_;
};
struct AdamWOptions {
  double lr = 0.001, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0.01;
};
// Adam whose weight decay acts on the weight, not through the gradient (Loshchilov and Hutter
// 2019).
class AdamW : public Adam {
 public:
  explicit AdamW(NamedTensors params, const AdamWOptions& options = {})
      : Adam(std::move(params),
            {.lr = options.lr,
                .beta1 = options.beta1,
                .beta2 = options.beta2,
                .eps = options.eps,
                .weight_decay = options.weight_decay},
            true) {}
};

}  // namespace sinter::nn
