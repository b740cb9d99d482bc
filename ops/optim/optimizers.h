// Every optimizer, as in torch.optim: one struct each. From a struct and its row in
// SINTER_OPTIMIZERS (ops/ops.h) follow the op that updates one parameter, with its checks and its
// cost; the kernels that update many parameters, and those inside weight_grad_update, on every
// device; the class nn::Lion, and the names of its states in checkpoints; the word of --optimizer.
//
// A struct's data members are what a user may set: lr, the rate of the first step, and fields of
// UpdateAttrs by their names. It gives
//   SINTER_OPTIMIZER   its word, and its data members
//   formula            in a line, for readers
//   states             of each parameter, by their names in PyTorch, and their degree: 1 for an
//                      average of gradients, 2 for one of their squares
//   has_sign           can the smallest change of a gradient turn an update round?
//   counts_steps       does it ask for the bias corrections, and so how many steps this parameter
//                      has had? Note [Steps of a parameter]
//   flops(attrs)       for each element: add, multiply, compare, divide and root count 1
//   step(n, p, g, ..)  the formula, of n, the numbers of a step, the parameter, its gradient and
//                      its states: changes the states and gives the next p. An optimizer that
//                      without momentum has no state gives step(n, p, g) as well.
// The update ops and all fused ones call these very functions, with + - * / and core/math.h alone,
// so their weights agree to the bit.
#pragma once

#include <span>

#include "core/dtype.h"
#include "core/math.h"
#include "ops/ops.h"

namespace sinter {

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

struct OptimizerState {
  const char* name;
  int degree;
};

// The numbers of a step, in the type of the parameters: those that the user has set, and what
// StepState and attributes make of them.
template <class V> struct StepNumbers {
  V lr, momentum, beta1, rest1, beta2, rest2, alpha, rest_alpha, eps;
  V l2, shrink;             // weight decay: through the gradient, or as a factor of the weight
  V always_shrink;          // the factor, for who knows no other way
  V root_scale, scaled_lr;  // by Adam's bias corrections
  bool nesterov;

  SINTER_FN StepNumbers(const StepState& state, const UpdateAttrs& attrs)
      : lr(V(state.lr)),
        momentum(V(attrs.momentum)),
        beta1(V(attrs.beta1)),
        rest1(V(1 - attrs.beta1)),
        beta2(V(attrs.beta2)),
        rest2(V(1 - attrs.beta2)),
        alpha(V(attrs.alpha)),
        rest_alpha(V(1 - attrs.alpha)),
        eps(V(attrs.eps)),
        l2(V(attrs.decoupled ? 0 : attrs.weight_decay)),
        shrink(V(attrs.decoupled ? 1 - state.lr * attrs.weight_decay : 1)),
        always_shrink(V(1 - state.lr * attrs.weight_decay)),
        root_scale(V(state.root_scale)),
        scaled_lr(V(state.lr * state.step_scale)),
        nesterov(attrs.nesterov) {
    if (state.idle == 0) return;
    // No row counts: every formula then gives what it was given.
    lr = scaled_lr = l2 = rest1 = rest2 = rest_alpha = V(0);
    momentum = beta1 = beta2 = alpha = shrink = always_shrink = V(1);
  }
};

// The formula of the optimizer O with the numbers of a step: step(p, g, states..).
template <class O, class V> struct StepOf : StepNumbers<V> {
  static constexpr int kStates = int(std::size(O::states));
  static constexpr bool kCountsSteps = O::counts_steps;
  using StepNumbers<V>::StepNumbers;
  template <class... State>
    requires requires(const StepOf& n, V v, State&... states) { O::step(n, v, v, states...); }
  SINTER_FN V operator()(V p, V g, State&... states) const {
    return O::step(*this, p, g, states...);
  }
};

namespace optim {

// The word of a struct, and its data members.
#define SINTER_OPTIMIZER(Struct, text, ...)                   \
  static constexpr const char class_name[] = #Struct;         \
  static constexpr const char name[] = text;                  \
  static constexpr const char update_name[] = text "_update"; \
  template <class V> using Step = StepOf<Struct, V>;          \
  SINTER_FIELDS(Struct, __VA_ARGS__)

struct Sgd {
  double lr = 0.1, momentum = 0.9, weight_decay = 0;
  bool nesterov = false;
  SINTER_OPTIMIZER(Sgd, "sgd", lr, momentum, weight_decay, nesterov)
  static constexpr Formula formula =
      "buffer = momentum buffer + g, p -= lr buffer; without momentum p -= lr g";
  static constexpr OptimizerState states[] = {{"momentum_buffer", 1}};
  static constexpr bool has_sign = false, counts_steps = false;
  static constexpr int64_t flops(const UpdateAttrs& a) {
    return 2 + (a.weight_decay != 0 ? 2 : 0) + (a.momentum != 0 ? 2 : 0) +
           (a.momentum != 0 && a.nesterov ? 2 : 0);
  }

