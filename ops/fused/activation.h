// The activations that fused ops apply: from an Act to its struct in ops/pointwise/pointwise.h and
// to the programs that it stands in (ops/pointwise/chain.h).
#pragma once

#include "ops/fused/fused.h"
#include "ops/fused/reference.h"
#include "ops/pointwise/pointwise.h"

namespace sinter {

// Act::none beside the structs of ops/pointwise/pointwise.h.
struct Identity : pointwise::Unary<pointwise::Facts{
                      .saves = pointwise::Saves::inputs, .flops = 0, .backward_flops = 0}> {
  SINTER_FIELDS(Identity)
  template <class T> SINTER_FN T forward(T x) const { return x; }
  template <class T> SINTER_FN T grad(T dy, T) const { return dy; }
};

#define SINTER_ACT(function, ...) Act::function,
// All but none.
inline constexpr Act kActivations[] = {SINTER_ACTIVATIONS(SINTER_ACT, SINTER_NOTHING)};
#undef SINTER_ACT

// f(struct of act), in kernels too: f is of the caller's side.
SINTER_ANY_SIDE
template <class F> SINTER_FN decltype(auto) visit_act(Act act, F&& f) {
#define SINTER_CASE(function, Struct, ...) \
  case Act::function: return f(pointwise::Struct{});
  switch (act) {
    SINTER_ACTIVATIONS(SINTER_CASE, SINTER_NOTHING)
    case Act::none: break;
  }
#undef SINTER_CASE
  return f(Identity{});
}
// What its backward reads: its result or its input.
inline pointwise::Saves act_saves(Act act) {
  return visit_act(act, [](auto op) { return op.saves; });
}

// z -> act(z), and z with `keep`.   dy, what act saved -> dy act'.
ChainProgram act_program(Act act, bool keep = false);
ChainProgram act_grad_program(Act act);
// g, u -> act(g) u.   dh, g, u -> dg = (dh u) act'(g), du = dh act(g).
ChainProgram gate_program(Act act);
ChainProgram gate_grad_program(Act act);
// The activation in a program, forward or backward; none if there is none.
Act act_of(const ChainProgram& program);
// In plain ops: dy act' of what act saved.
inline Tensor act_backward_reference(Act act, const Tensor& dy, const Tensor& saved) {
  return chain_results(act_grad_program(act), {dy, saved})[0];
}

}  // namespace sinter
