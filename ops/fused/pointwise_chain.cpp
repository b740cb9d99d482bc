// pointwise_chain: a program of pointwise ops run over tiles of kTile elements, so that the values
// between steps stay in the L1 cache: every input is read once and every output written once. A
// step is a loop over the op's own formula (ops/pointwise/pointwise.h), chosen from a table by the
// op's index: the same bits as the plain ops in f32 and f64; bf16 computes in f32 and rounds its
// outputs only.
#include <array>
#include <atomic>
#include <mutex>

#include "core/numbers.h"
#include "ops/fused/chain_step.h"
#include "ops/fused/pointwise_chain.h"
#include "ops/kernels.h"
#include "ops/ops.h"
#include "ops/pointwise/pointwise_op.h"
#include "ops/rows/row_loops.h"

namespace sinter {
namespace {

constexpr int64_t kTile = 1024;

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

// Values are defined before they are used, steps are steps, results exist.
bool is_valid(const ChainProgram& p) {
  if (p.n_inputs < 1 || p.n_inputs > kChainInputs || p.n_steps < 1 || p.n_steps > kChainSteps ||
      p.n_outputs < 1 || p.n_outputs > kChainOutputs)
    return false;
  for (int s = 0; s < p.n_steps; ++s) {
    const auto& step = p.steps[s];
    if (step.op < 0 || size_t(step.op) >= step_count() || step_op(step.op).arity == 0) return false;
    for (int i = 0; i < step_op(step.op).arity; ++i) {
      if (step.in[i] < 0 || step.in[i] >= p.n_inputs + s) return false;
    }
  }
  return std::all_of(p.outputs.begin(), p.outputs.begin() + p.n_outputs,
      [&](int v) { return v >= p.n_inputs && v < p.n_inputs + p.n_steps; });
}

Tensors infer(Operands in, const Attrs& attrs) {
  const ChainProgram& p = attrs.as<ChainAttrs>().program;
  SINTER_CHECK(is_valid(p) && p.n_inputs == int(in.size()), shape,
      cat("pointwise_chain: ", in.size(), " inputs given; not a program for them: it has ",
          p.n_inputs, " inputs, ", p.n_steps, " steps, ", p.n_outputs, " results; allowed 1..",
          kChainInputs, ", 1..", kChainSteps, ", 1..", kChainOutputs,
          ", each value made before it is read"));
  check_floating("pointwise_chain", "the first operand", in[0]);
  Shape shape;
  for (const Tensor& t : in) {
    SINTER_CHECK(t.defined(), shape, "pointwise_chain: an operand is undefined");
    shape = broadcast_shapes("pointwise_chain", shape, t.shape());
  }
  for (const Tensor& t : in) {
    check_same_dtype("pointwise_chain", "the first operand", in[0], "a later one", t);
    SINTER_CHECK(chain_takes(shape, t), shape,
        cat("pointwise_chain: an operand does not fit: it is ", t.describe(), ", the result is ",
            shape.str(), "; it must equal its last dims"));
  }
  return Tensors(size_t(p.n_outputs), Tensor::shape_only(shape, in[0].dtype(), in[0].device()));
}

Cost cost(Operands in, Operands out, const Attrs& attrs) {
  const ChainProgram& p = attrs.as<ChainAttrs>().program;
  int64_t flops = 0;
  for (int s = 0; s < p.n_steps; ++s) flops += step_op(p.steps[s].op).flops;
  return cost_of(flops * out[0].numel(), in, out);
}

// to[i] = x[(begin + i) mod period], converted.
template <class T, class V>
void load_values(const T* x, int64_t period, int64_t begin, int64_t n, V* to) {
  for (int64_t i = 0; i < n;) {
    const int64_t from = (begin + i) % period, part = std::min(n - i, period - from);
    std::copy_n(x + from, part, to + i);
    i += part;
  }
}

template <class T, class V = compute_t<T>> void run(const Call& call) {
  const ChainProgram& p = call.as<ChainAttrs>().program;
  const int64_t total = call.out[0].numel();
  constexpr bool direct =
      std::is_same_v<T, V>;  // steps read inputs and write outputs where they lie
  const int values = p.n_inputs + p.n_steps;
  parallel_for((total + kTile - 1) / kTile,
      grain_of(kTile * (p.n_inputs + p.n_steps + p.n_outputs) * int64_t(sizeof(V))),
      [&](int64_t first, int64_t last) {
        V* buffers = scratch<V, 3>(values * kTile);
        for (int64_t begin = first * kTile; begin < std::min(last * kTile, total); begin += kTile) {
          const int64_t n = std::min(kTile, total - begin);
          const V* value[kChainInputs + kChainSteps];
          for (int i = 0; i < p.n_inputs; ++i) {
            const T* x = call.in[i].data<T>();
            const int64_t period = call.in[i].numel();
            value[i] = buffers + i * kTile;
            if constexpr (direct) {
              if (period == total) {
                value[i] = x + begin;
                continue;
              }
            }
            load_values(x, period, begin, n, buffers + i * kTile);
          }
          for (int s = 0; s < p.n_steps; ++s) {
            V* out = buffers + (p.n_inputs + s) * kTile;
            const auto at =
                std::find(p.outputs.begin(), p.outputs.begin() + p.n_outputs, p.n_inputs + s) -
                p.outputs.begin();
            if constexpr (direct) {
              if (at < p.n_outputs) out = call.out[at].template data<T>() + begin;
            }
            const ChainStep& op = step_op(p.steps[s].op);
            const V* in[3];
            for (int i = 0; i < op.arity; ++i) in[i] = value[p.steps[s].in[i]];
            if constexpr (std::is_same_v<V, float>) {
              op.f32(p.steps[s].param, in, out, n);
            } else {
              op.f64(p.steps[s].param, in, out, n);
            }
            value[p.n_inputs + s] = out;
          }
          for (int o = 0; o < p.n_outputs; ++o) {
            T* to = call.out[o].template data<T>() + begin;
            if (static_cast<const void*>(to) != value[p.outputs[o]])
              std::copy_n(value[p.outputs[o]], n, to);
          }
        }
      });
}

void cpu(const Call& call) {
  visit_float(call.out[0].dtype(), [&]<class T>(T) { run<T>(call); });
}

Tensors reference(Operands in, const Attrs& attrs) {
  const ChainProgram& p = attrs.as<ChainAttrs>().program;
  Tensors values(in.begin(), in.end()), out;
  for (int s = 0; s < p.n_steps; ++s) {
    const ChainStep& op = step_op(p.steps[s].op);
    Tensors operands;
    for (int i = 0; i < op.arity; ++i) operands.push_back(values[p.steps[s].in[i]]);
    values.push_back(apply1(*op.op, operands, op.attrs(p.steps[s].param)));
  }
  for (int o = 0; o < p.n_outputs; ++o) out.push_back(values[p.outputs[o]]);
  return out;
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

int chain_op_number(const OpDef* op) {
  const int number = number_of(op);
  return number >= 0 && step_op(number).arity > 0 ? number : -1;
}

bool chain_takes(const Shape& shape, const Tensor& operand) {
  if (!operand.is_contiguous() || operand.rank() > shape.rank()) return false;
  int leading = 0;
  while (leading < operand.rank() && operand.size(leading) == 1) ++leading;
  for (int d = leading; d < operand.rank(); ++d) {
    if (operand.size(d) != shape[d - operand.rank()]) return false;
  }
  return true;
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
  if (!is_valid(p)) return false;
  program = p;
  return true;
}

const OpDef kPointwiseChainOp{.name = "pointwise_chain",
    .formula = "a program of pointwise ops, each input read and each output written once",
    .min_inputs = 1,
    .max_inputs = kChainInputs,
    .attrs = attr_type<ChainAttrs>(),
    .infer = infer,
    .cost = cost,
    .cpu = cpu,
    .cuda = SINTER_IF_CUDA(on_cuda::pointwise_chain),
    .simt = on_simt::pointwise_chain,
    .reference = reference};

}  // namespace sinter
