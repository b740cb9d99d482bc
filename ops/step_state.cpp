#include "ops/step_state.h"

#include <cmath>

#include "core/error.h"

namespace sinter {

Tensor make_step_state(Device device) {
  SINTER_CHECK(device.type == Device::Type::cpu, not_built, cat("step state: not in this build: ", device.str()));
  Tensor state = Tensor::empty({static_cast<int64_t>(sizeof(StepState))}, DType::u8, device);
  new (state.raw()) StepState;
  state.autograd().name.assign("step_state");
  return state;
}

StepState& host_step_state(const Tensor& state) {
  SINTER_ASSERT(state.defined() && state.dtype() == DType::u8 && state.numel() == sizeof(StepState), state.describe());
  return *static_cast<StepState*>(state.raw());
}

void reset_step_state(StepState& state, double beta1, double beta2) {
  state = {.lr = state.lr, .bias_correction1 = 1 - beta1, .bias_correction2 = 1 - beta2};
}

void advance_step_state(StepState& state, const Tensor& losses, const Tensor& rng, double beta1, double beta2) {
  if (losses.defined() && losses.numel() > 0) {
    double sum = 0;
    const auto add = [&](const auto* p) {
      for (int64_t i = 0; i < losses.numel(); ++i) sum += static_cast<double>(p[i]);
    };
    losses.dtype() == DType::f64 ? add(losses.data<double>()) : add(losses.data<float>());
    state.loss_sum += sum;
    state.loss_rows += losses.numel();
    state.last_loss = sum / static_cast<double>(losses.numel());
    if (std::isfinite(state.last_loss)) {
      state.last_good_loss = state.last_loss;
    } else if (state.first_bad_step < 0) {
      state.first_bad_step = state.step;
    }
  }
  ++state.step;
  state.beta1_power *= beta1;
  state.beta2_power *= beta2;
  state.bias_correction1 = 1 - state.beta1_power * beta1;
  state.bias_correction2 = 1 - state.beta2_power * beta2;
  if (rng.defined()) ++rng.data<int64_t>()[1];
}

namespace {
thread_local int64_t random_ops = 0;
}

Tensor rng_state() {
  static thread_local const Tensor state = [] {
    Tensor fresh = Tensor::zeros({3}, DType::i64);
    fresh.autograd().name.assign("rng");
    return fresh;
  }();
  return state;
}

void manual_seed(uint64_t seed) {
  int64_t* rng = rng_state().data<int64_t>();
  rng[0] = static_cast<int64_t>(seed);
  rng[1] = rng[2] = 0;
  restart_random_ops();
}

int64_t next_random_op() { return random_ops++; }
void restart_random_ops() { random_ops = 0; }

}  // namespace sinter
