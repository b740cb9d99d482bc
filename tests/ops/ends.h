// Attributes of product_chain and pointwise_chain by the names of their programs (Note [Names are
// labels], ops/fused/fused.h), and the operands that these ask for.
#pragma once

#include "ops/fused/activation.h"

namespace sinter::ends {

// x, W, b or absent.
inline ProductChainAttrs linear_act(Act act, bool keep = false, DType out = DType::f32) {
  return {.out = out, .program = act_program(act, keep)};
}
// dy, W, none, saved.
inline ProductChainAttrs input_grad_act(Act act, DType out = DType::f32) {
  return {.product = ProductKind::matmul, .out = out, .program = act_grad_program(act)};
}
// dy, W, none, g, u.
inline ProductChainAttrs gated_linear_backward(
    Act act = Act::gelu_tanh, bool merged = false, DType out = DType::f32) {
  return {.product = ProductKind::matmul,
      .out = out,
      .merged = merged,
      .program = gate_grad_program(act)};
}
// x, W, b or absent.
inline ProductChainAttrs conv_act(const Conv2dAttrs& window, Act act, bool keep = false) {
  return {.product = ProductKind::conv2d,
      .stride_h = window.stride_h,
      .stride_w = window.stride_w,
      .pad_h = window.pad_h,
      .pad_w = window.pad_w,
      .program = act_program(act, keep)};
}
// x, W, b or absent, the norm's weight, bias, mean and variance.
inline ProductChainAttrs conv_norm_act(const Conv2dAttrs& window, Act act, double eps) {
  ProductChainAttrs attrs = conv_act(window, act);
  attrs.normed = true;
  attrs.eps = eps;
  return attrs;
}
// g, u.   dh, g, u.
inline ChainAttrs glu(Act act = Act::gelu_tanh) { return {gate_program(act)}; }
inline ChainAttrs glu_backward(Act act = Act::gelu_tanh, bool merged = false) {
  return {gate_grad_program(act), merged};
}

}  // namespace sinter::ends
