// The activations that fused ops apply: from an Act to its struct in ops/pointwise.h, and the same
// meaning in plain ops for references.
#pragma once

#include "ops/fused/fused.h"
#include "ops/fused/reference.h"
#include "ops/pointwise.h"
#include "ops/relu_mask.h"

namespace sinter {

// Act::none beside the structs of ops/pointwise.h.
struct Identity : pointwise::Unary {
  static constexpr pointwise::Saves saves = pointwise::Saves::inputs;
  static constexpr int flops = 0, backward_flops = 0;
  SINTER_FIELDS(Identity)
  template <class T>
  SINTER_FN T forward(T x) const {
    return x;
  }
  template <class T>
  SINTER_FN T grad(T dy, T) const {
    return dy;
  }
};

// All but none.
inline constexpr std::array kActivations{
    Act::relu, Act::gelu, Act::gelu_tanh, Act::silu, Act::sigmoid, Act::tanh};

// f(struct of act)
template <class F>
decltype(auto) visit_act(Act act, F&& f) {
  switch (act) {
    case Act::none: return f(Identity{});
    case Act::relu: return f(pointwise::Relu{});
    case Act::gelu: return f(pointwise::Gelu{});
    case Act::gelu_tanh: return f(pointwise::GeluTanh{});
    case Act::silu: return f(pointwise::Silu{});
    case Act::sigmoid: return f(pointwise::Sigmoid{});
    case Act::tanh: break;
  }
  return f(pointwise::Tanh{});
}
inline int act_flops(Act act) {
  return visit_act(act, [](auto op) { return op.flops; });
}
inline int act_backward_flops(Act act) {
  return visit_act(act, [](auto op) { return op.backward_flops; });
}

// y[i] = act(z[i]); z and y may be of different types, or one array.
template <class Op, class Z, class Y>
inline void act_row(const Op& op, const Z* z, Y* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = op.forward(compute_t<Y>(z[i]));
}

// In plain ops: act(z) with, for relu, its mask if asked for; dy * act'(saved); dy * act'(z).
Tensors act_reference(Act act, const Tensor& z, bool mask = false);
Tensor act_backward_reference(Act act, const Tensor& dy, const Tensor& saved);
Tensor act_backward_of_input(Act act, const Tensor& dy, const Tensor& z);

}  // namespace sinter