  template <class V> static SINTER_FN V step(const StepNumbers<V>& n, V p, V g) {
    return p - n.lr * (g + n.l2 * p);
  }
  template <class V> static SINTER_FN V step(const StepNumbers<V>& n, V p, V g, V& buffer) {
    g = g + n.l2 * p;
    buffer = n.momentum * buffer + g;
    return p - n.lr * (n.nesterov ? g + n.momentum * buffer : buffer);
  }
};

// Kingma and Ba, arXiv 1412.6980. decoupled: AdamW.
struct Adam {
  double lr = 0.001, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
  bool decoupled = false;
  SINTER_OPTIMIZER(Adam, "adam", lr, beta1, beta2, eps, weight_decay, decoupled)
  static constexpr Formula formula =
      "m += (1 - b1)(g - m), v = b2 v + (1 - b2) g^2, p -= lr m' / (sqrt(v') + eps), m' = m / (1 - "
      "b1^t), v' = v / (1 - b2^t)";
  static constexpr OptimizerState states[] = {{"exp_avg", 1}, {"exp_avg_sq", 2}};
  static constexpr bool has_sign = false, counts_steps = true;
  static constexpr int64_t flops(const UpdateAttrs& a) {
    return 13 + (a.weight_decay == 0 ? 0 : a.decoupled ? 1 : 2);
  }

  template <class V> static SINTER_FN V step(const StepNumbers<V>& n, V p, V g, V& m, V& v) {
    g = g + n.l2 * p;
    p = p * n.shrink;
    m = m + n.rest1 * (g - m);
    v = n.beta2 * v + n.rest2 * g * g;
    return p - n.scaled_lr * m / (math::sqrt(v) * n.root_scale + n.eps);
  }
};

// Adam whose weight decay acts on the weight, not through the gradient (Loshchilov and Hutter,
// arXiv 1711.05101). Other usual numbers for Adam's formula and ops.
struct AdamW {
  double lr = 0.001, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0.01;
  bool decoupled = true;
  SINTER_OPTIMIZER(AdamW, "adamw", lr, beta1, beta2, eps, weight_decay, decoupled)
};

// PyTorch's lr is 0.01. But the first step, from an average of 0, moves each weight by
// lr / sqrt(1 - alpha), 10 lr, whatever its gradient.
struct RMSprop {
  double lr = 0.001, alpha = 0.99, eps = 1e-8, weight_decay = 0;
  SINTER_OPTIMIZER(RMSprop, "rmsprop", lr, alpha, eps, weight_decay)
  static constexpr Formula formula = "v = alpha v + (1 - alpha) g^2, p -= lr g / (sqrt(v) + eps)";
  static constexpr OptimizerState states[] = {{"square_avg", 2}};
  static constexpr bool has_sign = false, counts_steps = false;
  static constexpr int64_t flops(const UpdateAttrs& a) { return 9 + (a.weight_decay != 0 ? 2 : 0); }

