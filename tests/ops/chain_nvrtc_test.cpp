// Generated kernels of pointwise chains: their source, what the true NVRTC makes of it (it needs no
// card), and, on the recorder, that each chain is compiled once and that the interpreter runs where
// that fails.
#include <gtest/gtest.h>

#include <random>
#include <regex>
#include <set>
#include <sstream>

#include "ops/fused/pointwise_chain.h"
#include "ops/fused/pointwise_chain_nvrtc.h"
#include "ops/ops.h"
#include "ops/pointwise_op.h"
#include "tests/fake_nvrtc.h"
#if SINTER_HAS_CUDA
#include "core/device/memory.h"
#include "tests/cuda_recorder.h"
#endif

namespace sinter {
namespace {

ChainAttrs chain(const char* text) {
  ChainAttrs attrs;
  EXPECT_TRUE(parse_value(text, attrs.program)) << text;
  return attrs;
}

TEST(ChainSource, SaysWhatItComputes) {
  const int mul = chain_op_number(find_op("mul")), scale = chain_op_number(find_op("scale")),
            back = chain_op_number(find_op("silu_backward"));
  const std::string source =
      chain_source(chain("3;mul(0,1);scale:0.5(3);silu_backward(4,2);4,5").program, DType::bf16,
          std::array<int64_t, 3>{0, 768, 1});
  const std::string wanted[] = {"using T = bf16;",
      cat("  const V v3 = step_value<", mul,
          ">(V(0x0p+0), v0, v1);  // mul\n  const V v4 = step_value<", scale,
          ">(V(0x1p-1), v3);  // scale\n  const V v5 = step_value<", back,
          ">(V(0x0p+0), v4, v2);  // silu_backward\n  return {v4, v5};\n"),
      "pointwise_chain_nvrtc(int64_t n, In<T> x0, In<T> x1, In<T> x2, Out<T> y0, Out<T> y1) {\n",
      "  const V s2 = V(x2[0]);\n",
      "    const auto a0 = x0.load_vec<N>(i);\n    const auto a1 = x1.load_vec<N>(i % 768);\n",
      "      const Results r = chain(V(a0[k]), V(a1[k]), s2);\n      b0[k] = T(r.v4);\n      b1[k] "
      "= T(r.v5);\n",
      "    const Results r = chain(V(x0[i]), V(x1[i % 768]), s2);\n    y0.put(i, T(r.v4));\n    "
      "y1.put(i, T(r.v5));\n"};
  for (const std::string& part : wanted)
    EXPECT_NE(source.find(part), std::string::npos) << "wanted:\n" << part << "found:\n" << source;
}

#if SINTER_HAS_CUDA

// Each step reads the one before it; `used` gets the inputs that are read.
ChainProgram random_chain(std::mt19937& random, std::set<int>& used) {
  const auto below = [&](size_t n) { return static_cast<int>(random() % n); };
  std::vector<const OpDef*> ops;
  for (const OpDef* op : pointwise_ops()) {
    if (chain_op_number(op) >= 0) ops.push_back(op);
  }
  ChainProgram p{.n_inputs = 3, .n_steps = 2 + below(kChainSteps - 1), .n_outputs = 2};
  for (int s = 0; s < p.n_steps; ++s) {
    const int op = chain_op_number(ops[below(ops.size())]), previous = s ? p.n_inputs + s - 1 : 0,
              other = below(p.n_inputs + s);
    p.steps[s] = {.op = static_cast<int16_t>(op),
        .in = {static_cast<int8_t>(previous), static_cast<int8_t>(other)},
        .param = 1.5};
    visit_step(op, [&]<class Op, bool Backward>() {
      for (const int v : {previous, kStepArity<Op, Backward> == 2 ? other : previous}) {
        if (v < p.n_inputs) used.insert(v);
      }
    });
  }
  p.outputs = {static_cast<int8_t>(p.n_inputs), static_cast<int8_t>(p.n_inputs + p.n_steps - 1)};
  return p;
}

// Instructions of PTX: the first word of a statement, after braces, labels and a guard.
std::vector<std::string> opcodes_of(const std::string& ptx) {
  static const std::regex kOpcode(R"(^[\s{]*(?:@!?%\w+\s+)?([a-z][\w.:]*)\b[^;]*;)");
  std::vector<std::string> opcodes;
  std::istringstream lines(ptx.substr(ptx.find(".entry")));
  std::smatch found;
  for (std::string line; std::getline(lines, line);) {
    if (std::regex_search(line, found, kOpcode)) opcodes.push_back(found[1]);
  }
  return opcodes;
}

// What scripts/check_kernels wants of pointwise kernels.
TEST(ChainNvrtc, RandomChainsAreVectorsWithoutFusedOrApproximateArithmetic) {
  std::string why;
  const cuda::Nvrtc* nvrtc = cuda::load_nvrtc(&why);
  if (!nvrtc) GTEST_SKIP() << "no NVRTC: " << why;
  std::mt19937 random(5);
  for (int i = 0; i < 6; ++i) {
    std::set<int> used{0, 1, 2};
    const bool scalar = i == 0;  // of a branch on one the compiler makes two loops
    const ChainProgram program =
        scalar ? chain("3;mul(0,1);add(3,2);silu(4);3,5").program : random_chain(random, used = {});
    const DType dtype = i % 3 == 2 ? DType::bf16 : DType::f32;
    const std::string source =
        chain_source(program, dtype, std::array<int64_t, 3>{0, 768, scalar ? 1 : 0});
    for (const char* arch : {"compute_80", "compute_90a"}) {
      SCOPED_TRACE(cat(arch, "\n", source));
      const cuda::CompiledSource compiled =
          cuda::compile_source(*nvrtc, source, chain_headers(), arch);
      ASSERT_EQ(compiled.error, "");
      EXPECT_NE(compiled.code.find(cat(".entry ", kChainKernel)), std::string::npos);
      const std::vector<std::string> opcodes = opcodes_of(compiled.code);
      const auto count = [&](const char* pattern) {
        return std::count_if(opcodes.begin(), opcodes.end(),
            [p = std::regex(pattern)](const std::string& o) { return std::regex_search(o, p); });
      };
      EXPECT_EQ(count(R"(^ld\.global\.(\w+\.)*v4\.)"), static_cast<int64_t>(used.size()) - scalar);
      EXPECT_EQ(count(R"(^ld\.global\.)") - count(R"(^ld\.global\..*v4)"),
          static_cast<int64_t>(used.size()))
          << "one each for the tail";
      EXPECT_EQ(count(R"(^st\.global\.v4\.)"), 2);
      EXPECT_EQ(count(R"(^st\.global\.)"), 4);
      EXPECT_EQ(count(R"(^fma\b|\.approx\b|\.ftz\b|\.f64\b|^call\b|\.local\b|^atom|^red\.)"), 0);
    }
  }
  const cuda::CompiledSource code =
      cuda::compile_source(*nvrtc, "extern \"C\" __global__ void f() {}", {}, "sm_90");
  EXPECT_TRUE(
      code.code.starts_with("\x7f"
                            "ELF"))
      << code.error;
  const cuda::CompiledSource bad =
      cuda::compile_source(*nvrtc, "int f() { return x; }", chain_headers(), "sm_80");
  EXPECT_EQ(bad.code, "");
  EXPECT_NE(bad.error.find("generated.cu(1): error: "), std::string::npos) << bad.error;
}

// On the recorder: the kernels that ran for a chain of these operands, and how it says that it
// runs.
struct Ran {
  std::string kernel, way;
};
Ran run(const cuda::FakeToolkit& recorder, const Tensors& in,
    const char* program = "2;mul(0,1);silu(2);3") {
  const size_t before = recorder.executed().size();
  const Attrs attrs = chain(program);
  const Tensor y = apply(kPointwiseChainOp, in, attrs)[0];
  EXPECT_EQ(recorder.executed().size(), before + 1);
  const std::string kernel = recorder.executed().back();
  return {kernel.substr(0, kernel.find('<')), chain_way(in, y, attrs)};
}
Tensor card(const Shape& shape, DType dtype = DType::f32) {
  return Tensor::empty(shape, dtype, Device{Device::Type::cuda, 0});
}
const Ran kCompiled{kChainKernel, "compiled by NVRTC"};
void expect_ran(const Ran& ran, const Ran& wanted) {
  EXPECT_EQ(ran.kernel, wanted.kernel);
  EXPECT_EQ(ran.way, wanted.way);
}

TEST(ChainNvrtc, EachChainIsCompiledOnce) {
  cuda::FakeToolkit recorder;
  const test::FakeNvrtc nvrtc;
  for (const int64_t rows : {4, 1, 97})
    expect_ran(run(recorder, {card({rows, 64}), card({64})}), kCompiled);
  EXPECT_EQ(nvrtc.sources.size(), 2u) << "one for any number of rows, one where both are whole";
  expect_ran(run(recorder, {card({4, 64}, DType::bf16), card({64}, DType::bf16)}), kCompiled);
  expect_ran(run(recorder, {card({4, 32}), card({32})}), kCompiled);
  expect_ran(run(recorder, {card({4, 64}), card({64})}, "2;mul(0,1);silu(2);2,3"), kCompiled);
  EXPECT_EQ(nvrtc.sources.size(), 5u);
  EXPECT_EQ(nvrtc.programs, 0);
  EXPECT_EQ(recorder.count("cudaLibraryLoadData"), 5);
  EXPECT_TRUE(recorder.leaks().empty());
}

TEST(ChainNvrtc, WithoutItTheInterpreterRunsAndSaysWhy) {
  const char* const interpreter = "pointwise_chain_vec";
  cuda::FakeToolkit recorder;
  const Tensors in{card({4, 64}), card({64})};
  expect_ran(run(recorder, in), {interpreter, "interpreted: no NVRTC: no card"});
  recorder.leaks();
  {
    const test::FakeNvrtc nvrtc;
    nvrtc.answer = 6;
    for (int i = 0; i < 2; ++i)
      expect_ran(run(recorder, in), {interpreter,
                                        "interpreted: NVRTC: generated.cu(3): error: what is wrong "
                                        "(nvrtcCompileProgram says 6)"});
    EXPECT_EQ(nvrtc.sources.size(), 1u) << "and is not tried again";
    EXPECT_EQ(nvrtc.programs, 0);
  }
  const test::FakeNvrtc nvrtc;
  const std::pair<const char*, const char*> calls[] = {
      {"cudaLibraryLoadData", "4;mul(0,1);4"}, {"cudaLibraryGetKernel", "4;mul(1,0);4"}};
  for (const auto& [call, program] : calls) {
    recorder.fail(call, 1, cudaErrorUnsupportedPtxVersion);
    const Ran ran = run(recorder, {in[0], in[1], in[1], in[1]}, program);
    EXPECT_EQ(ran.kernel, interpreter);
    EXPECT_TRUE(ran.way.starts_with("interpreted: the provided PTX") &&
                ran.way.ends_with(cat(" (", call, " says 222)")))
        << ran.way;
  }
  expect_ran(run(recorder, {card({4, 77}), card({77})}),
      {interpreter, "interpreted: rows of 77 are not whole vectors of 4"});
  const Tensor odd = slice(card({257}), 0, 1, 257);
  EXPECT_EQ(run(recorder, {odd, odd}).kernel, interpreter) << "operands off 16 bytes";
}

#else

TEST(ChainNvrtc, NotInThisBuild) { GTEST_SKIP() << "generated kernels need the CUDA toolkit"; }

#endif

}  // namespace
}  // namespace sinter
