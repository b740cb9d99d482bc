// pointwise_chain: the program is interpreted, its values in shared memory, where a thread keeps
// those of its own 16 bytes of elements; so any program runs, and registers hold the operands of
// one step only. The steps' formulas are those of the plain ops: the same bits in f32.
#include "ops/fused/fused.h"
#include "ops/fused/pointwise_chain.h"
#include "ops/rows/block_reduce.cuh"

namespace sinter::SINTER_KERNEL_NS {

constexpr int kChainElements = 512;  // of a block in one turn

template <class T> struct ChainOperands {
  using V = compute_t<T>;
  struct Input {
    In<T> x;
    int64_t period = 0;  // element i of the result reads x[i mod period]
    bool vec = false;
  };
  struct Step {
    V number = 0;
    int16_t op = 0, arity = 0;
    int8_t a = 0, b = 0;
  };
  int n_inputs = 0, n_steps = 0, n_outputs = 0;
  int64_t total = 0;
  Input inputs[kChainInputs];
  Step steps[kChainSteps];
  Out<T> outputs[kChainOutputs];
  int8_t results[kChainOutputs] = {};
};

template <class T, int kValues>
using ChainValues = SharedTile<compute_t<T>, kValues, kChainElements>;

// Where the values of a thread's own element k lie: 16 bytes of each thread side by side, so that a
// warp's accesses meet no bank twice.
template <class T> SINTER_DEVICE_FN int column_of(int k) {
  constexpr int kPart = kVec<compute_t<T>>;
  return k / kPart * (threads_per_block() * kPart) + thread_x() * kPart + k % kPart;
}
template <class T, class Values>
SINTER_DEVICE_FN Vec<compute_t<T>, kVec<T>> load_values(const Values& values, int v) {
  constexpr int kPart = kVec<compute_t<T>>;
  Vec<compute_t<T>, kVec<T>> x;
  SINTER_UNROLL
  for (int k = 0; k < kVec<T>; k += kPart) {
    const auto part = values.template load_vec<kPart>(v, column_of<T>(k));
    SINTER_UNROLL
    for (int i = 0; i < kPart; ++i) x[k + i] = part[i];
  }
  return x;
}
template <class T, class Values>
SINTER_DEVICE_FN void store_values(Values& values, int v, const Vec<compute_t<T>, kVec<T>>& x) {
  constexpr int kPart = kVec<compute_t<T>>;
  SINTER_UNROLL
  for (int k = 0; k < kVec<T>; k += kPart) {
    Vec<compute_t<T>, kPart> part;
    SINTER_UNROLL
    for (int i = 0; i < kPart; ++i) part[i] = x[k + i];
    values.store_vec(v, column_of<T>(k), part);
  }
}

// A thread owns 16 bytes of elements in each turn. Reads every input once (those that are spread,
// from the cache), writes every output. REQUIRES: no more inputs and steps than kValues, of which
// shared memory holds so many
template <class T, int kValues>
SINTER_KERNEL_BOUNDS(kChainElements / kVec<T>)
pointwise_chain_vec(ChainOperands<T> chain) {
  using V = compute_t<T>;
  constexpr int N = kVec<T>;
  auto& values = shared<ChainValues<T, kValues>>();
  for (int64_t at = block_x() * kChainElements + thread_x() * N; at < chain.total;
       at += grid_x() * kChainElements) {
    const bool whole = at + N <= chain.total;
    SINTER_NO_UNROLL
    for (int v = 0; v < chain.n_inputs; ++v) {
      const auto& input = chain.inputs[v];
      const int64_t from = input.period == chain.total ? at : at % input.period;
      Vec<V, N> converted;
      if (input.period == 1) {
        const V x = V(input.x[0]);
        SINTER_UNROLL
        for (int k = 0; k < N; ++k) converted[k] = x;
        store_values<T>(values, v, converted);
      } else if (input.vec && whole) {
        const Vec<T, N> x = input.x.template load_vec<N>(from);
        SINTER_UNROLL
        for (int k = 0; k < N; ++k) converted[k] = V(x[k]);
        store_values<T>(values, v, converted);
      } else {
        int64_t i = from;
        SINTER_NO_UNROLL
        for (int k = 0; k < N; ++k) {
          values.put(v, column_of<T>(k), at + k < chain.total ? V(input.x[i]) : V(0));
          i = i + 1 == input.period ? 0 : i + 1;
        }
      }
    }
    SINTER_NO_UNROLL
    for (int s = 0; s < chain.n_steps; ++s) {
      const auto& step = chain.steps[s];
      const Vec<V, N> a = load_values<T>(values, step.a);
      Vec<V, N> b = a, y{};
      if (step.arity == 2) b = load_values<T>(values, step.b);
      visit_step(step.op, [&]<class Op, bool Backward>() {
        constexpr int kArity = kStepArity<Op, Backward>;
        SINTER_UNROLL
        for (int k = 0; k < N; ++k) {
          if constexpr (kArity == 2) y[k] = step_value<Op, Backward>(step.number, a[k], b[k]);
          if constexpr (kArity == 1) y[k] = step_value<Op, Backward>(step.number, a[k]);
        }
      });
      store_values<T>(values, chain.n_inputs + s, y);
    }
    SINTER_NO_UNROLL
    for (int o = 0; o < chain.n_outputs; ++o) {
      const int v = chain.results[o];
      if (whole) {
        const Vec<V, N> y = load_values<T>(values, v);
        Vec<T, N> rounded;
        SINTER_UNROLL
        for (int k = 0; k < N; ++k) rounded[k] = T(y[k]);
        chain.outputs[o].store_vec(at, rounded);
      } else {
        SINTER_NO_UNROLL
        for (int k = 0; at + k < chain.total; ++k)
          chain.outputs[o].put(at + k, T(values(v, column_of<T>(k))));
      }
    }
  }
}

void pointwise_chain(const Call& call) {
  const ChainProgram& p = call.as<ChainAttrs>().program;
  const int64_t total = call.out[0].numel();
  if (total == 0) return;
  visit_float(call.out[0].dtype(), [&]<class T>(T) {
    ChainOperands<T> chain;
    chain.n_inputs = p.n_inputs;
    chain.n_steps = p.n_steps;
    chain.n_outputs = p.n_outputs;
    chain.total = total;
    for (int i = 0; i < p.n_inputs; ++i) {
      const int64_t period = call.in[i].numel();
      chain.inputs[i] = {in<T>(call.in[i]), period,
          is_aligned(call.in[i]) && (period == total || period % kVec<T> == 0)};
    }
    for (int s = 0; s < p.n_steps; ++s) {
      auto& step = chain.steps[s];
      step = {static_cast<compute_t<T>>(p.steps[s].param), p.steps[s].op, 0, p.steps[s].in[0],
          p.steps[s].in[1]};
      visit_step(
          step.op, [&]<class Op, bool Backward>() { step.arity = kStepArity<Op, Backward>; });
    }
    for (int o = 0; o < p.n_outputs; ++o) {
      chain.outputs[o] = out<T>(call.out[o]);
      chain.results[o] = p.outputs[o];
    }
    const auto run = [&]<int N>(std::integral_constant<int, N>) {
      launch<pointwise_chain_vec<T, N>>(
          {std::min<int64_t>(blocks_for(total, kChainElements), 132 * 8)}, kChainElements / kVec<T>,
          sizeof(ChainValues<T, N>), chain);
    };
    if (p.n_inputs + p.n_steps <= 8) return run(std::integral_constant<int, 8>());
    run(std::integral_constant<int, kChainInputs + kChainSteps>());
  });
}

}  // namespace sinter::SINTER_KERNEL_NS
