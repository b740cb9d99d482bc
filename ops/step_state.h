// The run-time scalars of a training step, in memory of the device: learning rate, step count, bias corrections, loss sums, the dropout
// counter. Kernels take a pointer, so nothing of it is ever baked into a captured step. The last update op of a step advances it (tail).
#pragma once

#include <cstdint>

#include "core/tensor.h"

namespace sinter {

struct StepState {
  double beta1_power = 1, beta2_power = 1;  // beta^t after t steps, by recurrence (f32 would lose 1 - beta2^t at small t)
  double lr = 0;                            // of the next step
  double bias_correction1 = 1, bias_correction2 = 1;  // 1 - beta^t of the next step
  int64_t step = 0;                         // steps done
  double loss_sum = 0;                      // of row losses since last_reset
  int64_t loss_rows = 0;
  double last_loss = 0;                     // mean row loss of the last step
  double last_good_loss = 0;                // the last finite one
  int64_t first_bad_step = -1;              // first step with a non-finite loss, or -1
};

// A StepState in a u8 tensor; the host reads and writes it between steps.
Tensor make_step_state(Device device = kCpu);
StepState& host_step_state(const Tensor& state);
// Before the first step: everything as at the start but the learning rate; bias corrections of step 1.
void reset_step_state(StepState& state, double beta1, double beta2);
// What a step's last kernel does: sums `losses` (f32, f64 or undefined) in index order, moves every field, and the dropout counter on.
void advance_step_state(StepState& state, const Tensor& losses, const Tensor& rng, double beta1, double beta2);

// The thread's dropout counter: i64[3] = (seed, offset, spare). Ops of one step differ by their op id, steps by the offset.
Tensor rng_state();
void manual_seed(uint64_t seed);
// Id of the next random op since the last step; starts at 0 again when a step ends or a capture begins.
int64_t next_random_op();
void restart_random_ops();

}  // namespace sinter
