// The end of a product in its kernel (Note [A product and its end], product_chain.h): a program of
// pointwise steps over the eight sums that an epilogue gets at once. Every value is in a register:
// an end of kChainEnds is compiled, each element's steps one after the other; any other program is
// interpreted, line by line of its code, over all eight.
#pragma once

#include "ops/fused/product_chain.h"
#include "ops/product/gemm_product.cuh"

namespace sinter::SINTER_KERNEL_NS {

inline constexpr int kRelu = find_end(chain_detail::act<pointwise::Relu>()),
                     kReluGrad = find_end(chain_detail::act_grad<pointwise::Relu>());

// Columns of an operand of results whose rows, and elements of a row, may lie apart, or that is
// broadcast: row i reads its row i / over % period.
template <class T> struct OperandColumns {
  Columns<T, In<T>> rows;
  int64_t step = 1, over = 1, period = 0;  // period 0: each row its own

  OperandColumns() = default;
  explicit OperandColumns(const Tensor& t, const Tensor& result = {}) {
    if (!t.defined() || t.numel() == 0 || (result.defined() && result.numel() == 0)) return;
    rows = columns_of<T>(t, in<T>(t), t.rank() == 0 ? 1 : t.size(-1));
    if (!t.is_contiguous()) {
      rows.cols = t.strides()[0];
      step = t.strides()[1];
      rows.vec = step == 1 && rows.cols % kGroup == 0 && is_aligned(t);
    } else if (result.defined()) {
      const auto b = broadcast_of(t, result.shape());
      if (!b || b->full) return;  // not: the results are halves of wider rows
      const bool is_row = b->inner == 1 && b->period == result.size(-1);
      step = is_row ? 1 : 0;
      over = is_row ? 1 : std::max<int64_t>(1, b->inner / result.size(-1));
      period = is_row ? 1 : b->period;
      rows.cols = is_row ? 0 : 1;
      rows.vec = rows.vec && is_row;
    }
  }
  static Columns<T, Out<T>> result(const Tensor& t) { return columns_out<T>(t); }
  bool is_whole() const { return rows.vec; }
  SINTER_DEVICE_FN Group<T> load(int64_t i, int64_t j) const { return rows.load(i, j); }
  template <class V, int N>
  SINTER_DEVICE_FN void load(int64_t i, int64_t j, int count, V (&v)[N]) const {
    if (rows.vec) return rows.load(i, j, count, v);
    const int64_t row = period == 0 ? i : i / over % period;
    SINTER_UNROLL
    for (int q = 0; q < N; ++q)
      v[q] = q < count ? V(rows.data[row * rows.cols + (j + q) * step]) : V(0);
  }
};

// Where a program's operands come from, but for operand 0, and where its results go.
template <class T, int kInputs, int kOutputs, class Operand> struct EndOperands {
  Operand in[kInputs];  // the first is not there
  Columns<T, Out<T>> out[kOutputs];

  // halves: both results are the halves of one's columns.
  EndOperands(Operands operands, std::span<const Tensor> results, bool halves) {
    for (size_t k = 0; k < operands.size(); ++k) in[k + 1] = Operand(operands[k], results[0]);
    for (size_t r = 0; r < results.size(); ++r) out[r] = Operand::result(results[r]);
    if (halves) out[1] = columns_from<T>(results[0], results[0].size(1) / 2);
  }
  bool all_whole() const {
    return std::all_of(in + 1, in + kInputs, [](const Operand& x) { return x.is_whole(); }) &&
           std::all_of(out, out + kOutputs, [](const auto& y) { return y.vec; });
  }
};

// The steps over the elements j.. of row i, of which `count` exist: z is operand 0.
template <class T, int kEnd, class Operand = OperandColumns<T>>
struct EndSteps : EndOperands<T, kChainEnds[kEnd].n_inputs, kChainEnds[kEnd].n_outputs, Operand> {
  EndSteps(
      const ChainProgram&, Operands operands, std::span<const Tensor> results, bool halves = false)
      : EndSteps::EndOperands(operands, results, halves) {}

  static constexpr int kInputs = kChainEnds[kEnd].n_inputs;
  struct Read : AllOfGroup {
    Group<T> in[kInputs];
  };
  SINTER_DEVICE_FN void load(int64_t i, int64_t j, Read& read) const {
    SINTER_UNROLL
    for (int k = 1; k < kInputs; ++k) read.in[k] = this->in[k].load(i, j);
  }

  template <class Count, class V, int N>
  SINTER_DEVICE_FN void operator()(int64_t i, int64_t j, const Count& count, V (&z)[N]) const {
    constexpr ChainProgram kProgram = kChainEnds[kEnd];
    constexpr int kOutputs = kProgram.n_outputs;
    if (count == 0) return;
    V x[kInputs][N], y[kOutputs][N];
    SINTER_UNROLL
    for (int k = 1; k < kInputs; ++k) {
      if constexpr (kAllOfGroup<Count>) {
        SINTER_UNROLL
        for (int q = 0; q < N; ++q) x[k][q] = V(count.in[k][q]);
      } else {
        this->in[k].load(i, j, count, x[k]);
      }
    }
    SINTER_UNROLL
    for (int q = 0; q < N; ++q) {
      V v[kInputs + kProgram.n_steps];
      v[0] = z[q];
      SINTER_UNROLL
      for (int k = 1; k < kInputs; ++k) v[k] = x[k][q];
      run_end<kEnd>(v);
      SINTER_UNROLL
      for (int r = 0; r < kOutputs; ++r) y[r][q] = v[kProgram.outputs[r]];
    }
    SINTER_UNROLL
    for (int r = 0; r < kOutputs; ++r) this->out[r].store(i, j, count, y[r]);
  }
};

// Which register a line means is known at run time only, but an index that is not a constant would
// put registers into memory: so all are asked.
template <class T, class Operand>
struct EndSteps<T, kInterpreted, Operand> : EndOperands<T, kChainInputs, kChainOutputs, Operand> {
  ChainCode code;
  struct Read : AllOfGroup {};  // never of whole groups

