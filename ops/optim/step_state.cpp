#include "ops/optim/step_state.h"

#include <algorithm>
#include <utility>

#include "core/context.h"
#include "core/device/cuda.h"
#include "core/device/memory.h"
#include "core/error.h"
#include "ops/op.h"

namespace sinter {

Tensor make_step_state(Device device) {
  Tensor state = Tensor::empty({int64_t(sizeof(StepState))}, DType::u8, device);
  state.autograd().name.assign("step_state");
  write_step_state(state, {});
  return state;
}

StepState read_step_state(const Tensor& state) {
  check_outside_step("read_step_state");
  check_step_state("read_step_state", state);
  StepState out;
  copy_to_host(&out, state.raw(), state.device(), sizeof out);
  return out;
}

void write_step_state(const Tensor& tensor, const StepState& state) {
  check_outside_step("write_step_state");
  check_step_state("write_step_state", tensor);
  copy_to_device(tensor.raw(), tensor.device(), &state, sizeof state);
}

StepState& host_step_state(const Tensor& state) {
  SINTER_ASSERT(state.device() == kCpu, state.describe());
  return *static_cast<StepState*>(state.raw());
}

void reset_step_state(StepState& state, double beta1, double beta2) {
  state = {.lr = state.lr};
  correct_bias(state, beta1, beta2);
}

void check_step_state(const char* op, const Tensor& state) {
  check_dtype(op, "state", state, DType::u8);
  SINTER_CHECK(
      state.numel() == sizeof(StepState) && state.offset() % int64_t(alignof(StepState)) == 0,
      shape,
      str(op, ": no step state: state is ", state.describe(), " at byte ", state.offset(),
          " of its storage; it must have ", sizeof(StepState), " bytes, from a multiple of ",
          alignof(StepState), " on"));
}

void advance_step_state(
    StepState& state, const Tensor& losses, const Tensor& rng, double beta1, double beta2) {
  const int64_t rows = losses.defined() ? losses.numel() : 0;
  // Runs that have no row are zeros, and change no sum: of a small batch most are left out.
  const int runs = int(std::clamp<int64_t>(rows, kLossLanes, kLossRuns));
  double sums[kLossRuns];
  std::fill_n(sums, runs, 0.0);
  const auto add = [&](const auto* p) {
    for (int64_t i = 0; i < rows; ++i) sums[i % kLossRuns] += double(p[i]);
  };
  if (rows > 0 && losses.dtype() == DType::f64) add(losses.data<double>());
  if (rows > 0 && losses.dtype() != DType::f64) add(losses.data<float>());
  for (int r = kLossLanes; r < runs; ++r) sums[r % kLossLanes] += sums[r];
  for (int half = kLossLanes / 2; half > 0; half /= 2) {
    for (int lane = 0; lane < half; ++lane) sums[lane] += sums[lane + half];
  }
  advance(state, sums[0], rows, beta1, beta2);
  if (rng.defined()) {
    ++rng.data<int64_t>()[1];
    rng.data<int64_t>()[2] = 0;
  }
}

RngStates& RngStates::of_thread() {
  static thread_local RngStates states;
  return states;
}
void RngStates::write(const OfDevice& rng) const {
  if (!rng.state.defined()) return;
  const int64_t fresh[3] = {int64_t(seed), rng.offset, rng.ops_before};
  copy_to_device(rng.state.raw(), rng.state.device(), fresh, sizeof fresh);
  // A dropout that waits for its backward() has saved it.
  rng.state.storage()->bump_version("manual_seed");
}
static void write_first_op(const Tensor& state, int64_t id) {
  if (state.defined()) copy_to_device(state.data<int64_t>() + 2, state.device(), &id, sizeof id);
}

Tensor rng_state(Device device) {
  // The card takes its memory back; what lies there must not be written again.
  [[maybe_unused]] static const bool hooked = [] {
    cuda::at_reset([] {
      std::erase_if(RngStates::of_thread().devices,
          [](const auto& entry) { return entry.first.type == Device::Type::cuda; });
    });
    return true;
  }();
  RngStates& states = RngStates::of_thread();
  RngStates::OfDevice& rng = states.devices[device];
  if (!rng.state.defined()) {
    rng.state = Tensor::empty({3}, DType::i64, device);
    rng.state.autograd().name.assign("rng");
    states.write(rng);
  }
  return rng.state;
}

void manual_seed(uint64_t seed) {
  check_outside_step("manual_seed");
  RngStates& states = RngStates::of_thread();
  states.seed = seed;
  states.host_tensors = 0;
  restart_random_ops();
  for (auto& [_, rng] : states.devices) {
    rng.offset = 0;
    states.write(rng);
  }
}

int64_t next_random_op(Device device) { return RngStates::of_thread().devices[device].ops++; }
void restart_random_ops(std::optional<Device> device) {
  for (auto& [on, rng] : RngStates::of_thread().devices) {
    if (device && on != *device) continue;
    rng.ops_before = rng.ops = 0;
    rng.restarted = true;
  }
}

static thread_local int64_t first_row_of_thread = 0;
void set_first_row(int64_t row) { first_row_of_thread = row; }
int64_t first_row() { return first_row_of_thread; }

RandomOpsOfStep::RandomOpsOfStep()
    : first_row_(first_row_of_thread), launches_(Context::current().launches) {
  for (auto& [_, rng] : RngStates::of_thread().devices) {
    rng.before = rng.ops_before = std::exchange(rng.ops, 0);
    rng.restarted = false;
    if (rng.before > 0 && launches_) write_first_op(rng.state, rng.before);
  }
}

RandomOpsOfStep::~RandomOpsOfStep() {
  if (!launches_) first_row_of_thread = first_row_;
  for (auto& [_, rng] : RngStates::of_thread().devices) {
    rng.ops = launches_ ? rng.ops + rng.ops_before : rng.before;
    rng.ops_before = 0;
    try {
      if (std::exchange(rng.before, 0) > 0 && launches_) write_first_op(rng.state, 0);
    } catch (const Error&) {  // a device that failed; what is launched next reports it
    }
  }
}

RandomOpsOfStep::Draws RandomOpsOfStep::draws() const {
  Draws out;
  for (const auto& [device, rng] : RngStates::of_thread().devices) {
    if (rng.ops > 0 || rng.restarted) out.emplace_back(device, rng.ops, rng.restarted);
  }
  return out;
}

void RandomOpsOfStep::count(const Draws& draws) {
  for (const auto& [device, ops, restarted] : draws) {
    if (restarted) restart_random_ops(device);
    RngStates::of_thread().devices[device].ops += ops;
  }
}

void check_outside_step(const char* what) {
  const char* why = Context::current().host_reads_forbidden;
  SINTER_CHECK(!why, state,
      str(what, ": the host reads or writes memory inside ", why,
          "; a replay would not do it again"),
      "do it before the step or after it");
}

}  // namespace sinter
