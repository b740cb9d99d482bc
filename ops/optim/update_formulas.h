// The optimizers' formulas for one element, as in torch.optim.SGD, Adam and AdamW. The update ops
// and every fused op that applies an update call these very functions, so their weights agree to
// the bit. A step is a value: what the StepState and the attributes give.
#pragma once

#include "core/dtype.h"
#include "core/math.h"
#include "ops/ops.h"

namespace sinter {

// g += decay p;  buffer = momentum buffer + g;  p -= lr (nesterov: g + momentum buffer, else
// buffer; without momentum: g)
template <class V> struct SgdStep {
  static constexpr bool kAdam = false;
  V lr, momentum, decay;
  bool nesterov;

  SINTER_FN SgdStep(const StepState& state, const UpdateAttrs& attrs)
      : lr(V(state.lr)),
        momentum(V(attrs.momentum)),
        decay(V(attrs.weight_decay)),
        nesterov(attrs.nesterov) {}

  SINTER_FN V operator()(V p, V g) const { return p - lr * (g + decay * p); }
  SINTER_FN V operator()(V p, V g, V& buffer) const {
    g = g + decay * p;
    buffer = momentum * buffer + g;
    return p - lr * (nesterov ? g + momentum * buffer : buffer);
  }
};

// Note [Steps of a parameter]
//   Adam divides its averages, which begin at 0, by 1 - beta^t, and t counts the updates of *this*
//   parameter, as in PyTorch: one that was frozen or unused for ten steps begins at 1 afterwards.
//   A counter that each update advances would be one more write of every kernel, and one that other
//   blocks of the launch read. So the optimizer counts what is rare, the steps at which a parameter
//   was *skipped*, in device memory, by a launch of its own in those steps (Optimizer::step). Then
//
//       t = steps done + 1 - skipped
//
//   and where nothing was skipped the corrections are those that StepState holds for all.

SINTER_FN double power(double beta, int64_t n) {
  double result = 1;
  for (; n > 0; n /= 2, beta *= beta) {
    if (n % 2 == 1) result *= beta;
  }
  return result;
}
// The state for a parameter for which that many steps do not count. Whatever memory holds, t is at
// least 1.
SINTER_FN StepState without_skipped(StepState state, double skipped, const UpdateAttrs& attrs) {
  if (skipped == 0) return state;
  const double left = static_cast<double>(state.step) + 1 - skipped;
  const int64_t t = left >= 1 && left < 0x1p62 ? static_cast<int64_t>(left) : 1;
  correct_bias(state, power(attrs.beta1, t), power(attrs.beta2, t));
  return state;
}

// g += l2 p (Adam) or p *= 1 - lr decay (AdamW);  m += (1 - beta1) (g - m);  v = beta2 v + (1 -
// beta2) g g; p -= lr / bc1 * m / (sqrt(v) / sqrt(bc2) + eps), bc = 1 - beta^t
template <class V> struct AdamStep {
  static constexpr bool kAdam = true;
  V shrink, l2, rest1, beta2, rest2, root_scale, eps, step;

  SINTER_FN AdamStep(const StepState& state, const UpdateAttrs& attrs)
      : shrink(V(attrs.decoupled ? 1 - state.lr * attrs.weight_decay : 1)),
        l2(V(attrs.decoupled ? 0 : attrs.weight_decay)),
        rest1(V(1 - attrs.beta1)),
        beta2(V(attrs.beta2)),
        rest2(V(1 - attrs.beta2)),
        root_scale(V(state.root_scale)),
        eps(V(attrs.eps)),
        step(V(state.lr * state.step_scale)) {}

  SINTER_FN V operator()(V p, V g, V& m, V& v) const {
    g = g + l2 * p;
    p = p * shrink;
    m = m + rest1 * (g - m);
    v = beta2 * v + rest2 * g * g;
    return p - step * m / (math::sqrt(v) * root_scale + eps);
  }
};

// FLOPs per parameter: sgd 2, weight decay 2 more, momentum 2 more, nesterov 2 more; adam 13,
// weight decay 2 more (decoupled 1).
constexpr int64_t update_flops(const UpdateAttrs& a, bool adam) {
  if (adam) return 13 + (a.weight_decay == 0 ? 0 : a.decoupled ? 1 : 2);
  return 2 + (a.weight_decay != 0 ? 2 : 0) + (a.momentum != 0 ? 2 : 0) +
         (a.momentum != 0 && a.nesterov ? 2 : 0);
}

// p[i] = step(p[i], g[i], ..) over a piece of memory; states that the step has none of, and
// bf16_copy, a bf16 copy of p, may be null. The step is a copy, so that no store can change it.
template <class V, class Step>
inline void update_piece(const Step step, V* __restrict p, const V* __restrict g,
    V* __restrict state1, V* __restrict state2, bf16* __restrict bf16_copy, int64_t n) {
  if constexpr (Step::kAdam) {
    for (int64_t i = 0; i < n; ++i) p[i] = step(p[i], g[i], state1[i], state2[i]);
  } else if (state1) {
    for (int64_t i = 0; i < n; ++i) p[i] = step(p[i], g[i], state1[i]);
  } else {
    for (int64_t i = 0; i < n; ++i) p[i] = step(p[i], g[i]);
  }
  if (bf16_copy) {
    for (int64_t i = 0; i < n; ++i) bf16_copy[i] = bf16(float(p[i]));
  }
}

}  // namespace sinter
