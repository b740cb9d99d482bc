// cuBLASLt as we ask it: on a recorder that keeps the questions, the answers computed here by the library's own column-major definition.
#include <gtest/gtest.h>

#include "core/device/launch_log.h"
#include "ops/cudnn_softmax.h"
#include "ops/gemm_library.h"
#include "ops/gemm_plans.h"
#include "ops/structured.h"

#if SINTER_HAS_CUDA
#include "core/device/cuda.h"
#include "core/device/cuda_graph.h"
#include "core/device/cuda_recorder.h"
#include "core/device/cuda_stream.h"
#endif

namespace sinter {
namespace {

#if !SINTER_HAS_CUDA

TEST(GemmPlans, DeclinesWithoutTheToolkit) {
  float x = 0;
  EXPECT_FALSE(cublaslt_gemm({.m = 1, .n = 1, .k = 1, .lda = 1, .ldb = 1, .ldc = 1}, &x, &x, nullptr, &x));
  EXPECT_THROW(use_cudnn_softmax(true), Error);
  GTEST_SKIP() << "cuBLASLt's headers are not there";
}

#else

struct Block {
  explicit Block(size_t n) : bytes(n), at(cuda::allocator(0).allocate(n)) {}
  ~Block() { cuda::allocator(0).release(at, bytes); }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  float* host() const { return static_cast<float*>(cuda::Recorder::host(at)); }
  size_t bytes;
  void* at;
};

// D = op(A) op(B) + beta D + bias over rows, all column-major: what cublasLtMatmul means.
void compute(const cuda::Recorder::Matmul& q) {
  const auto at = [](const void* p, const cuda::Recorder::Matrix& m, int64_t row, int64_t column) -> float& {
    EXPECT_LT(row, m.rows);
    EXPECT_LT(column, m.columns);
    EXPECT_GE(m.ld, m.rows);
    return static_cast<float*>(cuda::Recorder::host(p))[row + column * m.ld];
  };
  const int64_t inner = q.transpose_a ? q.a.rows : q.a.columns;
  EXPECT_EQ(inner, q.transpose_b ? q.b.columns : q.b.rows);
  EXPECT_EQ(q.c.rows, q.transpose_a ? q.a.columns : q.a.rows);
  EXPECT_EQ(q.c.columns, q.transpose_b ? q.b.rows : q.b.columns);
  for (int64_t i = 0; i < q.c.rows; ++i) {
    for (int64_t j = 0; j < q.c.columns; ++j) {
      float sum = 0;
      for (int64_t k = 0; k < inner; ++k) {
        sum += (q.transpose_a ? at(q.pa, q.a, k, i) : at(q.pa, q.a, i, k)) * (q.transpose_b ? at(q.pb, q.b, j, k) : at(q.pb, q.b, k, j));
      }
      if (q.beta != 0) sum += q.beta * at(q.pc, q.c, i, j);
      if (q.epilogue == CUBLASLT_EPILOGUE_BIAS) sum += static_cast<float*>(cuda::Recorder::host(q.bias))[i];
      at(q.pc, q.c, i, j) = sum;
    }
  }
}

void fill_with(const Block& block, uint64_t seed) {
  const Tensor values = cast(sample_tensor({static_cast<int64_t>(block.bytes / sizeof(float))}, seed), DType::f32);
  std::copy_n(values.data<float>(), values.numel(), block.host());
}

// Every product of the table in the guide, and the forms beside it: the same as on the CPU.
TEST(GemmPlans, RowMajorQuestions) {
  cuda::Recorder recorder;
  for (int form = 0; form < 16; ++form) {
    Gemm g{.m = 5,
           .n = 7,
           .k = 3,
           .trans_a = (form & 1) != 0,
           .trans_b = (form & 2) != 0,
           .lda = 0,
           .ldb = 0,
           .ldc = 9,
           .accumulate = (form & 4) != 0};
    const bool with_bias = (form & 8) != 0;
    g.lda = (g.trans_a ? g.m : g.k) + 1;
    g.ldb = (g.trans_b ? g.k : g.n) + 2;
    const Block a(size_t{4} * 64), b(size_t{4} * 64), bias(size_t{4} * 64), c(size_t{4} * 64);
    fill_with(a, 1), fill_with(b, 2), fill_with(bias, 3), fill_with(c, 4);
    std::vector<float> want(c.host(), c.host() + 64);
    gemm(g, a.host(), b.host(), with_bias ? bias.host() : nullptr, want.data());
    recorder.clear_log();
    ASSERT_TRUE(cublaslt_gemm(g, a.at, b.at, with_bias ? bias.at : nullptr, c.at));
    ASSERT_EQ(recorder.matmuls().size(), 1u);
    compute(recorder.matmuls()[0]);
    for (int64_t i = 0; i < g.m * g.ldc; ++i)
      ASSERT_NEAR(c.host()[i], want[static_cast<size_t>(i)], 1e-5) << "form " << form << ", element " << i;
  }
}

TEST(GemmPlans, OnePlanPerQuestion) {
  cuda::Recorder recorder;
  const Block a(4096), b(4096), c(4096);
  const Gemm g{.m = 4, .n = 8, .k = 16, .lda = 16, .ldb = 8, .ldc = 8};
  const auto shifted = [](const Block& block, int elements) { return static_cast<void*>(static_cast<char*>(block.at) + 4 * elements); };
  const int64_t before = launch_count();
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(cublaslt_gemm(g, a.at, b.at, nullptr, c.at));
  EXPECT_EQ(recorder.count("cublasLtMatmulAlgoGetHeuristic"), 1);
  EXPECT_TRUE(cublaslt_gemm(g, a.at, b.at, nullptr, shifted(c, 1)));
  EXPECT_EQ(recorder.count("cublasLtMatmulAlgoGetHeuristic"), 2) << "another alignment is another question";
  EXPECT_TRUE(cublaslt_gemm(g, a.at, b.at, b.at, c.at));
  set_allow_tf32(true);
  EXPECT_TRUE(cublaslt_gemm(g, a.at, b.at, nullptr, c.at));
  set_allow_tf32(false);
  EXPECT_EQ(recorder.count("cublasLtMatmulAlgoGetHeuristic"), 4);
  EXPECT_EQ(launch_count() - before, 6);
  ASSERT_EQ(gemm_plan_lines().size(), 4u);
  EXPECT_EQ(gemm_plan_lines()[0], "cublaslt_gemm f32 -> f32 m 4 n 8 k 16 A B + bias: 3 proposals, number 1 (the first, untimed)");
}

TEST(GemmPlans, NothingProposed) {
  cuda::Recorder recorder;
  recorder.set({.proposals = 0});
  const Block a(4096);
  const int64_t before = launch_count();
  EXPECT_FALSE(cublaslt_gemm({.m = 4, .n = 4, .k = 4, .lda = 4, .ldb = 4, .ldc = 4}, a.at, a.at, nullptr, a.at));
  EXPECT_EQ(launch_count(), before);
  EXPECT_TRUE(recorder.matmuls().empty());
}

// Plans and workspaces are made in the rehearsal; the branches of a graph have a workspace each.
TEST(GemmPlans, InAGraph) {
  cuda::Recorder recorder;
  const auto a = std::make_unique<Block>(4096);
  const auto product = [&](int64_t m) {
    EXPECT_TRUE(cublaslt_gemm({.m = m, .n = 4, .k = 4, .lda = 4, .ldb = 4, .ldc = 4}, a->at, a->at, nullptr, a->at));
  };
  {
    cuda::GraphBuilder builder(2, true);
    std::unique_ptr<cuda::Graph> graph;
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
    EXPECT_EQ(recorder.graphs()[0].names(), (std::vector<std::string>{"cublaslt_gemm", "cublaslt_gemm"}));
    ASSERT_EQ(recorder.matmuls().size(), 2u);
    EXPECT_NE(recorder.matmuls()[0].workspace, recorder.matmuls()[1].workspace);
  }
  cuda::GraphBuilder builder(0, false);
  builder.begin(cuda::Pass::capture);
  try {
    product(5);
    ADD_FAILURE() << "a plan was made inside a capture";
  } catch (const Error& e) {
    EXPECT_EQ(e.message(), "cuda: a matrix product without a plan inside a captured step");
  }
}

TEST(GemmPlans, EveryCallFailsInTurn) {
  const auto scenario = [] {
    const Block a(4096);
    EXPECT_TRUE(cublaslt_gemm({.m = 4, .n = 4, .k = 4, .lda = 4, .ldb = 4, .ldc = 4}, a.at, a.at, a.at, a.at));
    cuda::synchronize();
  };
  cuda::Recorder recorder;
  scenario();
  ASSERT_TRUE(recorder.leaks().empty());
  const auto total = static_cast<int64_t>(recorder.calls().size());
  for (int64_t n = 1; n <= total; ++n) {
    recorder.fail_any(n);
    std::string message;
    try {
      scenario();
    } catch (const Error& e) {
      message = e.message();
    }
    const bool clean = recorder.leaks().empty();
    const std::string failed = recorder.failed();
    EXPECT_TRUE(clean) << failed;
    const bool told = failed.find("Destroy") == std::string::npos && failed.find("Free") == std::string::npos;
    EXPECT_EQ(message.find(failed + " says ") != std::string::npos, told) << failed << ": " << message;
  }
}

#if SINTER_HAS_CUDNN
TEST(CudnnSoftmax, AsksTheLibrary) {
  cuda::Recorder recorder;
  {
    const Device device{Device::Type::cuda, 0};
    const Tensor x = Tensor::empty({6, 10}, DType::f32, device), dy = Tensor::empty({6, 10}, DType::f32, device);
    Tensors out{Tensor::empty({6, 10}, DType::f32, device)};
    const Tensors forward{x}, backward{dy, x};
    const Attrs none{};
    const Call call{kLogSoftmaxOp, forward, out, none}, back{kLogSoftmaxBackwardOp, backward, out, none};
    EXPECT_FALSE(cudnn_softmax(call, true)) << "off by default";
    use_cudnn_softmax(true);
    EXPECT_TRUE(cudnn_softmax(call, true));
    EXPECT_TRUE(cudnn_softmax_backward(back, true));
    use_cudnn_softmax(false);
    EXPECT_EQ(recorder.executed(), (std::vector<std::string>{"cudnn_softmax", "cudnn_softmax_backward"}));
  }
  EXPECT_TRUE(recorder.leaks().empty());
}
#endif

#endif

}  // namespace
}  // namespace sinter
