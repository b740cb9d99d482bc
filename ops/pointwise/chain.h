// Chains: programs of pointwise ops that run over values while those are near, in registers or in
// the L1 cache. They are the body of pointwise_chain and glu, and the end of every product that is
// followed by pointwise ops (product_chain.h); a pointwise op by itself runs the loop of its step.
// The formulas are those of ops/pointwise/pointwise.h: the same bits in f32 and f64; bf16 computes
// in f32 and rounds its results only.
//
// Note [Ends that are compiled]
//   A program is data: value v < n_inputs is operand v, value n_inputs + s the result of step s.
//
//       x W^T, then GELU that keeps its operand     "1;gelu_tanh(0);1,0"
//       dy W, then the gradient through ReLU        "2;relu_backward(0,1);2"
//
//   Any program can be interpreted, step by step over a tile. A few are in nearly every net:
//   kChainEnds lists them, and each is compiled as one loop without a switch in it, for the CPU and
//   for the kernels. Capture brings what it finds to the form of that list, and find_end() looks it
//   up; kInterpreted says that it is none of them.
//
// Thread-safe.
#pragma once

#include <algorithm>
#include <array>
#include <optional>
#include <tuple>
#include <utility>

#include "ops/op.h"
#include "ops/pointwise/pointwise.h"
#include "ops/pointwise/pointwise_loops.h"

