#include "ops/pointwise/chain.h"

#include <algorithm>
#include <atomic>
#include <mutex>

#include "core/numbers.h"
#include "ops/rows/row_loops.h"

namespace sinter {

namespace pointwise_detail {
std::vector<ChainStep> arithmetic_steps();  // pointwise_arithmetic.cpp
std::vector<ChainStep> activation_steps();  // pointwise_activations.cpp
}  // namespace pointwise_detail

namespace {

// The steps: those of pointwise::List, by kStepNumber, then those of the program's own ops. It
// never moves, since running chains read it.
struct StepTable {
  static constexpr size_t kMost = 1024;
  std::array<ChainStep, kMost> steps;
  std::atomic<size_t> size{0};
  std::mutex adding;

  StepTable() {
    for (const ChainStep& step : pointwise_detail::arithmetic_steps()) add(step);
    for (const ChainStep& step : pointwise_detail::activation_steps()) add(step);
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
std::string name_of(const ChainStep& step) { return str(step.op->text(), step.suffix); }

// One pass, all of an element's values in registers.
template <int kEnd, class Z, class T>
[[gnu::flatten]] void end_loop(const void*, char* const* at, int64_t n) {
  static constexpr ChainProgram p = kChainEnds[kEnd];
  const auto f = [](auto... x) __attribute__((always_inline)) {
    compute_t<T> v[p.n_inputs + p.n_steps] = {x...};
    run_end<kEnd>(v);
    return [&]<size_t... R>(std::index_sequence<R...>) { return std::array{v[p.outputs[R]]...}; }(
               std::make_index_sequence<p.n_outputs>());
  };
  [&]<size_t... I>(std::index_sequence<I...>) {
    chain_detail::for_elements<T, Z, std::enable_if_t<(I >= 0), T>...>(at, n, f);
  }(std::make_index_sequence<p.n_inputs - 1>());
}

// Is the program this step of all its operands in their order, and no more?
bool is_step_alone(const ChainProgram& p, const ChainStep& step) {
  bool alone =
      p.n_steps == 1 && p.n_inputs == step.arity && p.n_outputs == 1 && p.outputs[0] == p.n_inputs;
  for (int i = 0; i < step.arity; ++i) alone = alone && p.steps[0].in[i] == i;
  return alone;
}
// The loop of a step alone is the op's; kChainEnds has those of sums in f32 and results in bf16.
template <int kEnd, class Z, class T> constexpr DenseRow loop_of_end() {
  constexpr bool kAlone = kChainEnds[kEnd].n_steps == 1 && kChainEnds[kEnd].n_outputs == 1;
  if constexpr (!kAlone || !std::is_same_v<Z, T>) return end_loop<kEnd, Z, T>;
  return nullptr;
}
template <class Z, class T> DenseRow compiled_loop(const ChainProgram& p) {
  if constexpr (std::is_same_v<Z, T>) {
    const ChainStep& step = step_op(p.steps[0].op);
    if (is_step_alone(p, step)) return step.loops.of(dtype_of<T>);
  }
  static constexpr auto loops = []<size_t... E>(std::index_sequence<E...>) {
    return std::array{loop_of_end<int(E), Z, T>()...};
  }(std::make_index_sequence<kChainEnds.size()>());
  const int end = find_end(p);
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

std::span<const OpDef* const> pointwise_ops() {
  static const std::vector<const OpDef*> ops = [] {
    std::vector<const OpDef*> list;
    for (int i = 0; i < 3 * int(std::tuple_size_v<pointwise::List>); i += 3)
      list.insert(list.end(), {step_op(i).op, step_op(i + 1).op});
    return list;
  }();
  return ops;
}

template <class Z, class T>
ChainLoop<Z, T>::ChainLoop(const ChainProgram& program)
    : program_(program), compiled_(compiled_loop<Z, T>(program)) {}

template <class Z, class T>
void ChainLoop<Z, T>::operator()(
    const Z* first, const T* const* rest, T* const* out, int64_t n) const {
  char* at[kChainInputs + kChainOutputs];
  const auto place = [](const void* data) { return static_cast<char*>(const_cast<void*>(data)); };
  at[0] = place(first);
  for (int k = 1; k < program_.n_inputs; ++k) at[k] = place(rest[k - 1]);
  for (int r = 0; r < program_.n_outputs; ++r) at[program_.n_inputs + r] = place(out[r]);
  (*this)(at, n);
}

template <class Z, class T> void ChainLoop<Z, T>::interpret(char* const* place, int64_t n) const {
  using V = compute_t<T>;
  constexpr bool direct = std::is_same_v<T, V>;  // operands are read, results made where they lie
  const ChainProgram& p = program_;
  const auto out = [&](int64_t r) { return place[p.n_inputs + r]; };
  V* const buffers =
      thread_buffer<V, BufferFor::chain_values>((p.n_inputs + p.n_steps) * kPointwiseTile);
  for (int64_t begin = 0; begin < n; begin += kPointwiseTile) {
    const int64_t size = std::min(kPointwiseTile, n - begin);
    const V* value[kChainInputs + kChainSteps];
    const auto convert = [&]<class X>(int v, const X* x) {
      if constexpr (std::is_same_v<X, V>) {
        value[v] = x + begin;
      } else {
        std::copy_n(x + begin, size, buffers + v * kPointwiseTile);
        value[v] = buffers + v * kPointwiseTile;
      }
    };
    convert(0, reinterpret_cast<const Z*>(place[0]));
    for (int k = 1; k < p.n_inputs; ++k) convert(k, reinterpret_cast<const T*>(place[k]));
    for (int s = 0; s < p.n_steps; ++s) {
      const int made = p.n_inputs + s;
      V* to = buffers + made * kPointwiseTile;
      const auto result =
          std::find(p.outputs.begin(), p.outputs.begin() + p.n_outputs, made) - p.outputs.begin();
      if constexpr (direct) {  // but not over the sums, which a later step may read
        if (result < p.n_outputs && out(result) != place[0])
          to = reinterpret_cast<V*>(out(result)) + begin;
      }
      const ChainStep& op = step_op(p.steps[s].op);
      char* at[4];
      for (int i = 0; i < op.arity; ++i)
        at[i] = reinterpret_cast<char*>(const_cast<V*>(value[p.steps[s].in[i]]));
      at[op.arity] = reinterpret_cast<char*>(to);
      op.loops.of(dtype_of<V>)(&p.steps[s].param, at, size);
      value[made] = to;
    }
    for (int r = 0; r < p.n_outputs; ++r) {
      T* const to = reinterpret_cast<T*>(out(r)) + begin;
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
    values.push_back(apply(*op.op, operands, op.attrs(p.steps[s].param))[size_t(op.result)]);
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
    line.c = int8_t(arity > 2 ? place[step.in[2]] : line.a);
    for (int v = 0; v < p.n_inputs + s; ++v) {  // a step reads before it writes
      if (live[v] && last_read[v] <= s) used[place[v]] = live[v] = false;
    }
    line.to = take(p.n_inputs + s);
    line.result = result_of(p.n_inputs + s);
    code.lines[code.n++] = line;
  }
  return code;
}

int chain_op_number(const OpDef* op, int result) {
  return find_step([&](const ChainStep& step) {
    return step.op == op && step.result == result && step.arity > 0;
  });
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
  return step_op(chain_op_number(op)).param(attrs);
}
void add_chain_step(const ChainStep& step) { StepTable::get().add(step); }

std::string print_value(const ChainProgram& program) {
  std::string text = std::to_string(program.n_inputs);
  for (int s = 0; s < program.n_steps; ++s) {
    const auto& step = program.steps[s];
    const ChainStep& op = step_op(step.op);
    text += str(";", name_of(op),
        op.param && op.attrs(step.param) == op.attrs(0) ? "" : ":" + print_value(step.param));
    for (int i = 0; i < op.arity; ++i) text += str(i ? "," : "(", int(step.in[i]));
    text += ")";
  }
  for (int o = 0; o < program.n_outputs; ++o) text += str(o ? "," : ";", int(program.outputs[o]));
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
    const int op = find_step([&](const ChainStep& known) { return name_of(known) == name; });
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
