// The ops that can be a step of a pointwise_chain, for the CPU's and the devices' interpreters: one formula for all (ops/pointwise.h).
#pragma once

#include "ops/fused/fused.h"
#include "ops/pointwise.h"

namespace sinter {

// The op's number: its one field of type double, if it has one.
template <class Op>
constexpr bool kHasNumber = [] {
  if constexpr (std::tuple_size_v<decltype(Op::fields())> == 1) {
    return std::is_same_v<decltype(std::get<0>(Op::fields()).member), double Op::*>;
  }
  return false;
}();
// The op with that number, as a C.
template <class Op, class C>
SINTER_FN auto op_with_number(C number) {
  using Typed = decltype(pointwise::with_number<C>(Op{}));
  Typed op;
  if constexpr (kHasNumber<Op>) {
    constexpr auto member = std::get<0>(Typed::fields()).member;
    op.*member = number;
  }
  return op;
}

// Operands of Op, or of its backward, as a step; 0: it cannot be one. A step has floating operands and one result.
template <class Op, bool Backward>
constexpr int kStepArity = Op::has_condition || (Backward && (Op::arity != 1 || Op::saves == pointwise::Saves::mask)) ? 0
                           : Backward ? 1 + pointwise::kSavedValues<Op>
                                      : Op::arity;

// f<Op, Backward>() for step number `op` as chain_op_number() gives it: the place in pointwise::List times two, + 1 for the backward.
template <class F>
SINTER_FN void visit_step(int op, F&& f) {
  [&]<size_t... I>(std::index_sequence<I...>) {
    static_cast<void>(
        ((op == static_cast<int>(I) && (f.template operator()<std::tuple_element_t<I / 2, pointwise::List>, I % 2 == 1>(), true)) || ...));
  }
  (std::make_index_sequence<2 * std::tuple_size_v<pointwise::List>>());
}

}  // namespace sinter
