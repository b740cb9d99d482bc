// The run-time scalars of a training step, in memory of the device: learning rate, step count, bias
// corrections, loss sums, the dropout counter. Kernels take a pointer, so nothing of it is ever
// baked into a captured step. The last update op of a step advances it (tail). The host reads and
// writes it between steps by copies, which wait for the device.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <tuple>

#include "core/math.h"
#include "core/tensor.h"

namespace sinter {

struct StepState {
  double beta1_power = 1,
         beta2_power =
             1;   // beta^t after t steps, by recurrence (f32 would lose 1 - beta2^t at small t)
  double lr = 0;  // of the next step
  // Told by count_rows(): no row of the step counts, in any process. Then the updates change
  // nothing, and it is no step. Beside lr, as each update reads both.
  int64_t idle = 0;
  // Of the steps after it, as many as are known, in memory of the state's device; then lr stays.
  const double* next_rates = nullptr;
  int64_t rates_left = 0;
  // Adam's bias corrections of the next step, 1 / (1 - beta1^t) and 1 / sqrt(1 - beta2^t): worked
  // out once a step, not by every thread of its update.
  double step_scale = 1, root_scale = 1;
  int64_t step = 0;     // steps done
  double loss_sum = 0;  // of row losses since last_reset
  int64_t loss_rows = 0;
  double last_loss = 0;         // mean row loss of the last step
  double last_good_loss = 0;    // the last finite one
  int64_t first_bad_step = -1;  // first step with a non-finite loss, or -1
  int64_t counted = -1;         // of the step's losses so many rows of this process count; -1: all
  int64_t idle_steps = 0;       // since last_reset
  uint32_t ticket =
      0;  // of the kernel that advances it: blocks that have arrived; 0 between kernels
};
// beta1^t and beta2^t are those of the step that comes next.
SINTER_FN void correct_bias(StepState& state, double power1, double power2) {
  state.step_scale = 1 / (1 - power1);
  state.root_scale = 1 / math::sqrt(1 - power2);
}

// Row losses are summed in one shape on every device, so that their sum has the same bits on all:
// kLossRuns runs, each of the rows r, r + kLossRuns, .. in order; run r joins lane r % kLossLanes,
// in order; then the upper half of the lanes is added to the lower one, until one is left.
inline constexpr int kLossRuns = 256, kLossLanes = 32;

// What a step's last kernel does to the state, on every device: `loss_sum` of `rows` row losses (0:
// the step has none). The dropout counter moves on beside it.
SINTER_FN void advance(
    StepState& state, double loss_sum, int64_t rows, double beta1, double beta2) {
  if (state.counted >= 0) {
    rows = state.counted;
    state.counted = -1;
  }
  if (rows > 0) {
    state.loss_sum += loss_sum;
    state.loss_rows += rows;
    state.last_loss = loss_sum / double(rows);
    if (state.last_loss - state.last_loss == 0) {  // finite
      state.last_good_loss = state.last_loss;
    } else if (state.first_bad_step < 0) {
      state.first_bad_step = state.step;
    }
  }
  if (state.rates_left > 0) {
    state.lr = *state.next_rates++;
    --state.rates_left;
  }
  if (state.idle != 0) {
    state.idle = 0;
    state.last_loss = 0;
    ++state.idle_steps;
    return;
  }
  ++state.step;
  state.beta1_power *= beta1;
  state.beta2_power *= beta2;
  correct_bias(state, state.beta1_power * beta1, state.beta2_power * beta2);
}

// A StepState in a u8 tensor.
Tensor make_step_state(Device device = kCpu);
// After all that was launched before; in order with what is launched next.
StepState read_step_state(const Tensor& state);
void write_step_state(const Tensor& tensor, const StepState& state);
// The state itself, for the kernels and tests of the CPU. REQUIRES: it is there (checked).
StepState& host_step_state(const Tensor& state);
// Before the first step: everything as at the start but the learning rate; bias corrections of
// step 1.
void reset_step_state(StepState& state, double beta1, double beta2);
// Throws dtype or shape unless `state` is a step state.
void check_step_state(const char* op, const Tensor& state);
// The tail on the CPU: sums `losses` (f32, f64 or undefined), advances the state and the dropout
// counter.
void advance_step_state(
    StepState& state, const Tensor& losses, const Tensor& rng, double beta1, double beta2);

// The thread's dropout counter on a device: i64[3] = (seed, offset, first op id). Ops of one step
// differ by their op id, steps by the offset. The first op id is 0 but inside a captured step,
// where the ids of the ops themselves begin at 0: see RandomOpsOfStep.
Tensor rng_state(Device device = kCpu);
// Of every device, for this thread.
void manual_seed(uint64_t seed);
// Id of the device's next random op. Ids start at 0 again when an optimizer moves the device's
// offset on; where none does they count on, so no two ops of a device draw the same.
int64_t next_random_op(Device device = kCpu);
void restart_random_ops(std::optional<Device> device = {});  // unset: of all
// Note [Masks of a part of the batch]
//   A rank of data-parallel training computes some rows of a batch. The masks of all ranks together
//   must be the masks that one process draws for the whole batch, so an element is counted from the
//   first row of that. From now on random ops of this thread see x as the rows from `row` on.
void set_first_row(int64_t row);
int64_t first_row();

// What of this thread is random. Checkpoints hold it.
struct RngStates {
  struct OfDevice {
    Tensor state;        // once it was asked for,
    int64_t offset = 0;  // and begins there
    // Random ops since the offset moved: those before the captured step that runs, if one does;
    // then those since it began.
    int64_t ops_before = 0, ops = 0;
    // Of that step: ops_before as it began, and did it move the offset on?
    int64_t before = 0;
    bool restarted = false;
  };
  uint64_t seed = 0, host_tensors = 0;  // tensors that the host drew since manual_seed(seed)
  std::map<Device, OfDevice> devices;
  static RngStates& of_thread();
  void write(const OfDevice& rng) const;
};

// While it lives, random ops of this thread count from 0, and the device adds how many came before:
// so the ids of a captured step are the same at every call, and what is drawn is what an eager call
// would draw. Afterwards they count on.
class RandomOpsOfStep {
 public:
  RandomOpsOfStep();
  ~RandomOpsOfStep();
  RandomOpsOfStep(const RandomOpsOfStep&) = delete;
  RandomOpsOfStep& operator=(const RandomOpsOfStep&) = delete;

  // What a step drew, of each device: ops since it began or, if it did, since it moved the offset
  // on; and did it?
  using Draws = std::vector<std::tuple<Device, int64_t, bool>>;
  Draws draws() const;
  // Counts as a step that drew so.
  static void count(const Draws& draws);

 private:
  const int64_t first_row_;
  const bool launches_;  // of the Context; if not, the step is not done, and all is as before it
};

// Throws state inside a captured step, of which a replay would know nothing. `what` is called by
// the host.
void check_outside_step(const char* what);

}  // namespace sinter
