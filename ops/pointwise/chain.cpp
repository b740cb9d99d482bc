#include "ops/pointwise/chain.h"

#include <algorithm>
#include <atomic>
#include <mutex>

#include "core/numbers.h"
#include "ops/rows/row_loops.h"

namespace sinter {
namespace {

constexpr int64_t kTile = 1024;  // elements between two steps of the interpreter: they stay in L1

// The ops that can be steps: those of pointwise::List, each followed by its backward, then those of
// the program. It never moves, since running chains read it.
struct StepTable {
  static constexpr size_t kMost = 1024;
  std::array<ChainStep, kMost> steps;
  std::atomic<size_t> size{0};
  std::mutex adding;

  StepTable() {
    const auto list = pointwise_ops();
    std::apply(
        [&](auto... op) {
          ((add(chain_step<decltype(op), false>(*list[size])),
               add(chain_step<decltype(op), true>(*list[size]))),
              ...);
        },
        pointwise::List{});
  }
  void add(const ChainStep& step) {
    const std::lock_guard lock(adding);
    if (size == kMost) return;  // an op too many stays a launch of its own
    steps[size] = step;
    ++size;
  }
  static StepTable& get() {
    static StepTable& table = *new StepTable;
    return table;
  }
};

size_t step_count() { return StepTable::get().size; }
const ChainStep& step_op(int number) { return StepTable::get().steps[size_t(number)]; }
// The number of the first that `fits`, or -1.
template <class F> int find_step(F&& fits) {
  for (int i = 0; i < int(step_count()); ++i) {
    if (fits(step_op(i))) return i;
  }
  return -1;
}
int number_of(const OpDef* op) {
  return find_step([&](const ChainStep& step) { return step.op == op; });
}

// One pass, all of an element's values in registers. Flat, without a loop inside: of what is called
// the compiler makes no vectors, and a step of GELU then takes ten times what its op takes.
template <int kEnd, class Z, class T>
[[gnu::flatten]] void end_loop(const Z* first, const T* const* rest, T* const* out, int64_t n) {
  constexpr ChainProgram p = kChainEnds[kEnd];
  using V = compute_t<T>;
  const T* more[kChainInputs] = {};
  T* to[kChainOutputs] = {};
  std::copy_n(rest, p.n_inputs - 1, more);
  std::copy_n(out, p.n_outputs, to);
  // Each element is read before it is written, and no other is: `first` may be a result's memory.
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    V v[p.n_inputs + p.n_steps];
    v[0] = V(first[i]);
#pragma GCC unroll 8
    for (int k = 1; k < p.n_inputs; ++k) v[k] = V(more[k - 1][i]);
    run_end<kEnd>(v);
#pragma GCC unroll 8
    for (int r = 0; r < p.n_outputs; ++r) to[r][i] = T(v[p.outputs[r]]);
  }
}

template <class Z, class T> auto compiled_end(int end) {
  using Loop = void (*)(const Z*, const T* const*, T* const*, int64_t);
  static constexpr auto loops = []<size_t... E>(std::index_sequence<E...>) {
    return std::array<Loop, sizeof...(E)>{end_loop<int(E), Z, T>...};
  }(std::make_index_sequence<kChainEnds.size()>());
  return end == kInterpreted ? nullptr : loops[size_t(end)];
}

// The text up to `mark`, which is cut off with it; all of the text if there is none.
std::string_view cut(std::string_view& text, char mark) {
  const size_t at = std::min(text.find(mark), text.size());
  const std::string_view part = text.substr(0, at);
  text.remove_prefix(std::min(at + 1, text.size()));
  return part;
}
// Numbers with commas between; how many, or -1.
template <size_t N> int parse_numbers(std::string_view text, std::array<int8_t, N>& to) {
  int n = 0;
  do {
    if (n == int(N) || !parse_all(cut(text, ','), to[n++])) return -1;
  } while (!text.empty());
  return n;
}

}  // namespace

template <class Z, class T>
ChainLoop<Z, T>::ChainLoop(const ChainProgram& program)
    : program_(program), compiled_(compiled_end<Z, T>(find_end(program))) {}

