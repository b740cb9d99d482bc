// What the kernels of optimizer updates share, plain and fused: operands, the walk over a block's
// elements with the formulas of ops/optim/optimizers.h, and the tail of a step, which
// sums the row losses and advances the StepState. Every element has one owner, so the weights have
// the same bits as the CPU's.
#pragma once

#include <cstddef>

#include "core/device/memory.h"
#include "ops/optim/update.h"
#include "ops/rows/block_reduce.cuh"

namespace sinter::SINTER_KERNEL_NS {

inline constexpr int kUpdateThreads = 256;

// One parameter's operands; what is absent is not there.
template <class V> struct UpdateOperands {
  InOut<V> param;
  In<V> grad;
  InOut<V> state1, state2;
  Out<bf16> bf16_copy;
  In<double> skipped;
  int64_t n = 0;
  bool vec = false;  // 16 bytes at a time
};

// The step's scalars; with the tail also what it reads and writes.
inline constexpr int kStateWords = offsetof(StepState, ticket) / sizeof(int64_t);
static_assert(kStateWords <= 32);
struct UpdateStep {
  In<double> scalars;    // of the StepState
  InOut<int64_t> state;  // it, but for the ticket, as words
  InOut<int64_t> next;   // the state of the next step, until all blocks have read this one's
  InOut<uint32_t> ticket;
  In<float> losses;
  In<double> losses64;
  int64_t rows = 0;
  InOut<int64_t> rng;
};

struct TailShared {
  Shared<double, kLossRuns> losses;
};

// What a parameter's formula needs of the state. Not a copy of all of it: its ticket is in motion.
struct StepScalars {
  double lr, step_scale, root_scale, skipped;
};
// Nothing changes then. So the formulas are not asked, whose numbers would each be a choice, in a
// register, and some kernels have none left.
SINTER_DEVICE_FN bool is_idle(const UpdateStep& step) {
  return step.state[offsetof(StepState, idle) / sizeof(int64_t)] != 0;
}
template <class Step>
SINTER_DEVICE_FN StepScalars scalars_of(const In<double>& skipped, const UpdateStep& step) {
  const auto at = [&](size_t offset) { return step.scalars[offset / sizeof(double)]; };
  StepScalars s{at(offsetof(StepState, lr)), 1, 1, 0};
  if constexpr (Step::kCountsSteps) {
    s.step_scale = at(offsetof(StepState, step_scale));
    s.root_scale = at(offsetof(StepState, root_scale));
    if (skipped) s.skipped = skipped[0];
  }
  return s;
}
// REQUIRES: the step is not idle.
template <class Step>
SINTER_DEVICE_FN Step step_of(
    const StepScalars& s, const UpdateStep& step, const UpdateAttrs& attrs) {
  StepState state;
  state.lr = s.lr;
  state.step_scale = s.step_scale;
  state.root_scale = s.root_scale;
  if constexpr (Step::kCountsSteps) {
    if (s.skipped != 0) {
      state.step = step.state[offsetof(StepState, step) / sizeof(int64_t)];
      state = without_skipped(state, s.skipped, attrs);
    }
  }
  return Step(state, attrs);
}

template <class V, class Step>
SINTER_DEVICE_FN void update_element(
    const Step& step, const UpdateOperands<V>& t, int64_t i, V grad) {
  V s1 = t.state1 ? t.state1[i] : V(0), s2 = Step::kStates > 1 ? t.state2[i] : V(0);
  const V p = update_one(step, t.param[i], grad, s1, s2, bool(t.state1));
  t.param.put(i, p);
  if (t.state1) t.state1.put(i, s1);
  if (Step::kStates > 1) t.state2.put(i, s2);
  if (t.bf16_copy) t.bf16_copy.put(i, bf16(static_cast<float>(p)));
}

// Elements begin <= i < end, by all threads of the block; begin is a multiple of 4. Per element SGD
// reads 8 (momentum 12) and writes 4 (8) bytes in f32, Adam 16 and 12; the bf16 copy is 2 more.
template <class V, class Step>
SINTER_DEVICE_FN void update_elements(
    const Step& step, const UpdateOperands<V>& t, int64_t begin, int64_t end) {
  constexpr int N = kVec<V>;
  const bool has_state = bool(t.state1);
  const int64_t dense = t.vec ? end - (end - begin) % N : begin;
  for (int64_t i = begin + thread_x() * N; i < dense; i += threads_per_block() * N) {
    Vec<V, N> p = t.param.template load_vec<N>(i), s1{}, s2{};
    const Vec<V, N> g = t.grad.template load_vec<N>(i);
    if (has_state) s1 = t.state1.template load_vec<N>(i);
    if (Step::kStates > 1) s2 = t.state2.template load_vec<N>(i);
    SINTER_UNROLL
    for (int k = 0; k < N; ++k) p[k] = update_one(step, p[k], g[k], s1[k], s2[k], has_state);
    t.param.store_vec(i, p);
    if (has_state) t.state1.store_vec(i, s1);
    if (Step::kStates > 1) t.state2.store_vec(i, s2);
    if (t.bf16_copy) {
      Vec<bf16, N> bf16_copy;
      SINTER_UNROLL
      for (int k = 0; k < N; ++k) bf16_copy[k] = bf16(static_cast<float>(p[k]));
      t.bf16_copy.store_vec(i, bf16_copy);
    }
  }
  SINTER_NO_UNROLL
  for (int64_t i = dense + thread_x(); i < end; i += threads_per_block())
    update_element(step, t, i, t.grad[i]);
}

// The tail, if attrs say so, in two parts. The grid's last block makes the state of the next step
// while the others work, as all that it needs was there before the kernel; but these still read
// the present one, so the last block to arrive, of all, puts it into its place.
SINTER_DEVICE_FN bool makes_next_state(const UpdateAttrs& attrs) {
  return attrs.tail && block_x() == grid_x() - 1;
}
// By that block: all threads sum runs of the losses, the first warp joins them (kLossRuns). Needs
// shared memory for a TailShared.
template <class Step>
SINTER_DEVICE_FN void make_next_state(const UpdateStep& step, const UpdateAttrs& attrs) {
  auto& sums = shared<TailShared>().losses;
  SINTER_NO_UNROLL
  for (int r = thread_x(); r < kLossRuns; r += threads_per_block()) {
    double run = 0;
    SINTER_NO_UNROLL
    for (int64_t i = r; i < step.rows; i += kLossRuns)
      run += step.losses ? static_cast<double>(step.losses[i]) : step.losses64[i];
    sums.put(r, run);
  }
  block_sync();
  if (warp() != 0) return;
  double sum = sums[lane()];
  SINTER_NO_UNROLL
  for (int r = lane() + kLossLanes; r < kLossRuns; r += kLossLanes) sum += sums[r];
  SINTER_NO_UNROLL
  for (int half = kLossLanes / 2; half > 0; half /= 2) sum += shfl_xor(sum, half);
  if (lane() < kStateWords) step.next.put(lane(), step.state[lane()]);
  warp_sync();
  if (lane() != 0) return;
  advance(*reinterpret_cast<StepState*>(step.next.data()), sum, step.rows,
      Step::kCountsSteps ? attrs.beta1 : 0, Step::kCountsSteps ? attrs.beta2 : 0);
}
template <class Step>
SINTER_DEVICE_FN void finish_step(const UpdateStep& step, const UpdateAttrs& attrs) {
  if (!attrs.tail) return;
  if (makes_next_state(attrs)) make_next_state<Step>(step, attrs);
  if (!ticket(step.ticket, static_cast<uint32_t>(grid_x()))) return;
  if (thread_x() < kStateWords) step.state.put(thread_x(), step.next[thread_x()]);
  if (step.rng && thread_x() == 0) {
    step.rng.put(1, step.rng[1] + 1);
    step.rng.put(2, 0);
  }
}

// Elements per block for `total` of them: small enough that the machine is full, at most 64 Ki.
inline int64_t update_chunk(int64_t total) {
  return std::clamp<int64_t>(blocks_for(total, 264 * 1024) * 1024, 1024, 65536);
}

template <class V> UpdateOperands<V> update_operands(const UpdateGroup& g) {
  return {in_out<V>(g.param), in<V>(g.grad), in_out<V>(g.state1), in_out<V>(g.state2),
      out<bf16>(g.bf16_copy), in<double>(g.skipped), g.param.numel(),
      is_aligned(g.param) && is_aligned(g.grad) && is_aligned(g.state1) && is_aligned(g.state2) &&
          is_aligned(g.bf16_copy)};
}
inline UpdateStep update_step(const UpdateEnd& end) {
  const auto& [state, losses, rng] = end;
  auto* s = static_cast<StepState*>(state.raw());
  UpdateStep step{.scalars = {reinterpret_cast<double*>(s), kStateWords},
      .state = {reinterpret_cast<int64_t*>(s), kStateWords},
      .next = {static_cast<int64_t*>(scratch(kDevice, sizeof(StepState)).memory), kStateWords},
      .ticket = {&s->ticket, 1}};
  if (losses.defined()) {
    step.rows = losses.numel();
    if (losses.dtype() == DType::f64) {
      step.losses64 = in<double>(losses);
    } else {
      step.losses = in<float>(losses);
    }
  }
  if (rng.defined()) step.rng = in_out<int64_t>(rng);
  return step;
}

}  // namespace sinter::SINTER_KERNEL_NS
