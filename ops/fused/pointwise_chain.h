// The ops that can be a step of a pointwise_chain, for the CPU's and the devices' interpreters: one
// formula for all (ops/pointwise/pointwise.h), and one way to it (step_value).
#pragma once

#include "ops/pointwise/pointwise.h"

namespace sinter {

// Operands of Op, or of its backward, as a step; 0: it cannot be one. A step has floating operands
// and one result.
template <class Op, bool Backward>
constexpr int kStepArity = Op::has_condition || (Backward && Op::arity != 1) ? 0
                           : Backward ? 1 + pointwise::kSavedValues<Op>
                                      : Op::arity;

// The value of a step.
template <class Op, bool Backward, class V, class... X> SINTER_FN V step_value(V number, X... x) {
  const auto op = pointwise::op_with_number<Op>(number);
  if constexpr (Backward) {
    return op.grad(x...);
  } else {
    return op.forward(x...);
  }
}

// f<Op, Backward>() for a number of chain_op_number(): the place in pointwise::List times two, + 1
// for the backward.
template <class F> SINTER_FN void visit_step(int op, F&& f) {
  [&]<size_t... I>(std::index_sequence<I...>) {
    static_cast<void>(
        ((op == int(I) &&
             (f.template operator()<std::tuple_element_t<I / 2, pointwise::List>, I % 2 == 1>(),
                 true)) ||
            ...));
  }(std::make_index_sequence<2 * std::tuple_size_v<pointwise::List>>());
}

}  // namespace sinter
