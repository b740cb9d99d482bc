// What a pointwise struct must have (ops/pointwise/pointwise.h), a concept for each member, so that
// the compiler names the one that is missing and says how it is written.
#pragma once

#include <concepts>

#include "ops/pointwise/pointwise.h"
#include "ops/pointwise/pointwise_device.h"

namespace sinter::pointwise {

template <class Op>
concept HasNames = requires {
  { Op::name } -> std::convertible_to<const char*>;
  { Op::backward_name } -> std::convertible_to<const char*>;
};
template <class Op>
concept HasArity = requires {
  { Op::arity } -> std::convertible_to<int>;
  { Op::has_condition } -> std::convertible_to<bool>;
};
template <class Op>
concept HasSaves = requires {
  { Op::saves } -> std::convertible_to<Saves>;
};
template <class Op>
concept HasFlops = requires {
  { Op::flops } -> std::convertible_to<int>;
  { Op::backward_flops } -> std::convertible_to<int>;
};

// f(x, .., x) with n numbers.
template <class F, size_t... I> constexpr bool takes(std::index_sequence<I...>) {
  return std::invocable<F, decltype(double(I))...>;
}
template <class Op> struct Forward {
  template <class... X> auto operator()(X... x) const -> decltype(Op{}.forward(x...)) {
    return Op{}.forward(x...);
  }
};
template <class Op> struct Grad {
  template <class... X> auto operator()(X... x) const -> decltype(Op{}.grad(x...)) {
    return Op{}.grad(x...);
  }
};
template <class Op>
concept HasForward = takes<Forward<Op>>(std::make_index_sequence<Op::arity>());
template <class Op>
concept HasGrad = takes<Grad<Op>>(std::make_index_sequence<1 + kSavedValues<Op>>());

template <class Op> inline constexpr bool kIsListed = false;
template <class Op>
  requires(index_in<Op>(List{}) < std::tuple_size_v<List>)
inline constexpr bool kIsListed<Op> = true;

// Does not compile unless Op is a pointwise struct.
template <class Op> consteval void check_struct() {
  static_assert(HasNames<Op> && AttrStruct<Op>,
      "a pointwise struct lacks its names and fields: SINTER_POINTWISE(Struct, \"name\", "
      "members..) "
      "goes into the struct itself, after its data members");
  static_assert(HasArity<Op>,
      "a pointwise struct lacks `arity` and `has_condition`: derive it from pointwise::Unary or "
      "pointwise::Binary");
  static_assert(HasSaves<Op>,
      "a pointwise struct lacks `saves`, what its backward reads: static constexpr Saves saves = "
      "Saves::inputs (or output, nothing)");
  static_assert(HasFlops<Op>,
      "a pointwise struct lacks its cost: static constexpr int flops = .., backward_flops = ..");
  if constexpr (HasArity<Op>) {
    static_assert(HasForward<Op>,
        "a pointwise struct lacks `forward`: template <class T> SINTER_FN T forward(T x) const, of "
        "as many numbers as its arity");
    if constexpr (HasSaves<Op>) {
      static_assert(HasGrad<Op>,
          "a pointwise struct lacks `grad`: template <class T> SINTER_FN T grad(T dy, ..) const, "
          "of dy and what `saves` names (inputs: every x; output: y); two inputs give a Two<T>");
    }
  }
}

}  // namespace sinter::pointwise
