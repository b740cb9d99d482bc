// What the ops that update parameters share: their operands, checks, cost, and the optimizers'
// formulas over a piece of memory. The ops are sgd_update and adam_update (one parameter),
// multi_tensor_update (a list of them) and weight_grad_update (parameters whose gradients it
// makes).
//
// Operands: groups of (param, grad, state1, state2, bf16_copy, skipped), then of the step
// (StepState, losses, rng). SGD has at most a momentum buffer, state1; Adam has both states, the
// averages of gradients and of their squares. So the second state says which formula is meant.
// skipped, f64[1], is read only: Note [Steps of a parameter].
#pragma once

#include "core/parallel.h"
#include "ops/ops.h"
#include "ops/optim/update_formulas.h"

namespace sinter {

enum UpdateOperand : size_t { kParam, kGrad, kState1, kState2, kLow, kSkipped, kGroupOperands };
inline constexpr size_t kStepOperands = 3;

// One parameter's operands; grad is undefined where the op makes it.
struct UpdateGroup {
  Tensor param, grad, state1, state2, bf16_copy, skipped;
  bool adam() const { return state2.defined(); }
};

constexpr size_t update_groups(size_t operands) {
  return operands < kStepOperands ? 0 : (operands - kStepOperands) / kGroupOperands;
}
inline UpdateGroup update_group(Operands in, size_t i) {
  const Operands at = in.subspan(i * kGroupOperands, kGroupOperands);
  return {at[kParam], at[kGrad], at[kState1], at[kState2], at[kLow], at[kSkipped]};
}

// The operands that end every update op.
struct UpdateEnd {
  explicit UpdateEnd(Operands in)
      : state(in[in.size() - 3]), losses(in[in.size() - 2]), rng(in[in.size() - 1]) {}
  StepState& step() const { return *static_cast<StepState*>(state.raw()); }
  // On the CPU, the tail of a step, if attrs say so.
  void finish(const UpdateAttrs& attrs, bool adam) const;
  const Tensor &state, &losses, &rng;
};

void check_step(const char* op, const UpdateEnd& end, const UpdateAttrs& attrs);
// FLOPs and bytes of the update alone; the step state and the tail's work are not counted.
Cost group_cost(const UpdateGroup& group, const UpdateAttrs& attrs);
// The plain op.
void reference_update(
    const UpdateGroup& group, const UpdateEnd& end, const UpdateAttrs& attrs, bool tail);

// f(step_of): step_of(group) is the optimizer's formula with the numbers of this step for a group.
template <class V, class F>
void with_update(bool adam, const UpdateAttrs& attrs, const StepState& state, F&& f) {
  if (!adam) return f([&](const UpdateGroup&) { return SgdStep<V>(state, attrs); });
  f([&](const UpdateGroup& group) {
    const double skipped = group.skipped.defined() ? *group.skipped.data<double>() : 0;
    return AdamStep<V>(without_skipped(state, skipped, attrs), attrs);
  });
}

// The elements of a group from one on; null where the tensor is absent.
template <class V> struct UpdatePointers {
  explicit UpdatePointers(const UpdateGroup& g)
      : p(data(g.param)),
        state1(data(g.state1)),
        state2(data(g.state2)),
        bf16_copy(g.bf16_copy.defined() ? g.bf16_copy.data<bf16>() : nullptr) {}
  static V* data(const Tensor& t) { return t.defined() ? t.data<V>() : nullptr; }
  // The step for n elements from `at` on, with their gradient.
  template <class Step> void apply(const Step& step, int64_t at, const V* grad, int64_t n) const {
    update_piece(step, p + at, grad, state1 ? state1 + at : nullptr, state2 ? state2 + at : nullptr,
        bf16_copy ? bf16_copy + at : nullptr, n);
  }
  V *p, *state1, *state2;
  bf16* bf16_copy;
};

}  // namespace sinter