  EndSteps(const ChainProgram& program, Operands operands, std::span<const Tensor> results,
      bool halves = false)
      : EndSteps::EndOperands(operands, results, halves), code(code_of(program)) {}

  template <class V, int N>
  SINTER_DEVICE_FN void operator()(int64_t i, int64_t j, int count, V (&z)[N]) const {
    if (count == 0) return;
    V registers[kChainRegisters][N] = {};
    SINTER_UNROLL
    for (int q = 0; q < N; ++q) registers[0][q] = z[q];
    SINTER_NO_UNROLL
    for (int l = 0; l < code.n; ++l) {
      const ChainCode::Line& line = code.lines[l];
      V a[N], b[N];
      if (line.op == ChainCode::kLoad) {
        this->in[line.a].load(i, j, count, a);
      } else {
        read(registers, line.a, a);
        read(registers, line.b, b);
        visit_step(line.op, [&]<class Op, Part kPart>() {
          constexpr int kArity = kStepArity<Op, kPart>;
          if constexpr (kArity == 1) run_step<Op, kPart>(V(line.param), a);
          if constexpr (kArity == 2) run_step<Op, kPart>(V(line.param), a, b);
          if constexpr (kArity == 3) {  // its own read: other steps need no registers for it
            V c[N];
            read(registers, line.c, c);
            run_step<Op, kPart>(V(line.param), a, b, c);
          }
        });
      }
      SINTER_UNROLL
      for (int k = 0; k < kChainRegisters; ++k) {
        SINTER_UNROLL
        for (int q = 0; q < N; ++q) registers[k][q] = k == line.to ? a[q] : registers[k][q];
      }
      if (line.result >= 0) this->out[line.result].store(i, j, count, a);
    }
  }

 private:
  // a = the step's values. Long formulas stand there once, not for each element: the first of the
  // elements is replaced by its value, which becomes the last. The number is kept, or registers
  // would hold what follows from it (pow's are in double).
  template <class Op, Part kPart, class V, int N, class... More>
  static SINTER_DEVICE_FN void run_step(V number, V (&a)[N], More&... more) {
    const auto turn = [&] {
      const V y = step_value<Op, kPart>(keep(number), a[0], more[0]...);
      SINTER_UNROLL
      for (int q = 1; q < N; ++q) {
        a[q - 1] = a[q];
        ((more[q - 1] = more[q]), ...);
      }
      a[N - 1] = y;
    };
    if constexpr (kStepFlops<Op, kPart> <= 2) {
      SINTER_UNROLL
      for (int q = 0; q < N; ++q) turn();
    } else {
      SINTER_NO_UNROLL
      for (int q = 0; q < N; ++q) turn();
    }
  }
  template <class V, int N>
  static SINTER_DEVICE_FN void read(
      const V (&registers)[kChainRegisters][N], int place, V (&v)[N]) {
    SINTER_UNROLL
    for (int q = 0; q < N; ++q) v[q] = registers[0][q];
    SINTER_UNROLL
    for (int k = 1; k < kChainRegisters; ++k) {
      SINTER_UNROLL
      for (int q = 0; q < N; ++q) v[q] = k == place ? registers[k][q] : v[q];
    }
  }
};

// The epilogue of a product of T with results of Y: the bias if there is one, then the steps. Of
// the compiled ends those that read more than the sums stand behind products without a bias.
template <int kEnd>
inline constexpr bool kMayHaveBias = kEnd == kInterpreted || kChainEnds[kEnd].n_inputs == 1;
template <class T, class Y, int kEnd> struct ChainEnd {
  static constexpr bool kSumsRows = false;
  using BiasOf = std::conditional_t<kMayHaveBias<kEnd>, Bias<T>, NoBias<T>>;
  BiasOf bias;
  EndSteps<Y, kEnd> steps;
  SINTER_DEVICE_FN void operator()(
      int64_t i, int64_t j, int count, compute_t<T> (&z)[kGroup]) const {
    bias.add(j, count, z);
    steps(i, j, count, z);
  }

  bool all_whole() const { return bias.vec && steps.all_whole(); }
  struct Read : AllOfGroup {
    typename BiasOf::Read bias;
    typename EndSteps<Y, kEnd>::Read steps;
  };
  SINTER_DEVICE_FN void load_columns(int64_t j, Read& read) const { bias.load(j, read.bias); }
  SINTER_DEVICE_FN void load(int64_t i, int64_t j, Read& read) const {
    steps.load(i, j, read.steps);
  }
  SINTER_DEVICE_FN void operator()(
      int64_t i, int64_t j, const Read& read, compute_t<T> (&z)[kGroup]) const {
    bias.add(j, read.bias, z);
    steps(i, j, read.steps, z);
  }
};

// conv2d with an end (conv_act.cu).
void convolution_with_end(const Call& call);

}  // namespace sinter::SINTER_KERNEL_NS
