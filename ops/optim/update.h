// What the ops that update parameters share: their operands, checks, cost, and the optimizers'
// formulas over a piece of memory. The ops are sgd_update and its like (one parameter by one
// optimizer), multi_tensor_update (a list of them) and weight_grad_update (parameters whose
// gradients it makes); the last two say by UpdateAttrs::optimizer whose formula is meant.
//
// Operands: groups of (param, grad, state1, state2, bf16_copy, skipped), see UpdateGroup; then of
// the step (StepState, losses, rng). Of the states those that the optimizer has. skipped is read
// only: Note [Steps of a parameter].
#pragma once

#include "core/parallel.h"
#include "ops/ops.h"
#include "ops/optim/optimizers.h"

namespace sinter {

enum UpdateOperand : size_t { kParam, kGrad, kState1, kState2, kLow, kSkipped, kGroupOperands };
inline constexpr size_t kStepOperands = 3;

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
  void finish(const OptimizerRow& row, const UpdateAttrs& attrs) const;
  const Tensor &state, &losses, &rng;
};

void check_step(const char* op, const UpdateEnd& end, const UpdateAttrs& attrs);
// FLOPs and bytes of the update alone; the step state and the tail's work are not counted.
Cost group_cost(const OptimizerRow& row, const UpdateGroup& group, const UpdateAttrs& attrs);
// The op of one parameter, by attrs.optimizer.
void reference_update(
    const UpdateGroup& group, const UpdateEnd& end, const UpdateAttrs& attrs, bool tail);

// Whose formula a call applies: that of the op, or what the attributes of a list say.
inline const OptimizerRow& optimizer_of(const Call& call) {
  const OptimizerRow* own = optimizer_of(call.op);
  return own ? *own : optimizer_row(call.as<UpdateAttrs>().optimizer);
}

// f(step_of): step_of(group) is the optimizer's formula with the numbers of this step for a group.
template <class V, class F>
void with_update(OptimizerKind kind, const UpdateAttrs& attrs, const StepState& state, F&& f) {
  with_optimizer(kind, [&]<class O>(O) {
    using Step = typename O::template Step<V>;
    f([&](const UpdateGroup& group) {
      if (!Step::kCountsSteps || !group.skipped.defined()) return Step(state, attrs);
      return Step(without_skipped(state, *group.skipped.data<double>(), attrs), attrs);
    });
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
