// cuBLASLt as we ask it: on a recorder that keeps the questions, the answers computed here by the
// library's own column-major definition.
#include <gtest/gtest.h>

#include <cmath>

#include "core/device/launch_hook.h"
#include "core/device/launch_log.h"
#include "ops/fused/activation.h"
#include "ops/ops.h"
#include "ops/product/gemm_library.h"
#include "tests/closeness.h"
#include "tests/gpu_test.h"
#include "tests/ops/ends.h"
#include "tests/test_util.h"

#if SINTER_HAS_CUDA
#include "core/device/cuda.h"
#include "core/device/cuda_graph.h"
#include "core/device/cuda_stream.h"
#include "core/device/kept_choices.h"
#include "core/device/memory.h"
#include "tests/cuda_recorder.h"
#endif

namespace sinter {
namespace {

// Asks beside an own kernel, which is not looked at.
bool ask(
    const Gemm& gemm, const void* a, const void* b, const void* bias, void* c,
    const std::function<void()>& own = [] {}) {
  return cublaslt_gemm(gemm, a, b, bias, c, own);
}

#if !SINTER_HAS_CUDA

TEST(GemmPlans, DeclinesWithoutTheToolkit) {
  float x = 0;
  EXPECT_FALSE(ask({.m = 1, .n = 1, .k = 1, .lda = 1, .ldb = 1, .ldc = 1}, &x, &x, nullptr, &x));
  GTEST_SKIP() << "cuBLASLt's headers are not there";
}

#else

struct Block {
  explicit Block(size_t n) : bytes(n), at(cuda::allocator(0).allocate(n)) {}
  ~Block() { cuda::allocator(0).release(at, bytes); }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  float* host() const { return static_cast<float*>(cuda::FakeToolkit::host(at)); }
  size_t bytes;
  void* at;
};

// D = op(A) op(B) + beta D + bias over rows, then the epilogue, all column-major: what
// cublasLtMatmul means. GELU: as ours.
void compute(const cuda::FakeToolkit::Matmul& q) {
  const auto at = [](const void* p, const cuda::FakeToolkit::Matrix& m, int64_t row,
                      int64_t column) -> float& {
    EXPECT_LT(row, m.rows);
    EXPECT_LT(column, m.columns);
    EXPECT_GE(m.ld, m.rows);
    return static_cast<float*>(cuda::FakeToolkit::host(p))[row + column * m.ld];
  };
  const int64_t inner = q.transpose_a ? q.a.rows : q.a.columns;
  EXPECT_EQ(inner, q.transpose_b ? q.b.columns : q.b.rows);
  EXPECT_EQ(q.c.rows, q.transpose_a ? q.a.columns : q.a.rows);
  EXPECT_EQ(q.c.columns, q.transpose_b ? q.b.rows : q.b.columns);
  for (int64_t i = 0; i < q.c.rows; ++i) {
    for (int64_t j = 0; j < q.c.columns; ++j) {
      float sum = 0;
      for (int64_t k = 0; k < inner; ++k) {
        sum += (q.transpose_a ? at(q.pa, q.a, k, i) : at(q.pa, q.a, i, k)) *
               (q.transpose_b ? at(q.pb, q.b, j, k) : at(q.pb, q.b, k, j));
      }
      if (q.beta != 0) sum += q.beta * at(q.pc, q.c, i, j);
      if (q.epilogue & CUBLASLT_EPILOGUE_BIAS)
        sum += static_cast<float*>(cuda::FakeToolkit::host(q.bias))[i];
      const int form = q.epilogue & ~CUBLASLT_EPILOGUE_BIAS;
      const auto pre = [&]() -> float& {
        return static_cast<float*>(cuda::FakeToolkit::host(q.aux))[i + j * q.aux_ld];
      };
      if (form == CUBLASLT_EPILOGUE_GELU_AUX) pre() = sum;
      if (form == CUBLASLT_EPILOGUE_RELU) sum = std::max(sum, 0.f);
      if (form == CUBLASLT_EPILOGUE_GELU || form == CUBLASLT_EPILOGUE_GELU_AUX)
        sum = pointwise::GeluTanh{}.forward(sum);
      if (form == CUBLASLT_EPILOGUE_DGELU) sum = pointwise::GeluTanh{}.grad(sum, pre());
      at(q.pc, q.c, i, j) = sum;
    }
  }
  for (int64_t j = 0; q.epilogue == CUBLASLT_EPILOGUE_BGRADB && j < q.c.columns; ++j) {
    float& sum = static_cast<float*>(const_cast<void*>(cuda::FakeToolkit::host(q.bias)))[j];
    sum = 0;
    for (int64_t k = 0; k < inner; ++k)
      sum += q.transpose_b ? at(q.pb, q.b, j, k) : at(q.pb, q.b, k, j);
  }
}

void fill_with(const Block& block, uint64_t seed) {
  const Tensor values =
      cast(sample_tensor({int64_t(block.bytes / sizeof(float))}, seed), DType::f32);
  std::copy_n(values.data<float>(), values.numel(), block.host());
}

// Every product of the table in the guide, and the forms beside it: the same as on the CPU.
TEST(GemmPlans, RowMajorQuestions) {
  cuda::FakeToolkit recorder;
  for (int form = 0; form < 8; ++form) {
    Gemm g{.m = 5,
        .n = 7,
        .k = 3,
        .trans_a = (form & 1) != 0,
        .trans_b = (form & 2) != 0,
        .lda = 0,
        .ldb = 0,
        .ldc = 9};
    const bool with_bias = (form & 4) != 0;
    g.lda = (g.trans_a ? g.m : g.k) + 1;
    g.ldb = (g.trans_b ? g.k : g.n) + 2;
    const Block a(size_t{4} * 64), b(size_t{4} * 64), bias(size_t{4} * 64), c(size_t{4} * 64);
    fill_with(a, 1);
    fill_with(b, 2);
    fill_with(bias, 3);
    fill_with(c, 4);
    std::vector<float> want(c.host(), c.host() + 64);
    gemm(g, a.host(), b.host(), with_bias ? bias.host() : nullptr, want.data());
    recorder.clear_log();
    ASSERT_TRUE(ask(g, a.at, b.at, with_bias ? bias.at : nullptr, c.at));
    ASSERT_EQ(recorder.matmuls().size(), 3u);  // to load it, to count it, and what was asked for
    compute(recorder.matmuls().back());
    ASSERT_TRUE(test::close(std::vector<float>(c.host(), c.host() + 64), want, {.absolute = 1e-5}))
        << "form " << form;
  }
}

// Several products are one question, whose alignment is that of all of them; heads of several
// sequences lie unevenly, and are the own kernel's.
TEST(GemmPlans, ProductsThatLieEvenlyAreOneQuestion) {
  cuda::FakeToolkit recorder;
  const auto empty = [](const Shape& shape) {
    return Tensor::empty(shape, DType::f32, test::kCuda);
  };
  matmul(empty({2, 3, 4, 8}), empty({3, 8, 6}));
  EXPECT_TRUE(recorder.matmuls().empty());
  matmul(transpose(empty({2, 4, 3, 8}), 1, 2), empty({2, 3, 8, 6}));
  EXPECT_TRUE(recorder.matmuls().empty());
  matmul(transpose(empty({1, 4, 3, 8}), 1, 2), empty({3, 8, 6}));
  matmul(empty({2, 3, 4, 8}), empty({2, 3, 8, 6}));
  ASSERT_FALSE(recorder.matmuls().empty());
  const cuda::FakeToolkit::Matmul q = recorder.matmuls().back();
  EXPECT_EQ(q.a.count, 6);
  EXPECT_EQ(q.a.apart, 8 * 6);
  EXPECT_EQ(q.b.count, 6);
  EXPECT_EQ(q.b.apart, 4 * 8);
  EXPECT_EQ(q.c.apart, 4 * 6);
  EXPECT_EQ(recorder.count("cublasLtMatmulAlgoGetHeuristic"), 2);
}

TEST(GemmPlans, OnePlanPerQuestion) {
  cuda::FakeToolkit recorder;
  const Block a(4096), b(4096), c(4096);
  const Gemm g{.m = 4, .n = 8, .k = 16, .lda = 16, .ldb = 8, .ldc = 8};
  const auto shifted = [](const Block& block, int elements) {
    return static_cast<void*>(static_cast<char*>(block.at) + 4 * elements);
  };
  const LaunchLog log;
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(ask(g, a.at, b.at, nullptr, c.at));
  EXPECT_EQ(recorder.count("cublasLtMatmulAlgoGetHeuristic"), 1);
  EXPECT_TRUE(ask(g, a.at, b.at, nullptr, shifted(c, 1)));
  EXPECT_EQ(recorder.count("cublasLtMatmulAlgoGetHeuristic"), 2)
      << "another alignment is another question";
  EXPECT_TRUE(ask(g, a.at, b.at, nullptr, shifted(c, 4)));
  EXPECT_EQ(recorder.count("cublasLtMatmulAlgoGetHeuristic"), 2)
      << "beyond 16 bytes it is the same: the arena of a replay lies on 64, eager blocks on 256";
  EXPECT_TRUE(ask(g, a.at, b.at, b.at, c.at));
  {
    const test::Scoped tf32(allow_tf32, set_allow_tf32, true);
    EXPECT_TRUE(ask(g, a.at, b.at, nullptr, c.at));
  }
  EXPECT_EQ(recorder.count("cublasLtMatmulAlgoGetHeuristic"), 4);
  EXPECT_EQ(log.launches().size(), 7u);
}

// How much shared memory a block may have is asked at each launch of an own product, so it is one
// question.
TEST(GemmPlans, AnOwnProductAsksTheCardNoMoreThanItNeeds) {
  cuda::FakeToolkit recorder;
  const ScopedChoiceRule rule(ChoiceRule::own);
  const Tensor x = Tensor::empty({64, 1024}, DType::bf16, test::kCuda), w = x;
  linear(x, w);
  recorder.clear_log();
  linear(x, w);
  EXPECT_EQ(recorder.count("cudaDriverGetVersion"), 0);
  EXPECT_LE(recorder.count("cudaDeviceGetAttribute"), 3);
}

// One that fails when it is run is none: the next is taken, or the caller's own kernel.
TEST(GemmPlans, AProposalThatFailsIsLeftOut) {
  for (const auto choice : {ChoiceRule::model, ChoiceRule::measured}) {
    const ScopedChoiceRule rule(choice);
    for (const int broken : {1, 3}) {
      cuda::FakeToolkit recorder;
      recorder.set({.broken = broken});
      const Block a(4096);
      const auto own = [&] {  // 4 us
        for (int i = 0; i < 2; ++i) fill_bytes(a.at, test::kCuda, 0, 4);
      };
      EXPECT_EQ(ask({.m = 4, .n = 4, .k = 4, .lda = 4, .ldb = 4, .ldc = 4}, a.at, a.at, nullptr,
                    a.at, own),
          broken < 3);
    }
  }
}

TEST(GemmPlans, NothingProposed) {
  cuda::FakeToolkit recorder;
  recorder.set({.proposals = 0});
  const Block a(4096);
  const LaunchLog log;
  EXPECT_FALSE(
      ask({.m = 4, .n = 4, .k = 4, .lda = 4, .ldb = 4, .ldc = 4}, a.at, a.at, nullptr, a.at));
  EXPECT_TRUE(log.launches().empty());
  EXPECT_TRUE(recorder.matmuls().empty());
}

// Plans and workspaces are made in the rehearsal; the branches of a graph have a workspace each.
TEST(GemmPlans, InAGraph) {
  cuda::FakeToolkit recorder;
  const auto a = std::make_unique<Block>(4096);
  const auto product = [&](int64_t m) {
    EXPECT_TRUE(
        ask({.m = m, .n = 4, .k = 4, .lda = 4, .ldb = 4, .ldc = 4}, a->at, a->at, nullptr, a->at));
  };
  {
    cuda::GraphBuilder builder(2, true);
    std::unique_ptr<cuda::DeviceGraph> graph;
    for (const auto pass : {cuda::Pass::rehearsal, cuda::Pass::capture}) {
      builder.begin(pass);
      builder.record(0);
      builder.switch_to(1);
      builder.wait(0);
      product(2);
      builder.record(1);
      builder.switch_to(0);
      product(3);
      builder.wait(1);
      graph = builder.end();
    }
    EXPECT_EQ(
        recorder.graphs()[0].names(), (std::vector<std::string>{"cublaslt_gemm", "cublaslt_gemm"}));
    const std::vector<cuda::FakeToolkit::Matmul> matmuls =
        recorder.matmuls();  // two plans of two, two nodes
    ASSERT_EQ(matmuls.size(), 6u);
    EXPECT_NE(matmuls[4].workspace, matmuls[5].workspace);
  }
  cuda::GraphBuilder builder(0, false);
  builder.begin(cuda::Pass::capture);
  EXPECT_EQ(test::message_of([&] { product(5); }),
      "cuda: a matrix product without a plan inside a captured step");
}

// ---- epilogues
// -------------------------------------------------------------------------------------------------------------------------

using test::kCuda;

// The ops and forms for which the library has an epilogue. Values are small whole numbers: sums are
// exact in every type and order.
struct Case {
  const OpDef* op;
  Attrs attrs;
  Tensors in;
  int epilogue;  // 0: none of the library's has this form
  const char* what;
};
Tensor whole(const Shape& shape, uint64_t seed, DType dtype) {
  const Tensor t = sample_tensor(shape, seed, -3.5, 3.5);
  for (int64_t i = 0; i < t.numel(); ++i) t.data<double>()[i] = std::round(t.data<double>()[i]);
  return cast(t, dtype);
}
std::vector<Case> cases(DType dtype) {
  constexpr int64_t kB = 24, kI = 40, kO = 136;
  const Tensor x = whole({kB, kI}, 1, dtype), weight = whole({kO, kI}, 2, dtype),
               bias = whole({kO}, 3, DType::f32), dy = whole({kB, kO}, 4, dtype),
               pre = whole({kB, kI}, 5, dtype), odd = whole({kO - 3, kI}, 2, dtype);
  const auto forward = [&](Act act, bool keep) { return ends::linear_act(act, keep, dtype); };
  return {{&kLinearOp, LinearAttrs{dtype}, {x, weight, bias}, CUBLASLT_EPILOGUE_BIAS, "bias"},
      {&kProductChainOp, forward(Act::relu, false), {x, weight, bias}, CUBLASLT_EPILOGUE_RELU_BIAS,
          "relu"},
      {&kProductChainOp, forward(Act::relu, false), {x, odd}, CUBLASLT_EPILOGUE_RELU,
          "relu, no bias, odd"},
      {&kProductChainOp, forward(Act::relu, true), {x, weight, bias}, 0, "relu and pre"},
      {&kProductChainOp, forward(Act::gelu_tanh, false), {x, weight, bias},
          CUBLASLT_EPILOGUE_GELU_BIAS, "gelu_tanh"},
      {&kProductChainOp, forward(Act::gelu_tanh, true), {x, weight, bias},
          CUBLASLT_EPILOGUE_GELU_AUX_BIAS, "gelu_tanh and pre"},
      {&kProductChainOp, forward(Act::gelu_tanh, true), {x, odd}, 0, "gelu_tanh, rows of no eight"},
      {&kProductChainOp, forward(Act::gelu, true), {x, weight, bias}, 0, "gelu by erf"},
      {&kProductChainOp, forward(Act::silu, true), {x, weight, bias}, 0, "silu"},
      {&kProductChainOp, ends::input_grad_act(Act::relu, dtype), {dy, weight, {}, pre}, 0,
          "relu backward"},
      {&kProductChainOp, ends::input_grad_act(Act::gelu_tanh, dtype), {dy, weight, {}, pre},
          CUBLASLT_EPILOGUE_DGELU, "gelu_tanh backward"},
      {&kProductChainOp, ends::input_grad_act(Act::gelu, dtype), {dy, weight, {}, pre}, 0,
          "gelu backward by erf"},
      {&kWeightBiasGradOp, {}, {dy, x}, CUBLASLT_EPILOGUE_BGRADB, "bias gradient"}};
}
Tensors on_cuda(const Tensors& in) {
  Tensors out;
  for (const Tensor& t : in) out.push_back(t.defined() ? t.to(kCuda) : t);
  return out;
}

// What is asked, computed by the library's own definition, is what the CPU gives: pointers, leading
// dimensions, types, layouts.
TEST(GemmEpilogues, TheLibraryIsAskedForWhatTheOpMeans) {
  cuda::FakeToolkit recorder;
  const ScopedChoiceRule rule(ChoiceRule::library);
  for (const Case& c : cases(DType::f32)) {
    SCOPED_TRACE(c.what);
    recorder.clear_log();
    const Tensors in = on_cuda(c.in), got = apply(*c.op, in, c.attrs),
                  want = apply(*c.op, c.in, c.attrs);
    ASSERT_EQ(recorder.matmuls().empty(), c.epilogue == 0);
    if (c.epilogue == 0) continue;
    const cuda::FakeToolkit::Matmul q = recorder.matmuls().back();
    EXPECT_EQ(q.epilogue, c.epilogue);
    if (c.op == &kProductChainOp && got.size() > 1) {
      EXPECT_EQ(q.aux, got[1].raw());
    }
    EXPECT_EQ(recorder.executed().back(), "cublaslt_gemm");
    compute(q);
    for (size_t i = 0; i < got.size(); ++i)  // y, then the pre-activation
      EXPECT_TRUE(test::close(
          got[i].to(kCpu), want[i].to(kCpu), {.of_each = 1e-5, .absolute = 1e-5, .empty = true}));
  }
  for (const Case& c :
      cases(DType::bf16)) {  // bf16 from bf16, but f32 gradients of parameters; biases are f32
    SCOPED_TRACE(c.what);
    recorder.clear_log();
    const Tensors in = on_cuda(c.in), got = apply(*c.op, in, c.attrs);
    const bool other_bias = c.in.size() > 2 && c.in[2].defined() &&
                            c.in[2].dtype() != got[0].dtype() &&
                            (c.op == &kLinearOp || c.op == &kProductChainOp);
    ASSERT_EQ(recorder.matmuls().empty(), c.epilogue == 0 || other_bias);
    if (recorder.matmuls().empty()) continue;
    const cuda::FakeToolkit::Matmul q = recorder.matmuls().back();
    EXPECT_EQ(q.a.type, CUDA_R_16BF);
    EXPECT_EQ(q.c.type, c.op == &kWeightBiasGradOp ? CUDA_R_32F : CUDA_R_16BF);
    if (q.bias) {
      EXPECT_EQ(q.bias_type, q.c.type);
    }
    if (q.aux) {
      EXPECT_EQ(q.aux_ld % 8, 0);
      EXPECT_GE(q.aux_ld, q.c.rows);
    }
  }
}

struct Heard final : LaunchHook {
  void before(DeviceCall& call) noexcept override {
    launches.push_back(call.work == DeviceWork::kernel ? call.launches : -1);
  }
  void after(DeviceCall&) noexcept override {}
  void memory(const void*, const void*, int64_t, int64_t) noexcept override {}
  std::vector<int> launches;
};
// Runs a case and says who made it: (kernel, launches that the hook was told of).
std::pair<std::string, int> maker(const cuda::FakeToolkit& recorder, const Case& c) {
  static Heard& heard = *new Heard;
  const Tensors in = on_cuda(c.in);
  heard.launches.clear();
  g_launch_hook = &heard;
  apply(*c.op, in, c.attrs);
  g_launch_hook = nullptr;
  const std::string kernel = recorder.executed().back();
  return {
      kernel.substr(0, kernel.find("_ffma")), heard.launches.empty() ? -1 : heard.launches.back()};
}
using Made = std::pair<std::string, int>;

TEST(GemmEpilogues, TheOwnKernelUnlessTheLibraryIsMeasuredFaster) {
  cuda::FakeToolkit recorder;
  const std::vector<Case> all = cases(DType::f32);
  const Case &bias = all[0], &relu = all[2], &gradient = all[12];
  EXPECT_EQ(maker(recorder, bias), Made("cublaslt_gemm", 1));
  EXPECT_EQ(maker(recorder, relu), Made("product_chain", 1))
      << "one launch each: nobody asked the library";
  EXPECT_EQ(recorder.count("cublasLtMatmulAlgoGetHeuristic"), 1);
  {
    const ScopedChoiceRule rule(ChoiceRule::measured);  // the own kernels take 2 us here
    recorder.set({.gemm_ns = 1500});
    EXPECT_EQ(maker(recorder, relu), Made("cublaslt_gemm", 1));
    recorder.set({.gemm_ns = 2500});
    EXPECT_EQ(maker(recorder, gradient), Made("weight_bias_grad", 1));
    const int64_t asked = recorder.count("cublasLtMatmulAlgoGetHeuristic"),
                  counted = recorder.count("cudaGraphGetNodes");
    EXPECT_EQ(maker(recorder, relu), Made("cublaslt_gemm", 1));
    EXPECT_EQ(maker(recorder, gradient), Made("weight_bias_grad", 1));
    EXPECT_EQ(recorder.count("cublasLtMatmulAlgoGetHeuristic"), asked) << "once per plan";
    EXPECT_EQ(recorder.count("cudaGraphGetNodes"), counted) << "once per plan";
  }
  EXPECT_EQ(maker(recorder, relu), Made("cublaslt_gemm", 1)) << "what was measured stays";
  const ScopedChoiceRule rule(ChoiceRule::own);
  EXPECT_EQ(maker(recorder, bias), Made("matmul", 1));
}

// Each recorder stands for a process.
TEST(GemmEpilogues, WhatAnEarlierProcessMeasuredIsTaken) {
  const test::TempDir folder;
  const test::ScopedEnv cache("XDG_CACHE_HOME", folder.path().c_str());
  const ScopedChoiceRule rule(ChoiceRule::measured);
  const auto process = [](const cuda::FakeToolkit::Machine& machine) {
    cuda::FakeToolkit recorder;
    recorder.set(machine);
    set_keep_choices(true);
    const std::string made_by = maker(recorder, cases(DType::f32)[2]).first;
    return std::pair(made_by, recorder.count("cudaEventElapsedTime") > 0 ? "measured" : "kept");
  };
  using Process = std::pair<std::string, const char*>;
  const Process library{"cublaslt_gemm", "measured"}, own{"product_chain", "measured"},
      kept{"cublaslt_gemm", "kept"};
  EXPECT_EQ(process({.gemm_ns = 1500}), library) << "the own kernel takes 2 us here";
  EXPECT_EQ(process({.gemm_ns = 2500}), kept);
  EXPECT_EQ(process({.proposals = 0}), Process("product_chain", "kept"))
      << "what was kept is proposed no more, and there is nothing to measure";
  EXPECT_EQ(process({.broken = 1, .gemm_ns = 1500}), library) << "it runs no more: the next one";
  EXPECT_EQ(process({.gemm_ns = 2500}), kept);
  EXPECT_EQ(process({.name = "Other card", .gemm_ns = 2500}), own);
  EXPECT_EQ(process({.driver = CUDART_VERSION + 10, .gemm_ns = 2500}), own);
}

// An op that counts as one launch is never two kernels of the library's; a product of its own may
// be, and says so.
TEST(GemmEpilogues, AsManyKernelsAsAreCounted) {
  cuda::FakeToolkit recorder;
  recorder.set({.gemm_kernels = 2});
  const std::vector<Case> all = cases(DType::f32);
  const Case &bias = all[0], &relu = all[2], &gradient = all[12];
  EXPECT_EQ(maker(recorder, bias), Made("cublaslt_gemm", 2));
  for (const auto choice : {ChoiceRule::library, ChoiceRule::measured}) {
    const ScopedChoiceRule rule(choice);
    EXPECT_EQ(maker(recorder, relu), Made("product_chain", 1));
  }
  recorder.set({.proposals = 0});
  const ScopedChoiceRule rule(ChoiceRule::library);
  EXPECT_EQ(maker(recorder, gradient), Made("weight_bias_grad", 1)) << "offered none";
  recorder.set({});
  recorder.fail("cudaStreamEndCapture", 1, cudaErrorStreamCaptureInvalidated);
  const Case other{&kLinearOp, LinearAttrs{DType::f32}, {bias.in[0], bias.in[1]}, 0, "no bias"};
  EXPECT_EQ(maker(recorder, other), Made("cublaslt_gemm", 1))
      << "of the next one, which was counted";
}

// What fails while a plan is made is told by its name, or costs a candidate; later, it is told.
TEST(GemmPlans, EveryCallFailsInTurn) {
  const Case c = cases(DType::f32)[2];
  cuda::FakeToolkit recorder;
  recorder.set({.proposals = 2});  // one may fail
  const auto scenario = [&] {
    const Block a(4096);
    EXPECT_TRUE(
        ask({.m = 4, .n = 4, .k = 4, .lda = 4, .ldb = 4, .ldc = 4}, a.at, a.at, a.at, a.at));
    const ScopedChoiceRule rule(ChoiceRule::measured);
    apply(*c.op, on_cuda(c.in), c.attrs);
    cuda::synchronize();
  };
  const auto calls_of_scenario = [&] {
    recorder.clear_log();
    scenario();
    return int64_t(recorder.calls().size());
  };
  const int64_t with_plans = calls_of_scenario(), without = calls_of_scenario();
  ASSERT_GT(with_plans, without);
  for (const bool planned : {false, true}) {
    for (int64_t n = 1; n <= (planned ? without : with_plans); ++n) {
      ASSERT_TRUE(recorder.leaks().empty()) << recorder.failed();
      if (planned) scenario();
      recorder.fail_any(n);
      const std::string message = test::message_of(scenario), failed = recorder.failed();
      const bool told = failed.find("Destroy") == std::string::npos &&
                        failed.find("Free") == std::string::npos && failed != "cudaGetLastError";
      EXPECT_TRUE(message.empty() ? !planned || !told
                                  : message.find(failed + " says ") != std::string::npos)
          << "call " << n << ", " << failed << ": " << message;
    }
  }
}

using GemmEpiloguesGpu = test::GpuTest;
// Each epilogue that this library offers against the own kernel; which are offered is a property of
// the test's report.
TEST_F(GemmEpiloguesGpu, GiveWhatTheOwnKernelsGive) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const Case& c : cases(dtype)) {
      SCOPED_TRACE(str(name_of(dtype), " ", c.what));
      const Tensors in = on_cuda(c.in);
      Tensors by_own, by_library;
      {
        const ScopedChoiceRule rule(ChoiceRule::own);
        by_own = apply(*c.op, in, c.attrs);
      }
      const LaunchLog log;
      const ScopedChoiceRule rule(ChoiceRule::library);
      by_library = apply(*c.op, in, c.attrs);
      const bool offered = log.launches().at(0).kernel == "cublaslt_gemm";
      RecordProperty(str(name_of(dtype), " ", c.what), offered ? "offered" : "not offered");
      EXPECT_LE(offered, c.epilogue != 0);
      const bool gelu = std::string_view(c.what).starts_with("gelu");  // their tanh is another
      const double tolerance = !gelu ? 0 : dtype == DType::f32 ? 1e-3 : 2e-2;
      for (size_t i = 0; i < by_own.size(); ++i)
        EXPECT_TRUE(test::close(by_library[i].to(kCpu), by_own[i].to(kCpu),
            {.of_each = tolerance, .absolute = tolerance, .empty = true}));
    }
  }
}

#endif

}  // namespace
}  // namespace sinter
