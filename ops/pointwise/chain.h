// Chains: programs of pointwise ops that run over values while those are near, in registers or in
// the L1 cache. They are the body of pointwise_chain and glu, and the end of every product that is
// followed by pointwise ops (product_chain.h). The formulas are those of the plain ops
// (ops/pointwise/pointwise.h): the same bits in f32 and f64; bf16 computes in f32 and rounds its
// results only.
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

// What the rules of chains ask: the number of a pointwise op as a step, or -1 (a step has floating
// operands and one result); the step's parameter.
int chain_op_number(const OpDef* op);
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
// to[i] = what element begin + i of the results reads.
template <class T>
void broadcast_to(const T* x, const Broadcast& b, int64_t begin, int64_t n, T* to) {
  for (int64_t i = 0; i < n;) {
    const int64_t at = begin + i, from = at / b.inner % b.period;
    const int64_t part = std::min(n - i, b.inner == 1 ? b.period - from : b.inner - at % b.inner);
    if (b.inner == 1) {
      std::copy_n(x + from, part, to + i);
    } else {
      std::fill_n(to + i, part, x[from]);
    }
    i += part;
  }
}

// Operands of Op, or of its backward, as a step; 0: it cannot be one. A step has floating operands
// and one result.
template <class Op, bool Backward>
inline constexpr int kStepArity = Op::has_condition || (Backward && Op::arity != 1) ? 0
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

// The op's one number, or 0.
template <class Op> double step_param(const Op& op) {
  if constexpr (pointwise::kHasNumber<Op>) return op.*Op::number();
  return 0;
}
// The number of chain_op_number(), and f<Op, Backward>() for it.
template <class Op, bool kBack> constexpr int kStepNumber = 2 * int(pointwise::kPlace<Op>) + kBack;
template <class F> SINTER_FN void visit_step(int op, F&& f) {
  [&]<size_t... I>(std::index_sequence<I...>) {
    static_cast<void>(
        ((op == int(I) &&
             (f.template operator()<std::tuple_element_t<I / 2, pointwise::List>, I % 2 == 1>(),
                 true)) ||
            ...));
  }(std::make_index_sequence<2 * std::tuple_size_v<pointwise::List>>());
}

// ---- Note [Ends that are compiled]

namespace chain_detail {

template <class Op, bool Backward = false> constexpr ChainProgram::Step step(auto... in) {
  return {int16_t(kStepNumber<Op, Backward>), {int8_t(in)...}, 0};
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
  return program(2, {step<Op, true>(0, 1)}, {2});
}
template <class Op> constexpr ChainProgram gate() {
  return program(2, {step<Op>(0), step<pointwise::Mul>(2, 1)}, {3});
}
template <class Op> constexpr ChainProgram gate_grad() {
  using pointwise::Mul;
  return program(3, {step<Mul>(0, 2), step<Op, true>(3, 1), step<Op>(1), step<Mul>(0, 5)}, {4, 6});
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

// Works out the values behind the operands of the end: v[n_inputs + s] for each step s.
template <int kEnd, class V, size_t N> SINTER_FN void run_end(V (&v)[N]) {
  constexpr int kSteps = kChainEnds[kEnd].n_steps, kInputs = kChainEnds[kEnd].n_inputs;
  static_assert(N == size_t(kInputs + kSteps));
  const auto run = [&]<size_t S>(std::integral_constant<size_t, S>) {
    constexpr ChainProgram::Step step = kChainEnds[kEnd].steps[S];
    using Op = std::tuple_element_t<step.op / 2, pointwise::List>;
    constexpr bool kBackward = step.op % 2 == 1;
    if constexpr (kStepArity<Op, kBackward> == 1) {
      v[kInputs + S] = step_value<Op, kBackward>(V(0), v[step.in[0]]);
    } else {
      v[kInputs + S] = step_value<Op, kBackward>(V(0), v[step.in[0]], v[step.in[1]]);
    }
  };
  [&]<size_t... S>(std::index_sequence<S...>) { (run(std::integral_constant<size_t, S>()), ...); }(
      std::make_index_sequence<kSteps>());
}

// ---- On the CPU

// What the interpreter knows of an op. Those of pointwise::List have a row of its table from the
// start; an op of a program's own gets one when it is first used (pointwise_op.h), and from then on
// fuses like ours.
struct ChainStep {
  const OpDef* op = nullptr;
  int arity = 0, flops = 0;  // arity 0: the op cannot be a step
  void (*f32)(double param, const float* const* in, float* out, int64_t n) = nullptr;
  void (*f64)(double param, const double* const* in, double* out, int64_t n) = nullptr;
  Attrs (*attrs)(double param) = nullptr;
  double (*param)(const Attrs& attrs) = nullptr;
};

// A program over n elements that lie together: first[i] is operand 0, rest[k][i] operand k + 1,
// out[r][i] result r. `first` may be one of the results' memory, element for element. Z is T, or
// f32 sums where T is bf16.
template <class Z, class T> class ChainLoop {
 public:
  explicit ChainLoop(const ChainProgram& program);
  void operator()(const Z* first, const T* const* rest, T* const* out, int64_t n) const {
    if (compiled_) return compiled_(first, rest, out, n);
    interpret(first, rest, out, n);
  }

 private:
  void interpret(const Z* first, const T* const* rest, T* const* out, int64_t n) const;
  const ChainProgram& program_;
  void (*compiled_)(const Z*, const T* const*, T* const*, int64_t);
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
    int16_t op = kStore;  // kLoad: operand `a` to `to`; kStore: register `a`; else a step
    int8_t a = 0, b = 0;  // registers
    int8_t to = 0;        // register
    int8_t result = -1;   // which result this is, if it is one
    double param = 0;
  };
  int n = 0, registers = 0;  // those that it would take; operand 0 is in register 0
  std::array<Line, kChainInputs + kChainSteps + 1> lines{};
};
ChainCode code_of(const ChainProgram& program);

// Adds a row to the table, which lives as long as the program.
void add_chain_step(const ChainStep& step);

namespace chain_detail {

// Elements of one place only, so `out` may be one of the operands.
template <class Op, bool Backward, class T, class... In>
inline void row(T number, int64_t n, T* out, const In*... in) {
#pragma GCC ivdep
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
        .param = [](const Attrs& attrs) { return step_param(attrs.as<Op>()); }};
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
