#include "ops/fused/pointwise_chain_nvrtc.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "core/device/cuda.h"
#include "core/device/launch_log.h"
#include "ops/fused/pointwise_chain.h"
#include "ops/kernels.h"
#include "ops/pointwise_op.h"

namespace sinter {
namespace {

constexpr int kThreads = 256, kMaxBlocks = 132 * 8;  // a full wave

#if SINTER_HAS_CUDA
// The kernel for these operands; `why` if there is none.
cuda::SourceKernel kernel_for(Operands in, const Tensor& out, const Attrs& attrs) {
  const auto elements = int64_t(16 / size_of(out.dtype()));
  std::vector<int64_t> periods;
  for (const Tensor& t : in) {
    const int64_t period = t.numel();
    periods.push_back(period == out.numel() ? 0 : period);
    if (periods.back() > 1 && period % elements != 0)
      return {.function = nullptr,
          .why = cat("rows of ", period, " are not whole vectors of ", elements)};
  }
  return cuda::kernel_of_source(chain_source(attrs.as<ChainAttrs>().program, out.dtype(), periods),
      kChainKernel, chain_headers());
}
#endif

}  // namespace

std::string chain_source(const ChainProgram& p, DType dtype, std::span<const int64_t> periods) {
  const char* type = dtype == DType::f32 ? "float" : dtype == DType::f64 ? "double" : "bf16";
  // f(i) for inputs or results, with commas between.
  const auto list = [](int n, const auto& f) {
    std::string all;
    for (int i = 0; i < n; ++i) all += (i ? ", " : "") + f(i);
    return all;
  };
  const auto at = [&](int i) {
    return periods[i] ? fmt::format("i % {}", periods[i]) : std::string("i");
  };
  const auto value = [](int v) { return fmt::format("v{}", v); };
  std::string steps, scalars, loads, puts, stores, rounds;
  for (int s = 0; s < p.n_steps; ++s) {
    const auto& step = p.steps[s];
    int operands = 0;
    visit_step(step.op, [&]<class Op, bool Backward>() { operands = kStepArity<Op, Backward>; });
    steps += fmt::format("  const V v{} = step_value<{}>(V({:a}), {});  // {}\n", p.n_inputs + s,
        step.op, step.param, list(operands, [&](int i) { return value(step.in[i]); }),
        pointwise_ops()[step.op]->text());
  }
  for (int i = 0; i < p.n_inputs; ++i) {
    if (periods[i] == 1)
      scalars += fmt::format("  const V s{0} = V(x{0}[0]);\n", i);
    else
      loads += fmt::format("    const auto a{0} = x{0}.load_vec<N>({1});\n", i, at(i));
  }
  for (int o = 0; o < p.n_outputs; ++o) {
    rounds += fmt::format("      b{}[k] = T(r.v{});\n", o, p.outputs[o]);
    stores += fmt::format("    y{0}.store_vec(i, b{0});\n", o);
    puts += fmt::format("    y{}.put(i, T(r.v{}));\n", o, p.outputs[o]);
  }
  const auto operands = [&](auto&& element) {
    return list(p.n_inputs, [&](int i) {
      return periods[i] == 1 ? fmt::format("s{}", i) : fmt::format("V({})", element(i));
    });
  };
  return fmt::format(R"(#include "core/device/kernel.h"
#include "ops/fused/pointwise_chain.h"

namespace sinter::on_cuda {{

// {program}
using T = {type};
using V = compute_t<T>;
constexpr int N = kVec<T>;
constexpr double inf = INFINITY, nan = NAN;
struct Results {{
  V {results};
}};
SINTER_DEVICE_FN Results chain({values}) {{
{steps}  return {{{results}}};
}}

extern "C" SINTER_KERNEL_BOUNDS({threads})
{name}(int64_t n, {inputs}, {outputs}) {{
  const int64_t first = block_x() * {threads} + thread_x(), step = grid_x() * {threads};
{scalars}  for (int64_t i = first * N; i + N <= n; i += step * N) {{
{loads}    Vec<T, N> {vectors};
    SINTER_UNROLL
    for (int k = 0; k < N; ++k) {{
      const Results r = chain({of_vectors});
{rounds}    }}
{stores}  }}
  SINTER_NO_UNROLL
  for (int64_t i = n / N * N + first; i < n; i += step) {{
    const Results r = chain({of_elements});
{puts}  }}
}}

}}  // namespace sinter::on_cuda
)",
      fmt::arg("program", print_value(p)), fmt::arg("type", type), fmt::arg("threads", kThreads),
      fmt::arg("name", kChainKernel),
      fmt::arg("results", list(p.n_outputs, [&](int o) { return value(p.outputs[o]); })),
      fmt::arg("values", list(p.n_inputs, [&](int i) { return "V " + value(i); })),
      fmt::arg("steps", steps),
      fmt::arg("inputs", list(p.n_inputs, [](int i) { return fmt::format("In<T> x{}", i); })),
      fmt::arg("outputs", list(p.n_outputs, [](int o) { return fmt::format("Out<T> y{}", o); })),
      fmt::arg("scalars", scalars), fmt::arg("loads", loads),
      fmt::arg("vectors", list(p.n_outputs, [](int o) { return fmt::format("b{}", o); })),
      fmt::arg("of_vectors", operands([](int i) { return fmt::format("a{}[k]", i); })),
      fmt::arg("rounds", rounds), fmt::arg("stores", stores),
      fmt::arg("of_elements", operands([&](int i) { return fmt::format("x{}[{}]", i, at(i)); })),
      fmt::arg("puts", puts));
}

std::string chain_way([[maybe_unused]] Operands in, [[maybe_unused]] const Tensor& out,
    [[maybe_unused]] const Attrs& attrs) {
#if SINTER_HAS_CUDA
  const cuda::SourceKernel kernel = kernel_for(in, out, attrs);
  return kernel.function ? "compiled by NVRTC" : "interpreted: " + kernel.why;
#else
  return "interpreted: CUDA is not in this build";
#endif
}

#if SINTER_HAS_CUDA
void on_cuda::generated_pointwise_chain(const Call& call) {
  const Tensor& y = call.out[0];
  if (y.numel() == 0) return;
  const auto aligned = [](const Tensor& t) {
    return t.numel() == 1 || reinterpret_cast<uintptr_t>(t.raw()) % 16 == 0;
  };
  if (!std::all_of(call.in.begin(), call.in.end(), aligned) ||
      !std::all_of(call.out.begin(), call.out.end(), aligned))
    return pointwise_chain(call);
  const void* kernel = kernel_for(call.in, y, call.attrs).function;
  if (!kernel) return pointwise_chain(call);
  int64_t n = y.numel();
  void* operands[kChainInputs + kChainOutputs];
  std::vector<void*> arguments{&n};
  for (const Operands& tensors : {Operands(call.in), Operands(call.out)}) {
    for (const Tensor& t : tensors) {
      void*& at = operands[arguments.size() - 1];
      at = t.raw();
      arguments.push_back(&at);
    }
  }
  const int64_t vectors = n / int64_t(16 / size_of(y.dtype()));
  static const std::vector<size_t> bytes(1 + std::size(operands), sizeof(void*));
  const LaunchShape shape{kChainKernel,
      Grid{std::clamp<int64_t>((vectors + kThreads - 1) / kThreads, 1, kMaxBlocks)}, kThreads, 0,
      std::span(bytes).first(arguments.size())};
  if (!cuda::rehearsing()) log_launch(shape);
  cuda::launch(kernel, shape, arguments.data());
}
#endif

}  // namespace sinter
