// From a pointwise struct (ops/pointwise/pointwise.h) to its OpDefs: pointwise_op<Gelu>() and
// pointwise_backward_op<Gelu>(), with CPU kernels, shape rule, cost and gradient.
// Instantiated for the lists in pointwise_arithmetic.cpp and pointwise_activations.cpp; a program
// may instantiate it for a struct of its own.
#pragma once

#include "core/context.h"
#include "ops/op.h"
#include "ops/ops.h"
#include "ops/pointwise/chain.h"
#include "ops/pointwise/pointwise.h"
#include "ops/pointwise/pointwise_device.h"

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

using pointwise::kGrads, pointwise::kSavedValues, pointwise::Saves;

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

template <class Op, Part kPart> void on_cpu(const Call& call) {
  constexpr int64_t kFlops = kPart == Part::value ? Op::flops : Op::backward_flops;
  const DenseRow loop = kStepLoops<Op, kPart>.of(call.out[0].dtype());
  run_on_cpu(call, loop, chain_detail::of_attrs(call.as<Op>()), kFlops);
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
      .cpu = p::on_cpu<Op, Part::value>,
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
    static const bool is_step = (add_own_chain_step<Op, Part::value>(def), true);
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
      .cpu = p::on_cpu<Op, kGradients<Op>>,
      .cuda = SINTER_IF_CUDA(on_cuda::pointwise_kernels<Op>().backward),
      .simt = on_simt::pointwise_kernels<Op>().backward,
      .strided = ~0u};
  if constexpr (!pointwise::kIsListed<Op>) [[maybe_unused]]
    static const bool are_steps =
        (add_own_chain_step<Op, Part::first>(def), add_own_chain_step<Op, Part::second>(def), true);
  return def;
}

namespace pointwise_detail {
// The parts of every struct of a list, by kStepNumber.
template <class... Op> std::vector<ChainStep> steps_of(std::tuple<Op...>) {
  std::vector<ChainStep> steps;
  const auto add = [&]<class O>(O) {
    steps.push_back(chain_step<O, Part::value>(pointwise_op<O>()));
    steps.push_back(chain_step<O, Part::first>(pointwise_backward_op<O>()));
    steps.push_back(chain_step<O, Part::second>(pointwise_backward_op<O>()));
  };
  (add(Op()), ...);
  return steps;
}
}  // namespace pointwise_detail

}  // namespace sinter
