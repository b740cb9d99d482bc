// From a pointwise struct (ops/pointwise/pointwise.h) to its OpDefs: pointwise_op<Gelu>() and
// pointwise_backward_op<Gelu>(), with CPU kernels, shape rule, cost and gradient.
// Instantiated for the lists in pointwise_arithmetic.cpp and pointwise_activations.cpp; a program
// may instantiate it for a struct of its own.
#pragma once

#include "core/context.h"
#include "core/parallel.h"
#include "ops/op.h"
#include "ops/ops.h"
#include "ops/pointwise/chain.h"
#include "ops/pointwise/pointwise.h"
#include "ops/pointwise/pointwise_device.h"
#include "ops/pointwise/pointwise_loops.h"

namespace sinter {

template <class Op> const OpDef& pointwise_op();
template <class Op> const OpDef& pointwise_backward_op();

namespace pointwise {

// Has Op the function, of as many numbers as it must take?
template <class Op> consteval bool has_forward() {
  return []<size_t... I>(std::index_sequence<I...>) {
    return requires(const Op& op) { op.forward(double(I)...); };
  }(std::make_index_sequence<Op::arity>());
}
template <class Op> consteval bool has_grad() {
  return []<size_t... I>(std::index_sequence<I...>) {
    return requires(const Op& op) { op.grad(double(I)...); };
  }(std::make_index_sequence<1 + kSavedValues<Op>>());
}

// Does not compile unless Op is a pointwise struct: says what it lacks, and how that is written.
template <class Op> consteval void check_struct() {
  static_assert(
      requires { Op::name[0] + Op::backward_name[0]; } && AttrStruct<Op>,
      "a pointwise struct lacks its names and fields: SINTER_POINTWISE(Struct, \"name\", "
      "members..) goes into the struct itself, after its data members");
  constexpr bool kHasArity = requires { Op::arity + Op::has_condition; };
  static_assert(kHasArity,
      "a pointwise struct lacks `arity` and `has_condition`: derive it from "
      "pointwise::Unary<Facts{..}> or pointwise::Binary<Facts{..}>");
  if constexpr (kHasArity) {
    static_assert(Op::saves != Saves::unsaid,
        "a pointwise struct lacks `saves`, what its backward reads: .saves = Saves::inputs (or "
        "output, nothing) in the Facts of its first line");
    static_assert(Op::flops >= 0 && Op::backward_flops >= 0,
        "a pointwise struct lacks its cost: .flops = .., .backward_flops = .. in the Facts of its "
        "first line");
    static_assert(has_forward<Op>(),
        "a pointwise struct lacks `forward`: template <class T> SINTER_FN T forward(T x) const, of "
        "as many numbers as its arity");
    static_assert(has_grad<Op>(),
        "a pointwise struct lacks `grad`: template <class T> SINTER_FN T grad(T dy, ..) const, "
        "of dy and what `saves` names (inputs: every x; output: y); two inputs give a Two<T>");
  }
}

}  // namespace pointwise

namespace pointwise_detail {

using pointwise::Element, pointwise::kGrads, pointwise::kSavedValues, pointwise::Saves;

// What shape rules, costs and the gradient need to know of a struct: they are compiled once, in
// pointwise_op.cpp.
struct OpFacts {
  const char *name, *backward_name;
  int arity, saved_values, grads;
  int64_t flops, backward_flops;
  Saves saves;
  bool has_condition;
};
template <class Op>
inline constexpr OpFacts kFacts{Op::name, Op::backward_name, Op::arity, kSavedValues<Op>,
    kGrads<Op>, Op::flops, Op::backward_flops, Op::saves, Op::has_condition};

Tensors infer_forward(const OpFacts& op, Operands in);
Tensors infer_backward(const OpFacts& op, Operands in);
Cost cost_forward(const OpFacts& op, Operands in, Operands out);
Cost cost_backward(const OpFacts& op, Operands in, Operands out);
Tensors backward(const OpFacts& op, const OpDef& backward_op, const Saved& saved, Operands grads);

// out[0] = f(in..) for a call's operands of types In.
template <class T, class... In, class F>
void map_call(const Call& call, int64_t flops, const F& f) {
  constexpr int N = sizeof...(In);
  std::array<const Tensor*, N + 1> operands;
  for (int i = 0; i < N; ++i) operands[i] = &call.in[i];
  operands[N] = &call.out[0];
  pointwise_rows<1, In..., T>(call.out[0].shape(), operands, (N + 1) * sizeof(T) + 2 * flops,
      [&](const In*... in, T* out, int64_t n) {
        for (int64_t i = 0; i < n; ++i) out[i] = f(compute_t<T>(in[i])...);
      });
}

template <class Op, class T> void forward_typed(const Call& call) {
  const Op& op = call.as<Op>();
  const auto f = [op](auto... x) __attribute__((always_inline)) { return op.forward(x...); };
  [&]<size_t... I>(std::index_sequence<I...>) {
    map_call<T, Element<Op, T, I>...>(call, Op::flops, f);
  }(std::make_index_sequence<Op::arity>());
}

template <class Op> void forward(const Call& call) {
  visit_float(call.out[0].dtype(), [&]<class T>(T) { forward_typed<Op, T>(call); });
}

template <class Op, class T> void backward_typed(const Call& call) {
  using C = compute_t<T>;
  constexpr int S = kSavedValues<Op>;
  const Op& op = call.as<Op>();
  const Tensor& dy = call.in[0];
  if constexpr (kGrads<Op> == 1) {
    const auto f = [op](auto... v) __attribute__((always_inline)) { return op.grad(v...); };
    [&]<size_t... I>(std::index_sequence<I...>) {
      map_call<T, std::enable_if_t<(I >= 0), T>...>(call, Op::backward_flops, f);
    }(std::make_index_sequence<1 + S>());
  } else {
    std::array<const Tensor*, 1 + S + 2> operands;
    for (int i = 0; i < 1 + S; ++i) operands[i] = &call.in[i];
    for (int i = 0; i < 2; ++i) operands[1 + S + i] = &call.out[i];
    [&]<size_t... I>(std::index_sequence<I...>) {
      pointwise_rows<2, T, Element<Op, T, I>..., T, T>(dy.shape(), operands,
          (S + 3) * sizeof(T) + 2 * Op::backward_flops,
          [&](const T* g, const Element<Op, T, I>*... saved, T* da, T* db, int64_t n) {
            for (int64_t i = 0; i < n; ++i) {
              const auto grads = op.grad(C(g[i]), C(saved[i])...);
              da[i] = grads[grads.size() - 2];
              db[i] = grads[grads.size() - 1];
            }
          });
    }(std::make_index_sequence<S>());
  }
}

template <class Op> void backward_kernel(const Call& call) {
  visit_float(call.out[0].dtype(), [&]<class T>(T) { backward_typed<Op, T>(call); });
}

}  // namespace pointwise_detail

template <class Op> const OpDef& pointwise_op() {
  namespace p = pointwise_detail;
  using p::Saves;
  pointwise::check_struct<Op>();
  static const OpDef def = {.name = profiler::StaticName(Op::name),
      .formula = Op::formula,
      .min_inputs = Op::arity,
      .attrs = attr_type<Op>(),
      .infer = [](Operands in, const Attrs&) { return p::infer_forward(p::kFacts<Op>, in); },
      .cost = [](Operands in, Operands out,
                  const Attrs&) { return p::cost_forward(p::kFacts<Op>, in, out); },
      .cpu = p::forward<Op>,
      .cuda = SINTER_IF_CUDA(on_cuda::pointwise_kernels<Op>().forward),
      .simt = on_simt::pointwise_kernels<Op>().forward,
      .backward =
          [](const Saved& saved, Operands grads) {
            return p::backward(p::kFacts<Op>, pointwise_backward_op<Op>(), saved, grads);
          },
      .saves_in = Op::saves == Saves::inputs ? (1u << Op::arity) - 1 : 0,
      .saves_out = Op::saves == Saves::output ? 1u : 0,
      .strided = ~0u};
  if constexpr (!pointwise::kIsListed<Op>) [[maybe_unused]]
    static const bool is_step = add_own_chain_step<Op, false>(def);
  return def;
}

template <class Op> const OpDef& pointwise_backward_op() {
  namespace p = pointwise_detail;
  static const OpDef def = {.name = profiler::StaticName(Op::backward_name),
      .formula = Op::backward_formula,
      .min_inputs = 1 + p::kSavedValues<Op>,
      .attrs = attr_type<Op>(),
      .infer = [](Operands in, const Attrs&) { return p::infer_backward(p::kFacts<Op>, in); },
      .cost = [](Operands in, Operands out,
                  const Attrs&) { return p::cost_backward(p::kFacts<Op>, in, out); },
      .cpu = p::backward_kernel<Op>,
      .cuda = SINTER_IF_CUDA(on_cuda::pointwise_kernels<Op>().backward),
      .simt = on_simt::pointwise_kernels<Op>().backward,
      .strided = ~0u};
  if constexpr (!pointwise::kIsListed<Op>) [[maybe_unused]]
    static const bool is_step = add_own_chain_step<Op, true>(def);
  return def;
}

namespace pointwise_detail {
// Forward and backward op of every struct of a list.
template <class... Op> std::vector<const OpDef*> ops_of(std::tuple<Op...>) {
  std::vector<const OpDef*> list;
  ((list.push_back(&pointwise_op<Op>()), list.push_back(&pointwise_backward_op<Op>())), ...);
  return list;
}
}  // namespace pointwise_detail

}  // namespace sinter