namespace sinter {

inline constexpr int kChainSteps = 10, kChainOutputs = 3, kChainInputs = 8;
struct ChainProgram {
  struct Step {
    int16_t op = 0;              // chain_op_number()
    std::array<int8_t, 3> in{};  // value numbers
    double param = 0;            // the op's one number, if it has one
    bool operator==(const Step&) const = default;
  };
  int n_inputs = 0, n_steps = 0, n_outputs = 0;
  std::array<Step, kChainSteps> steps{};
  std::array<int8_t, kChainOutputs> outputs{};  // value numbers, each once
  bool operator==(const ChainProgram&) const = default;
};
// "2;mul(0,1);scale:0.5(2);3": the number of operands, the steps, the values that are results.
std::string print_value(const ChainProgram& program);
bool parse_value(std::string_view text, ChainProgram& program);

// What the rules of chains ask: the number of the step that gives a result of a pointwise op, or
// -1; the step's parameter.
int chain_op_number(const OpDef* op, int result = 0);
double chain_param(const OpDef* op, const Attrs& attrs);

// How a dense operand meets dense results: element j of them reads its element j / inner % period.
//   [B, H] of [B, H]           inner 1    period B H   full
//   [H] of [B, H]              inner 1    period H     a row
//   [B, 1] of [B, H]           inner H    period B     a column
//   [C, 1, 1] of [N, C, P, Q]  inner P Q  period C     a number for each channel
struct Broadcast {
  int64_t inner = 1, period = 1;
  bool full = true;  // one element for each of the results
};
// Nothing if the operand is not dense, or has a dim of 1 between others where `shape` has more.
std::optional<Broadcast> broadcast_of(const Tensor& operand, const Shape& shape);
// What of an op a loop works out: its value, or the gradients of the operands that have one: of the
// first, of the second, or of both in one pass.
enum class Part { value, first, second, both };
// Of an op's backward, all that it gives.
template <class Op>
inline constexpr Part kGradients = pointwise::kGrads<Op> == 1 ? Part::first : Part::both;

// Of an op, or of its backward.
template <class Op, Part kPart>
inline constexpr int kOperands = kPart == Part::value ? Op::arity : 1 + pointwise::kSavedValues<Op>;

// Note [Steps]
//   A step has floating operands and gives one number, so a backward of two gradients is two steps,
//   "div_backward.da(0,1,2)" and "div_backward.db(0,1,2)"; what both work out costs little beside a
//   pass over memory. Every pointwise op has a loop that is walked as those of chains are, but no
//   steps are
//     where                      with its condition in f32 it would move 16 bytes an element in
//                                place of 13: 1.23 times
//     gradients by add and sub   they are dy, and its negative, which `neg` is: twice the stores
//     gradients by comparisons   nobody asks for them
//   copy, cast and accumulate have loops of their own, by the same walk: they convert between all
//   types, of which a chain has one.

// Operands of a step; 0: it is none.
template <class Op, Part kPart>
inline constexpr int kStepArity = [] {
  if (Op::has_condition || kPart == Part::both) return 0;
  const bool has_two = Op::arity == 2 && Op::saves == pointwise::Saves::inputs;
  const bool fits = kPart == Part::value || has_two || (Op::arity == 1 && kPart == Part::first);
  return fits ? kOperands<Op, kPart> : 0;
}();
template <class Op, Part kPart>
inline constexpr int kStepFlops =
    kPart == Part::value ? Op::flops : Op::backward_flops / pointwise::kGrads<Op>;

// The results of a part.
template <Part kPart, class Op, class... X> SINTER_FN auto results_of(const Op& op, X... x) {
  if constexpr (kPart == Part::value) {
    return std::array{op.forward(x...)};
  } else if constexpr (pointwise::kGrads<Op> == 1) {
    return std::array{op.grad(x...)};
  } else {
    const auto grads = op.grad(x...);
    constexpr size_t a = Op::arity - 2, b = a + 1;  // a condition has none
    if constexpr (kPart == Part::both) return std::array{grads[a], grads[b]};
    if constexpr (kPart != Part::both) return std::array{grads[kPart == Part::first ? a : b]};
  }
}
// The value of a step.
template <class Op, Part kPart, class V, class... X> SINTER_FN V step_value(V number, X... x) {
  return results_of<kPart>(pointwise::op_with_number<Op>(number), x...)[0];
}

// The op's one number, or 0.
template <class Op> double step_param(const Op& op) {
  if constexpr (pointwise::kHasNumber<Op>) return op.*Op::number();
  return 0;
}
// The number of chain_op_number(), and f<Op, Part>() for it.
template <class Op, Part kPart>
constexpr int kStepNumber = 3 * int(pointwise::kPlace<Op>) + int(kPart);
template <class F> SINTER_FN void visit_step(int op, F&& f) {
  [&]<size_t... I>(std::index_sequence<I...>) {
    static_cast<void>(
        ((op == int(I) && (f.template operator()<std::tuple_element_t<I / 3, pointwise::List>,
                               static_cast<Part>(I % 3)>(),
                              true)) ||
            ...));
  }(std::make_index_sequence<3 * std::tuple_size_v<pointwise::List>>());
}

// ---- Note [Ends that are compiled]

namespace chain_detail {

template <class Op, Part kPart = Part::value> constexpr ChainProgram::Step step(auto... in) {
  return {int16_t(kStepNumber<Op, kPart>), {int8_t(in)...}, 0};
}
template <size_t S, size_t R>
constexpr ChainProgram program(
    int inputs, const ChainProgram::Step (&steps)[S], const int (&results)[R]) {
  ChainProgram p{.n_inputs = inputs, .n_steps = S, .n_outputs = R};
  for (size_t s = 0; s < S; ++s) p.steps[s] = steps[s];
  for (size_t r = 0; r < R; ++r) p.outputs[r] = int8_t(results[r]);
  return p;
}
// y = act(0); y and 0; act'(1) times 0; act(0) times 1; and the gradients of that: of 0 = dh, 1 = g
// and 2 = u, dg = dh u act'(g) and du = dh act(g).
template <class Op> constexpr ChainProgram act() { return program(1, {step<Op>(0)}, {1}); }
template <class Op> constexpr ChainProgram act_kept() { return program(1, {step<Op>(0)}, {1, 0}); }
template <class Op> constexpr ChainProgram act_grad() {
  return program(2, {step<Op, Part::first>(0, 1)}, {2});
}
template <class Op> constexpr ChainProgram gate() {
  return program(2, {step<Op>(0), step<pointwise::Mul>(2, 1)}, {3});
}
template <class Op> constexpr ChainProgram gate_grad() {
  using pointwise::Mul;
  return program(
      3, {step<Mul>(0, 2), step<Op, Part::first>(3, 1), step<Op>(1), step<Mul>(0, 5)}, {4, 6});
}

}  // namespace chain_detail

inline constexpr std::array kChainEnds = [] {
  using namespace chain_detail;
  using namespace pointwise;
  return std::array{act<Relu>(), act_grad<Relu>(), act<Gelu>(), act_kept<Gelu>(), act_grad<Gelu>(),
      act<GeluTanh>(), act_kept<GeluTanh>(), act_grad<GeluTanh>(), gate<GeluTanh>(),
      gate_grad<GeluTanh>()};
}();
inline constexpr int kInterpreted = -1;
// The place of the program in kChainEnds, or kInterpreted.
constexpr int find_end(const ChainProgram& program) {
  const auto at = std::find(kChainEnds.begin(), kChainEnds.end(), program);
  return at == kChainEnds.end() ? kInterpreted : int(at - kChainEnds.begin());
}

namespace chain_detail {
template <class Op, Part kPart, class V, size_t N, size_t... I>
SINTER_FN V value_of(const V (&v)[N], std::array<int8_t, 3> in, std::index_sequence<I...>) {
  return step_value<Op, kPart>(V(0), v[in[I]]...);
}
}  // namespace chain_detail

// Works out the values behind the operands of the end: v[n_inputs + s] for each step s. By
// functions that are always inlined, as the compiler leaves lambdas of some depth as calls.
template <int kEnd, int kStep = 0, class V, size_t N> SINTER_FN void run_end(V (&v)[N]) {
  constexpr int kSteps = kChainEnds[kEnd].n_steps, kInputs = kChainEnds[kEnd].n_inputs;
  static_assert(N == size_t(kInputs + kSteps));
  if constexpr (kStep < kSteps) {
    constexpr ChainProgram::Step step = kChainEnds[kEnd].steps[kStep];
    using Op = std::tuple_element_t<step.op / 3, pointwise::List>;
    constexpr Part kPart{step.op % 3};
    v[kInputs + kStep] = chain_detail::value_of<Op, kPart>(
        v, step.in, std::make_index_sequence<kStepArity<Op, kPart>>());
    run_end<kEnd, kStep + 1>(v);
  }
}

// ---- On the CPU

// The loops of a part over dense elements of f32, f64 and bf16 (DenseRow), each compiled once: an
// op by itself, a step of a chain and the end of a product that is this step alone all run them.
// They are given a step's number, or, of an op with other attributes, its attributes.
struct StepLoops {
  DenseRow f32 = nullptr, f64 = nullptr, bf16 = nullptr;
  DenseRow of(DType type) const {
    return type == DType::f32 ? f32 : type == DType::f64 ? f64 : bf16;
  }
};

// What the interpreter knows of a step. Those of pointwise::List have a row of its table from the
// start; those of a program's own op get one when it is first used (pointwise_op.h), and from then
// on fuse like ours.
struct ChainStep {
  const OpDef* op = nullptr;
  int result = 0;            // of the op
  int arity = 0, flops = 0;  // arity 0: the op cannot be a step
  const char* suffix = "";   // of the op's name, where it has several results
  StepLoops loops;
  Attrs (*attrs)(double param) = nullptr;
  double (*param)(const Attrs& attrs) = nullptr;
};

// A program over n elements that lie together: at[k] are those of operand k, then of the results;
// or first[i] is operand 0, rest[k][i] operand k + 1, out[r][i] result r. Operand 0 may be one of
// the results' memory, element for element. It is of Z: T, or f32 sums where T is bf16.
template <class Z, class T> class ChainLoop {
 public:
  explicit ChainLoop(const ChainProgram& program);
  void operator()(char* const* at, int64_t n) const {
    if (compiled_) return compiled_(&program_.steps[0].param, at, n);
    interpret(at, n);
  }
  void operator()(const Z* first, const T* const* rest, T* const* out, int64_t n) const;
  // The one loop that the program is; nullptr: it is interpreted.
  DenseRow compiled() const { return compiled_; }

 private:
  void interpret(char* const* at, int64_t n) const;
  const ChainProgram& program_;
  DenseRow compiled_;
};

// In plain ops: the results for these operands.
Tensors chain_results(const ChainProgram& program, Tensors operands);
int64_t chain_flops(const ChainProgram& program);
// Each value is made before it is read, steps are steps, sizes are allowed. Only an end may give
// operand 0, the sums of its product, as a result, and have no steps.
bool is_valid(const ChainProgram& program, bool end = false);

// The program for kernels that interpret it with their values in registers, of which an element has
// kChainRegisters: operands are loaded just before they are read, results stored when they are
// made, and a register is free behind the last line that reads it.
inline constexpr int kChainRegisters = 6;
struct ChainCode {
  static constexpr int16_t kLoad = -1, kStore = -2;
  struct Line {
    int16_t op = kStore;         // kLoad: operand `a` to `to`; kStore: register `a`; else a step
    int8_t a = 0, b = 0, c = 0;  // registers
    int8_t to = 0;               // register
    int8_t result = -1;          // which result this is, if it is one
    double param = 0;
  };
  int n = 0, registers = 0;  // those that it would take; operand 0 is in register 0
  std::array<Line, kChainInputs + kChainSteps + 1> lines{};
};
ChainCode code_of(const ChainProgram& program);

// Adds a row to the table, which lives as long as the program.
void add_chain_step(const ChainStep& step);

// Has Op no attributes but the one number that a step has room for? Else it is no step.
template <class Op>
inline constexpr bool kFitsStep = std::tuple_size_v<decltype(std::declval<const Op&>().fields())> ==
                                  (pointwise::kHasNumber<Op> ? 1 : 0);

namespace chain_detail {

// The results of f for each element. Each is read before it is written, and no other is: a result
// may lie where an operand does. For loops that are flat, without a loop or a call inside: of what
// is called the compiler makes no vectors, and GELU then takes ten times as long.
template <class T, class... In, class F>
[[gnu::always_inline]] inline void for_elements(char* const* at, int64_t n, const F& f) {
  using V = compute_t<T>;
  constexpr size_t kResults = std::tuple_size_v<decltype(f(V(In())...))>;
  [&]<size_t... I, size_t... R>(std::index_sequence<I...>, std::index_sequence<R...>) {
    const std::tuple<const In*...> x{reinterpret_cast<const In*>(at[I])...};
    const std::tuple y{reinterpret_cast<T*>(at[sizeof...(In) + R])...};
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) {
      const auto result = f(V(std::get<I>(x)[i])...);
      ((std::get<R>(y)[i] = T(result[R])), ...);
    }
  }(std::index_sequence_for<In...>(), std::make_index_sequence<kResults>());
}

// What a loop is given (StepLoops), and the op that it then has.
template <class Op> const void* of_attrs(const Op& op) {
  if constexpr (kFitsStep<Op> && pointwise::kHasNumber<Op>) return &(op.*Op::number());
  return &op;
}
template <class Op> Op op_of(const void* attrs) {
  if constexpr (!kFitsStep<Op>) {
    return *static_cast<const Op*>(attrs);
  } else if constexpr (pointwise::kHasNumber<Op>) {
    return pointwise::op_with_number<Op>(*static_cast<const double*>(attrs));
  } else {
    return Op();
  }
}

template <class Op, Part kPart, class T>
[[gnu::flatten]] void step_loop(const void* attrs, char* const* at, int64_t n) {
  const auto f = [op = op_of<Op>(attrs)](auto... x) __attribute__((always_inline)) {
    return results_of<kPart>(op, x...);
  };
  constexpr size_t kDy = kPart == Part::value ? 0 : 1;  // operands before those of the op
  [&]<size_t... I>(std::index_sequence<I...>) {
    for_elements<T, pointwise::Element<Op, T, I - kDy>...>(at, n, f);
  }(std::make_index_sequence<kOperands<Op, kPart>>());
}

}  // namespace chain_detail