  template <class V> static SINTER_FN V step(const StepNumbers<V>& n, V p, V g, V& v) {
    g = g + n.l2 * p;
    v = n.alpha * v + n.rest_alpha * g * g;
    return p - n.lr * g / (math::sqrt(v) + n.eps);
  }
};

// Chen et al., arXiv 2302.06675: the sign of a momentum, so each weight moves by lr. Weight decay
// acts on the weight, as in AdamW.
struct Lion {
  double lr = 0.0001, beta1 = 0.9, beta2 = 0.99, weight_decay = 0;
  SINTER_OPTIMIZER(Lion, "lion", lr, beta1, beta2, weight_decay)
  static constexpr Formula formula =
      "p -= lr (sign(b1 m + (1 - b1) g) + decay p), m = b2 m + (1 - b2) g";
  static constexpr OptimizerState states[] = {{"exp_avg", 1}};
  static constexpr bool has_sign = true, counts_steps = false;
  static constexpr int64_t flops(const UpdateAttrs& a) {
    return 10 + (a.weight_decay != 0 ? 1 : 0);
  }

  template <class V> static SINTER_FN V step(const StepNumbers<V>& n, V p, V g, V& m) {
    const V c = n.beta1 * m + n.rest1 * g;
    m = n.beta2 * m + n.rest2 * g;
    const V sign = c > V(0) ? V(1) : c < V(0) ? V(-1) : c;  // 0 of 0, and NaN of NaN
    return p * n.always_shrink - n.lr * sign;
  }
};

}  // namespace optim

#define SINTER_VARIANT(Struct, Of) \
  constexpr OptimizerKind kind_of(const optim::Struct&) { return OptimizerKind::Of; }
#define SINTER_ROW(op, signature, Struct) SINTER_VARIANT(Struct, Struct)
SINTER_OPTIMIZERS(SINTER_ROW, SINTER_VARIANT)
#undef SINTER_ROW
#undef SINTER_VARIANT

// f(Lion()) for OptimizerKind::Lion: the struct says which it is by its type.
template <class F> void with_optimizer(OptimizerKind kind, F&& f) {
  switch (kind) {
#define SINTER_CASE(op, signature, Struct) \
  case OptimizerKind::Struct: return f(optim::Struct());
    SINTER_OPTIMIZERS(SINTER_CASE, SINTER_NOTHING)
#undef SINTER_CASE
  }
}

// What the framework asks of a struct without knowing it.
struct OptimizerRow {
  OptimizerKind kind;
  const char* name;
  const OpDef* op;  // that updates one parameter
  std::span<const OptimizerState> states;
  bool may_lack_states;  // without momentum
  bool counts_steps, has_sign;
  int64_t (*flops)(const UpdateAttrs& attrs);

  size_t used_states(const UpdateAttrs& attrs) const {
    return may_lack_states && attrs.momentum == 0 ? 0 : states.size();
  }
};
const OptimizerRow& optimizer_row(OptimizerKind kind);
// That of an op that updates one parameter; nullptr for any other op.
const OptimizerRow* optimizer_of(const OpDef& op);

template <class Step, class V>
concept MayLackStates = requires(const Step& step, V v) { step(v, v); };

// The next p. What the optimizer has no state for may be anything; has_state: does one that may
// lack its state have it?
template <class Step, class V>
SINTER_FN V update_one(const Step& step, V p, V g, V& state1, V& state2, bool has_state) {
  if constexpr (Step::kStates == 2) {
    return step(p, g, state1, state2);
  } else if constexpr (MayLackStates<Step, V>) {
    return has_state ? step(p, g, state1) : step(p, g);
  } else {
    return step(p, g, state1);
  }
}

// p[i] = step(p[i], g[i], ..) over a piece of memory; states that the step has none of, and
// bf16_copy, a bf16 copy of p, may be null. The step is a copy, so that no store can change it.
template <class V, class Step>
inline void update_piece(const Step step, V* __restrict p, const V* __restrict g,
    V* __restrict state1, V* __restrict state2, bf16* __restrict bf16_copy, int64_t n) {
  if constexpr (Step::kStates == 2) {
    for (int64_t i = 0; i < n; ++i) p[i] = step(p[i], g[i], state1[i], state2[i]);
  } else if (state1) {
    for (int64_t i = 0; i < n; ++i) p[i] = step(p[i], g[i], state1[i]);
  } else if constexpr (MayLackStates<Step, V>) {
    for (int64_t i = 0; i < n; ++i) p[i] = step(p[i], g[i]);
  }
  if (bf16_copy) {
    for (int64_t i = 0; i < n; ++i) bf16_copy[i] = bf16(float(p[i]));
  }
}

}  // namespace sinter
