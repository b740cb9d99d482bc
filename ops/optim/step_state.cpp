#include "ops/optim/step_state.h"

#include <algorithm>
#include <map>

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
      cat(op, ": no step state: state is ", state.describe(), " at byte ", state.offset(),
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

namespace {

// Since the last restart: those before the captured step that runs, if one does; then those since
// it began.
thread_local int64_t random_ops_before = 0, random_ops = 0;
thread_local int64_t random_restarts = 0;
thread_local int64_t first_row_of_thread = 0;

struct RngStates {
  uint64_t seed = 0, host_tensors = 0;
  std::map<Device, Tensor> states;

  static RngStates& of_thread() {
    static thread_local RngStates states;
    return states;
  }
  void write(const Tensor& state) const {
    const int64_t fresh[3] = {int64_t(seed), 0, random_ops_before};
    copy_to_device(state.raw(), state.device(), fresh, sizeof fresh);
    // A dropout that waits for its backward() has saved it.
    state.storage()->bump_version("manual_seed");
  }
  void write_first_op(int64_t id) const {
    for (const auto& [device, state] : states)
      copy_to_device(state.data<int64_t>() + 2, device, &id, sizeof id);
  }
};

}  // namespace

Tensor rng_state(Device device) {
  // The card takes its memory back; what lies there must not be written again.
  static const bool hooked = [] {
    cuda::at_reset([] {
      std::erase_if(RngStates::of_thread().states,
          [](const auto& entry) { return entry.first.type == Device::Type::cuda; });
    });
    return true;
  }();
  (void)hooked;
  RngStates& rng = RngStates::of_thread();
  Tensor& state = rng.states[device];
  if (!state.defined()) {
    Tensor fresh = Tensor::empty({3}, DType::i64, device);
    fresh.autograd().name.assign("rng");
    rng.write(fresh);
    state = fresh;
  }
  return state;
}

void manual_seed(uint64_t seed) {
  check_outside_step("manual_seed");
  RngStates& rng = RngStates::of_thread();
  rng.seed = seed;
  rng.host_tensors = 0;
  for (const auto& [_, state] : rng.states) rng.write(state);
  restart_random_ops();
}

std::pair<uint64_t, uint64_t> next_random_tensor() {
  RngStates& rng = RngStates::of_thread();
  return {rng.seed, rng.host_tensors++};
}
int64_t next_random_op() { return random_ops++; }
void restart_random_ops() {
  random_ops_before = random_ops = 0;
  ++random_restarts;
}

void set_first_row(int64_t row) { first_row_of_thread = row; }
int64_t first_row() { return first_row_of_thread; }

RandomOpsOfStep::RandomOpsOfStep()
    : before_(random_ops),
      restarts_before_(random_restarts),
      first_row_(first_row_of_thread),
      launches_(Context::current().launches) {
  random_ops_before = before_;
  random_ops = 0;
  if (before_ > 0 && launches_) RngStates::of_thread().write_first_op(before_);
}

RandomOpsOfStep::~RandomOpsOfStep() {
  if (!launches_) {
    random_ops_before = 0;
    random_ops = before_;
    random_restarts = restarts_before_;
    first_row_of_thread = first_row_;
    return;
  }
  random_ops += random_ops_before;
  random_ops_before = 0;
  try {
    if (before_ > 0) RngStates::of_thread().write_first_op(0);
  } catch (const Error&) {  // a device that failed; what is launched next reports it
  }
}

RandomOpsOfStep::Draws RandomOpsOfStep::draws() const {
  return {.ops = random_ops, .restarted = random_restarts != restarts_before_};
}

void RandomOpsOfStep::count(const Draws& draws) {
  if (draws.restarted) restart_random_ops();
  random_ops += draws.ops;
}

void check_outside_step(const char* what) {
  const char* why = Context::current().host_reads_forbidden;
  SINTER_CHECK(!why, state,
      cat(what, ": the host reads or writes memory inside ", why,
          "; a replay would not do it again"),
      "do it before the step or after it");
}

}  // namespace sinter