template <class Z, class T>
void ChainLoop<Z, T>::interpret(
    const Z* first, const T* const* rest, T* const* out, int64_t n) const {
  using V = compute_t<T>;
  constexpr bool direct = std::is_same_v<T, V>;  // operands are read, results made where they lie
  const ChainProgram& p = program_;
  V* const buffers = thread_buffer<V, BufferFor::chain_values>((p.n_inputs + p.n_steps) * kTile);
  for (int64_t begin = 0; begin < n; begin += kTile) {
    const int64_t size = std::min(kTile, n - begin);
    const V* value[kChainInputs + kChainSteps];
    const auto convert = [&]<class X>(int v, const X* x) {
      if constexpr (std::is_same_v<X, V>) {
        value[v] = x + begin;
      } else {
        std::copy_n(x + begin, size, buffers + v * kTile);
        value[v] = buffers + v * kTile;
      }
    };
    convert(0, first);
    for (int k = 1; k < p.n_inputs; ++k) convert(k, rest[k - 1]);
    for (int s = 0; s < p.n_steps; ++s) {
      const int made = p.n_inputs + s;
      V* to = buffers + made * kTile;
      const auto at =
          std::find(p.outputs.begin(), p.outputs.begin() + p.n_outputs, made) - p.outputs.begin();
      if constexpr (direct) {  // but not over the sums, which a later step may read
        const bool over = at < p.n_outputs && static_cast<const void*>(out[at]) == first;
        if (at < p.n_outputs && !over) to = out[at] + begin;
      }
      const ChainStep& op = step_op(p.steps[s].op);
      const V* in[3];
      for (int i = 0; i < op.arity; ++i) in[i] = value[p.steps[s].in[i]];
      if constexpr (std::is_same_v<V, float>) {
        op.f32(p.steps[s].param, in, to, size);
      } else {
        op.f64(p.steps[s].param, in, to, size);
      }
      value[made] = to;
    }
    for (int r = 0; r < p.n_outputs; ++r) {
      T* const to = out[r] + begin;
      if (static_cast<const void*>(to) != value[p.outputs[r]])
        std::copy_n(value[p.outputs[r]], size, to);
    }
  }
}

template class ChainLoop<float, float>;
template class ChainLoop<double, double>;
template class ChainLoop<bf16, bf16>;
template class ChainLoop<float, bf16>;

Tensors chain_results(const ChainProgram& p, Tensors values) {
  for (int s = 0; s < p.n_steps; ++s) {
    const ChainStep& op = step_op(p.steps[s].op);
    Tensors operands;
    for (int i = 0; i < op.arity; ++i) operands.push_back(values[p.steps[s].in[i]]);
    values.push_back(apply1(*op.op, operands, op.attrs(p.steps[s].param)));
  }
  Tensors out;
  for (int r = 0; r < p.n_outputs; ++r) out.push_back(values[p.outputs[r]]);
  return out;
}

int64_t chain_flops(const ChainProgram& p) {
  int64_t flops = 0;
  for (int s = 0; s < p.n_steps; ++s) flops += step_op(p.steps[s].op).flops;
  return flops;
}

bool is_valid(const ChainProgram& p, bool end) {
  if (p.n_inputs < 1 || p.n_inputs > kChainInputs || p.n_steps < (end ? 0 : 1) ||
      p.n_steps > kChainSteps || p.n_outputs < 1 || p.n_outputs > kChainOutputs)
    return false;
  for (int s = 0; s < p.n_steps; ++s) {
    const auto& step = p.steps[s];
    if (step.op < 0 || size_t(step.op) >= step_count() || step_op(step.op).arity == 0) return false;
    for (int i = 0; i < step_op(step.op).arity; ++i) {
      if (step.in[i] < 0 || step.in[i] >= p.n_inputs + s) return false;
    }
  }
  const auto last = p.outputs.begin() + p.n_outputs;
  return std::all_of(p.outputs.begin(), last, [&](int v) {
    const bool sums = end && v == 0;
    return (sums || v >= p.n_inputs) && v < p.n_inputs + p.n_steps &&
           std::count(p.outputs.begin(), last, v) == 1;
  });
}

