// What sgd_update and adam_update share: operand checks, cost, the walk over pieces on all threads,
// the tail of a step, test samples. Operands: param, grad, the moments, low, state, losses, rng.
// The tail (the last update of a step) advances the StepState.
#pragma once

#include <array>

#include "core/parallel.h"
#include "ops/structured.h"
#include "ops/update_formulas.h"

namespace sinter {

struct UpdateLayout {
  const char* op;
  int moments;  // SGD's momentum buffer; Adam's two averages
  bool optional_moments = false;
};

void check_update(const UpdateLayout& layout, Operands in, bool tail);
// Parameters, gradients and moments; the step state and the tail's work are not counted.
Cost update_cost(const UpdateLayout& layout, Operands in, int64_t flops_per_parameter);
const StepState& update_state(const UpdateLayout& layout, Operands in);
void finish_step(const UpdateLayout& layout, const Call& call, double beta1, double beta2);
std::vector<Sample> update_samples(
    const UpdateLayout& layout, Attrs (*attrs)(bool moments, bool tail));

// All operands but grad and losses are changed in place.
constexpr uint32_t update_writes(const UpdateLayout& layout) {
  return ((1u << (6 + layout.moments)) - 1) & ~(1u << 1) & ~(1u << (4 + layout.moments));
}

// make(V{}) gives piece(p, g, moments, low, n) for the parameter's type V, called on disjoint
// pieces.
template <class Make>
void run_update(const UpdateLayout& layout, const Call& call, Make&& make) {
  const Tensor &param = call.in[0], &low = call.in[2 + layout.moments];
  const auto run = [&](auto zero) {
    using V = decltype(zero);
    const auto piece = make(zero);
    std::array<V*, 2> moments{};
    for (int i = 0; i < layout.moments; ++i)
      moments[i] = call.in[2 + i].defined() ? call.in[2 + i].data<V>() : nullptr;
    parallel_for(param.numel(),
        grain_of(static_cast<int64_t>(sizeof(V)) * (3 + 2 * layout.moments)),
        [&](int64_t begin, int64_t end) {
          std::array<V*, 2> at{};
          for (int i = 0; i < 2; ++i) at[i] = moments[i] ? moments[i] + begin : nullptr;
          piece(param.data<V>() + begin, call.in[1].data<V>() + begin, at,
              low.defined() ? low.data<bf16>() + begin : nullptr, end - begin);
        });
  };
  if (param.dtype() == DType::f64) {
    run(double{});
  } else {
    run(float{});
  }
}

}  // namespace sinter