template <class Op, Part kPart>
inline constexpr StepLoops kStepLoops{chain_detail::step_loop<Op, kPart, float>,
    chain_detail::step_loop<Op, kPart, double>, chain_detail::step_loop<Op, kPart, bf16>};

// The row of a part of Op that may be a step: `op` is Op, or its backward.
template <class Op, Part kPart> ChainStep chain_step(const OpDef& op) {
  ChainStep step{.op = &op, .result = kPart == Part::second ? 1 : 0};
  if constexpr (kStepArity<Op, kPart> > 0) {
    step.arity = kStepArity<Op, kPart>;
    step.flops = kStepFlops<Op, kPart>;
    if (kPart != Part::value && Op::arity > 1) step.suffix = kPart == Part::first ? ".da" : ".db";
    step.loops = kStepLoops<Op, kPart>;
    step.attrs = [](double param) { return Attrs(pointwise::op_with_number<Op>(param)); };
    step.param = [](const Attrs& attrs) { return step_param(attrs.as<Op>()); };
  }
  return step;
}

// Makes a part of Op, which is not of pointwise::List, a step, if it can be one.
template <class Op, Part kPart> void add_own_chain_step(const OpDef& op) {
  if constexpr (kFitsStep<Op> && kStepArity<Op, kPart> > 0)
    add_chain_step(chain_step<Op, kPart>(op));
}

}  // namespace sinter