ChainCode code_of(const ChainProgram& p) {
  ChainCode code;
  constexpr int kValues = kChainInputs + kChainSteps;
  int last_read[kValues] = {}, place[kValues];  // by value: the last step that reads it; register
  std::fill_n(place, kValues, -1);
  for (int s = 0; s < p.n_steps; ++s) {
    for (int i = 0; i < step_op(p.steps[s].op).arity; ++i) last_read[p.steps[s].in[i]] = s;
  }
  bool used[kValues] = {}, live[kValues] = {};  // by register; by value
  const auto take = [&](int v) {
    place[v] = int(std::find(used, used + kValues, false) - used);
    used[place[v]] = live[v] = true;
    code.registers = std::max(code.registers, place[v] + 1);
    return int8_t(place[v]);
  };
  const auto result_of = [&](int v) {
    const auto end = p.outputs.begin() + p.n_outputs, at = std::find(p.outputs.begin(), end, v);
    return int8_t(at == end ? -1 : at - p.outputs.begin());
  };
  take(0);
  if (result_of(0) >= 0) code.lines[code.n++] = {.result = result_of(0)};
  for (int s = 0; s < p.n_steps; ++s) {
    const ChainProgram::Step& step = p.steps[s];
    const int arity = step_op(step.op).arity;
    for (int i = 0; i < arity; ++i) {
      const int v = step.in[i];
      if (place[v] < 0)
        code.lines[code.n++] = {.op = ChainCode::kLoad, .a = int8_t(v), .to = take(v)};
    }
    ChainCode::Line line{.op = step.op, .a = int8_t(place[step.in[0]]), .param = step.param};
    line.b = int8_t(arity > 1 ? place[step.in[1]] : line.a);
    for (int v = 0; v < p.n_inputs + s; ++v) {  // a step reads before it writes
      if (live[v] && last_read[v] <= s) used[place[v]] = live[v] = false;
    }
    line.to = take(p.n_inputs + s);
    line.result = result_of(p.n_inputs + s);
    code.lines[code.n++] = line;
  }
  return code;
}

int chain_op_number(const OpDef* op) {
  const int number = number_of(op);
  return number >= 0 && step_op(number).arity > 0 ? number : -1;
}

std::optional<Broadcast> broadcast_of(const Tensor& operand, const Shape& shape) {
  const int rank = operand.rank();
  if (!operand.is_contiguous() || rank > shape.rank()) return std::nullopt;
  int first = 0, last = rank;  // without dims of 1 at both ends
  while (first < last && operand.size(first) == 1) ++first;
  while (last > first && operand.size(last - 1) == 1) --last;
  Broadcast b;
  for (int d = first; d < rank; ++d) {
    const int64_t size = shape[d - rank];
    if (d < last && operand.size(d) != size) return std::nullopt;
    (d < last ? b.period : b.inner) *= size;
  }
  b.full = operand.numel() == shape.numel();
  return b;
}

double chain_param(const OpDef* op, const Attrs& attrs) {
  return step_op(number_of(op)).param(attrs);
}
void add_chain_step(const ChainStep& step) { StepTable::get().add(step); }

std::string print_value(const ChainProgram& program) {
  std::string text = std::to_string(program.n_inputs);
  for (int s = 0; s < program.n_steps; ++s) {
    const auto& step = program.steps[s];
    const ChainStep& op = step_op(step.op);
    text += cat(";", op.op->text(),
        op.param && op.attrs(step.param) == op.attrs(0) ? "" : ":" + print_value(step.param));
    for (int i = 0; i < op.arity; ++i) text += cat(i ? "," : "(", int(step.in[i]));
    text += ")";
  }
  for (int o = 0; o < program.n_outputs; ++o) text += cat(o ? "," : ";", int(program.outputs[o]));
  return text;
}

bool parse_value(std::string_view text, ChainProgram& program) {
  ChainProgram p;
  if (!parse_all(cut(text, ';'), p.n_inputs)) return false;
  for (std::string_view part = cut(text, ';'); !part.empty(); part = cut(text, ';')) {
    if (text.empty() && !part.ends_with(')')) {
      p.n_outputs = parse_numbers(part, p.outputs);
      break;
    }
    if (p.n_steps == kChainSteps || !part.ends_with(')')) return false;
    part.remove_suffix(1);
    auto& step = p.steps[p.n_steps++];
    std::string_view head = cut(part, '(');
    const std::string_view name = cut(head, ':');
    const int op = find_step([&](const ChainStep& known) { return known.op->text() == name; });
    if (op < 0) return false;
    step.op = int16_t(op);
    if ((!head.empty() && !parse_all(head, step.param)) ||
        parse_numbers(part, step.in) != step_op(step.op).arity)
      return false;
  }
  if (!is_valid(p, true)) return false;
  program = p;
  return true;
}

}  // namespace sinter
