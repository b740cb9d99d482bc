// What the CPU's interpreter of pointwise chains knows of an op. Those of pointwise::List have a
// row of its table from the start; an op of a program's own gets one when it is first used
// (pointwise_op.h), and from then on fuses like ours.
#pragma once

#include <tuple>

#include "ops/fused/pointwise_chain.h"
#include "ops/op.h"

namespace sinter {

struct ChainStep {
  const OpDef* op = nullptr;
  int arity = 0, flops = 0;  // arity 0: the op cannot be a step
  void (*f32)(double param, const float* const* in, float* out, int64_t n) = nullptr;
  void (*f64)(double param, const double* const* in, double* out, int64_t n) = nullptr;
  Attrs (*attrs)(double param) = nullptr;
  double (*param)(const Attrs& attrs) = nullptr;
};

// Adds a row to the table, which lives as long as the program. Thread-safe.
void add_chain_step(const ChainStep& step);

namespace chain_detail {

template <class Op, bool Backward, class T, class... In>
inline void row(T number, int64_t n, T* __restrict out, const In* __restrict... in) {
  for (int64_t i = 0; i < n; ++i) out[i] = step_value<Op, Backward>(number, in[i]...);
}
template <class Op, bool Backward, int Arity, class T>
void run_step(double param, const T* const* in, T* out, int64_t n) {
  [&]<size_t... I>(std::index_sequence<I...>) { row<Op, Backward>(T(param), n, out, in[I]...); }(
      std::make_index_sequence<Arity>());
}

}  // namespace chain_detail

// Of Op, or of its backward, whose definition is `op`.
template <class Op, bool Backward> ChainStep chain_step(const OpDef& op) {
  constexpr int kArity = kStepArity<Op, Backward>;
  if constexpr (kArity == 0) {
    return {.op = &op};
  } else {
    return {.op = &op,
        .arity = kArity,
        .flops = Backward ? Op::backward_flops : Op::flops,
        .f32 = chain_detail::run_step<Op, Backward, kArity, float>,
        .f64 = chain_detail::run_step<Op, Backward, kArity, double>,
        .attrs = [](double param) { return Attrs(pointwise::op_with_number<Op>(param)); },
        .param = [](const Attrs& attrs) -> double {
          if constexpr (pointwise::kHasNumber<Op>) return attrs.as<Op>().*Op::number();
          return 0;
        }};
  }
}

// Makes Op, which is not of pointwise::List, a step. A step has room for one number, so an op with
// other attributes stays out.
template <class Op, bool Backward> bool add_own_chain_step(const OpDef& op) {
  using Fields = decltype(std::declval<const Op&>().fields());
  constexpr bool kFits = std::tuple_size_v<Fields> == (pointwise::kHasNumber<Op> ? 1 : 0);
  if (kFits && kStepArity<Op, Backward> != 0) add_chain_step(chain_step<Op, Backward>(op));
  return kFits;
}

}  // namespace sinter
