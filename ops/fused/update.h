// What the fused updates share: groups of (param, its state, low), checks, cost, and the
// optimizers' formulas chosen by UpdateAttrs.
#pragma once

#include "ops/fused/fused.h"
#include "ops/update_op.h"

namespace sinter {

inline SgdAttrs sgd_attrs(const UpdateAttrs& a) {
  return {a.momentum, a.weight_decay, a.nesterov, a.tail};
}
inline AdamAttrs adam_attrs(const UpdateAttrs& a) {
  return {a.beta1, a.beta2, a.eps, a.weight_decay, a.decoupled, a.tail};
}

// One parameter's operands; grad is undefined where the op makes it.
struct UpdateGroup {
  Tensor param, grad, state1, state2, low;
};
// The operands that end every update op: in[at], in[at + 1], in[at + 2].
struct UpdateEnd {
  UpdateEnd(Operands in, size_t at) : state(in[at]), losses(in[at + 1]), rng(in[at + 2]) {}
  const StepState& step() const { return *static_cast<const StepState*>(state.raw()); }
  // The tail of a step, if attrs say so.
  void finish(const UpdateAttrs& attrs) const {
    if (attrs.tail)
      advance_step_state(*static_cast<StepState*>(state.raw()), losses, rng,
          attrs.adam ? attrs.beta1 : 0, attrs.adam ? attrs.beta2 : 0);
  }
  const Tensor &state, &losses, &rng;
};

void check_group(
    const char* op, const UpdateGroup& group, const UpdateEnd& end, const UpdateAttrs& attrs);
// FLOPs and bytes of the update alone.
Cost group_cost(const UpdateGroup& group, const UpdateAttrs& attrs);
// The plain op.
void reference_update(
    const UpdateGroup& group, const UpdateEnd& end, const UpdateAttrs& attrs, bool tail);

// f(piece), piece(p, g, state1, state2, low, n): p -= .. over a piece; state1, state2 and low may
// be null.
template <class V, class F>
void with_update(const UpdateAttrs& attrs, const StepState& state, F&& f) {
  if (attrs.adam) {
    f([step = AdamStep<V>(state, adam_attrs(attrs))](V* p, const V* g, V* m, V* v, bf16* low,
          int64_t n) { adam_piece(step, p, g, m, v, low, n); });
  } else {
    f([step = SgdStep<V>(state, sgd_attrs(attrs))](V* p, const V* g, V* buffer, V*, bf16* low,
          int64_t n) { sgd_piece(step, p, g, buffer, low, n); });
  }
}

// The elements of a group from one on; null where the tensor is absent.
template <class V>
struct UpdatePointers {
  explicit UpdatePointers(const UpdateGroup& g)
      : p(data(g.param)),
        state1(data(g.state1)),
        state2(data(g.state2)),
        low(g.low.defined() ? g.low.data<bf16>() : nullptr) {}
  static V* data(const Tensor& t) { return t.defined() ? t.data<V>() : nullptr; }
  // piece over n elements from `at`, with their gradient.
  template <class Piece>
  void apply(const Piece& piece, int64_t at, const V* grad, int64_t n) const {
    piece(p + at, grad, state1 ? state1 + at : nullptr, state2 ? state2 + at : nullptr,
        low ? low + at : nullptr, n);
  }
  V *p, *state1, *state2;
  bf16* low;
};

// Test operands of a group: f64, the second state positive.
UpdateGroup sample_group(const Shape& shape, const UpdateAttrs& attrs, bool low, uint64_t seed);
Tensor sample_step_state(const UpdateAttrs& attrs);

}  // namespace sinter
