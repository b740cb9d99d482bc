// Calls that a card refuses, and the recorder as well: a row a refusal, each beside the same call
// done rightly. What the toolkit leaves undefined (a handle that was given back, memory that a
// graph has lost), or a driver forgives, is refused by the recorder alone.
#include <gtest/gtest.h>

#include <array>

#include "core/device/cuda.h"
#include "tests/gpu_test.h"
#include "tests/test_util.h"

#if SINTER_HAS_CUDA
#include "core/device/cuda_stream.h"
#include "tests/cuda_recorder.h"

namespace sinter::cuda {
namespace {

constexpr size_t kBytes = 1 << 20;
const char kernel_of_recorder = 0;

// An empty kernel, for a card.
constexpr char kNothing[] =
    ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry nothing() { ret; }\n";

// A status that is not what the row is about.
template <class R> void need(R answer) {
  if (int(answer) != 0) throw std::runtime_error("a call that must succeed fails");
}

// What the rows use: a stream and two blocks of the card's memory, and handles made on the way.
struct Calls {
  bool wrong;
  bool recorded;
  cudaStream_t stream = nullptr;
  void *a = nullptr, *b = nullptr;
  std::vector<char> host = std::vector<char>(64);
  int refusal = 0;

  Calls(bool is_wrong, bool on_recorder) : wrong(is_wrong), recorded(on_recorder) {
    static_cast<void>(cuda::stream());  // takes the card for this thread
    need(api().cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    need(api().cudaMalloc(&a, kBytes));
    need(api().cudaMalloc(&b, kBytes));
  }
  template <class T> T choose(T right, T bad) const { return wrong ? bad : right; }

  const void* kernel() const {
    if (recorded) return &kernel_of_recorder;
    static const void* loaded = [] {
      cudaLibrary_t library = nullptr;
      cudaKernel_t found = nullptr;
      need(cudaLibraryLoadData(&library, kNothing, nullptr, nullptr, 0, nullptr, nullptr, 0));
      need(cudaLibraryGetKernel(&found, library, "nothing"));
      return static_cast<const void*>(found);
    }();
    return loaded;
  }
  int launch(dim3 grid, dim3 block) const {
    cudaLaunchConfig_t config{};
    config.gridDim = grid;
    config.blockDim = block;
    config.stream = stream;
    return api().cudaLaunchKernelExC(&config, kernel(), nullptr);
  }
  cudaStream_t another_stream() const {
    cudaStream_t made = nullptr;
    need(api().cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking));
    if (wrong) need(api().cudaStreamDestroy(made));
    return made;
  }
  cudaEvent_t event(unsigned flags = cudaEventDefault) const {
    cudaEvent_t made = nullptr;
    need(api().cudaEventCreateWithFlags(&made, flags));
    return made;
  }
};

struct Row {
  const char* what;
  bool recorder_only;
  int (*answer)(const Calls&);
};

struct Product {
  int64_t m = 64, n = 32, k = 16;
  cudaDataType a = CUDA_R_32F, b = CUDA_R_32F, c = CUDA_R_32F, d = CUDA_R_32F, scale = CUDA_R_32F;
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  int64_t inner = 16, lda = 64, ldc = 64, rows_d = 64;
  size_t workspace = kBytes;  // that is there when the product runs
  bool dead = false;          // its first layout was given back
  int64_t asked_k = 0;        // of the question whose algorithm is taken; 0: this one's
};

int run(const Calls& calls, const Product& p) {
  cublasLtHandle_t handle = nullptr;
  cublasLtMatmulDesc_t desc = nullptr;
  cublasLtMatmulPreference_t preference = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr, d = nullptr;
  const auto u = [](int64_t v) { return uint64_t(v); };
  need(api().cublasLtCreate(&handle));
  need(api().cublasLtMatmulDescCreate(&desc, p.compute, p.scale));
  const cublasOperation_t plain = CUBLAS_OP_N;
  for (const auto side : {CUBLASLT_MATMUL_DESC_TRANSA, CUBLASLT_MATMUL_DESC_TRANSB})
    need(api().cublasLtMatmulDescSetAttribute(desc, side, &plain, sizeof plain));
  need(api().cublasLtMatmulPreferenceCreate(&preference));
  const uint64_t most = kBytes;
  need(api().cublasLtMatmulPreferenceSetAttribute(
      preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &most, sizeof most));
  const int64_t asked_k = p.asked_k ? p.asked_k : p.k;
  const auto layout = [](cublasLtMatrixLayout_t& to, cudaDataType type, uint64_t rows,
                          uint64_t columns, int64_t ld) {
    need(api().cublasLtMatrixLayoutCreate(&to, type, rows, columns, ld));
  };
  layout(a, p.a, u(p.m), u(asked_k), p.lda);
  layout(b, p.b, u(p.asked_k ? asked_k : p.inner), u(p.n), p.asked_k ? asked_k : p.inner);
  layout(c, p.c, u(p.m), u(p.n), p.ldc);
  layout(d, p.d, u(p.rows_d), u(p.n), std::max(p.ldc, p.rows_d));
  if (p.dead) need(api().cublasLtMatrixLayoutDestroy(a));
  cublasLtMatmulHeuristicResult_t found{};
  int count = 0;
  if (const int answer = api().cublasLtMatmulAlgoGetHeuristic(
          handle, desc, a, b, c, d, preference, 1, &found, &count))
    return answer;
  if (p.asked_k) {
    layout(a, p.a, u(p.m), u(p.k), p.lda);
    layout(b, p.b, u(p.inner), u(p.n), p.inner);
  }
  const float one[2] = {1, 0}, zero[2] = {0, 0};  // of either scale type, by their bits
  const size_t workspace = std::min(p.workspace, found.workspaceSize);
  return api().cublasLtMatmul(handle, desc, one, calls.a, a, calls.b, b, zero, calls.b, c, calls.b,
      d, &found.algo, calls.a, workspace, calls.stream);
}

#if SINTER_HAS_CUDNN
struct Convolved {
  int y_h = 6, channels = 3;
  cudnnTensorFormat_t format = CUDNN_TENSOR_NCHW;  // of y
  cudnnDataType_t compute = CUDNN_DATA_FLOAT;
  bool short_of_memory = false, dead = false;
};
int run(const Calls& calls, const Convolved& q) {
  cudnnHandle_t handle = nullptr;
  cudnnTensorDescriptor_t x = nullptr, y = nullptr;
  cudnnFilterDescriptor_t w = nullptr;
  cudnnConvolutionDescriptor_t c = nullptr;
  need(api().cudnnCreate(&handle));
  need(api().cudnnSetStream(handle, calls.stream));
  need(api().cudnnCreateTensorDescriptor(&x));
  need(api().cudnnCreateTensorDescriptor(&y));
  need(api().cudnnCreateFilterDescriptor(&w));
  need(api().cudnnCreateConvolutionDescriptor(&c));
  need(api().cudnnSetTensor4dDescriptor(x, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 2, 3, 8, 8));
  need(api().cudnnSetTensor4dDescriptor(y, q.format, CUDNN_DATA_FLOAT, 2, 4, q.y_h, 6));
  need(api().cudnnSetFilter4dDescriptor(
      w, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NCHW, 4, q.channels, 3, 3));
  need(api().cudnnSetConvolution2dDescriptor(
      c, 0, 0, 1, 1, 1, 1, CUDNN_CROSS_CORRELATION, q.compute));
  cudnnConvolutionFwdAlgoPerf_t found{};
  int count = 0;
  // A proposal that wants memory; on a card the largest of them all does.
  std::array<cudnnConvolutionFwdAlgoPerf_t, 8> all{};
  if (const int answer =
          api().cudnnGetConvolutionForwardAlgorithm_v7(handle, x, w, c, y, 8, &count, all.data()))
    return answer;
  for (int i = 0; i < count; ++i) {
    const auto& proposal = all[size_t(i)];
    if (proposal.status == CUDNN_STATUS_SUCCESS && proposal.memory >= found.memory &&
        proposal.memory <= kBytes)
      found = proposal;
  }
  if (q.short_of_memory && found.memory == 0) return CUDNN_STATUS_BAD_PARAM;  // none wants any
  if (q.dead) need(api().cudnnDestroyTensorDescriptor(x));
  const float one = 1, zero = 0;
  return api().cudnnConvolutionForward(handle, &one, x, calls.a, w, calls.a, c, found.algo, calls.b,
      q.short_of_memory ? found.memory - 1 : kBytes, &zero, y, calls.b);
}
#endif

int elapsed(const Calls& calls, cudaEvent_t event) {
  const cudaEvent_t other = calls.event();
  for (const cudaEvent_t e : {other, event}) need(api().cudaEventRecord(e, calls.stream));
  need(api().cudaStreamSynchronize(calls.stream));
  float ms = 0;
  return api().cudaEventElapsedTime(&ms, other, event);
}

const Row kRows[] = {
    {"a block of no thread", false, [](const Calls& c) { return c.launch(1, c.choose(32u, 0u)); }},
    {"a block of over 1024 threads", false,
        [](const Calls& c) { return c.launch(1, dim3(512, c.choose(2u, 3u))); }},
    {"a block of over 64 layers", false,
        [](const Calls& c) { return c.launch(1, dim3(1, 1, c.choose(64u, 65u))); }},
    {"an empty grid", false,
        [](const Calls& c) { return c.launch(dim3(1, c.choose(1u, 0u)), 32); }},
    {"a grid of over 65,535 rows", false,
        [](const Calls& c) { return c.launch(dim3(1, c.choose(65535u, 65536u)), 32); }},
    // A card reads the addresses, not the direction: driver 580 copies as it should have been
    // asked.
    {"a copy to the card from its own memory", true,
        [](const Calls& c) {
          return int(api().cudaMemcpyAsync(c.a, c.choose<const void*>(c.host.data(), c.b), 64,
              cudaMemcpyHostToDevice, c.stream));
        }},
    {"a copy to the card that goes to the host", false,
        [](const Calls& c) {
          std::vector<char> to(64);
          return int(api().cudaMemcpyAsync(c.choose<void*>(c.a, to.data()), c.host.data(), 64,
              cudaMemcpyHostToDevice, c.stream));
        }},
    {"a copy from the card that reads the host", false,
        [](const Calls& c) {
          std::vector<char> to(64);
          return int(api().cudaMemcpyAsync(to.data(), c.choose<const void*>(c.a, c.host.data()), 64,
              cudaMemcpyDeviceToHost, c.stream));
        }},
    {"elapsed time of an event that keeps none", false,
        [](const Calls& c) {
          return elapsed(c, c.event(c.choose(cudaEventDefault, cudaEventDisableTiming)));
        }},
    {"elapsed time of an event never recorded", false,
        [](const Calls& c) {
          const cudaEvent_t begin = c.event(), end = c.event();
          need(api().cudaEventRecord(begin, c.stream));
          if (!c.wrong) need(api().cudaEventRecord(end, c.stream));
          need(api().cudaStreamSynchronize(c.stream));
          float ms = 0;
          return int(api().cudaEventElapsedTime(&ms, begin, end));
        }},
    {"elapsed time of an event recorded in a capture", false,
        [](const Calls& c) {
          const cudaEvent_t begin = c.event(), end = c.event();
          need(api().cudaEventRecord(begin, c.stream));
          if (c.wrong)
            need(api().cudaStreamBeginCapture(c.stream, cudaStreamCaptureModeThreadLocal));
          need(api().cudaEventRecord(end, c.stream));
          cudaGraph_t graph = nullptr;
          if (c.wrong) need(api().cudaStreamEndCapture(c.stream, &graph));
          need(api().cudaStreamSynchronize(c.stream));
          float ms = 0;
          return int(api().cudaEventElapsedTime(&ms, begin, end));
        }},
    {"a stream that was given back", true,
        [](const Calls& c) { return int(api().cudaMemsetAsync(c.a, 0, 64, c.another_stream())); }},
    {"an event that was given back", true,
        [](const Calls& c) {
          const cudaEvent_t event = c.event();
          if (c.wrong) need(api().cudaEventDestroy(event));
          return int(api().cudaEventRecord(event, c.stream));
        }},
    {"a graph whose memory was freed", true,
        [](const Calls& c) {
          void* block = nullptr;
          cudaGraph_t graph = nullptr;
          cudaGraphExec_t executable = nullptr;
          need(api().cudaMalloc(&block, 64));
          need(api().cudaStreamBeginCapture(c.stream, cudaStreamCaptureModeThreadLocal));
          need(api().cudaMemsetAsync(block, 0, 64, c.stream));
          need(api().cudaStreamEndCapture(c.stream, &graph));
          need(api().cudaGraphInstantiate(&executable, graph, 0));
          if (c.wrong) {  // what is made in its place is no excuse
            need(api().cudaFree(block));
            need(api().cudaMalloc(&block, 64));
          }
          return int(api().cudaGraphLaunch(executable, c.stream));
        }},
    {"a product of inner sizes that differ", false,
        [](const Calls& c) { return run(c, Product{.inner = c.choose(16, 24)}); }},
    {"a product whose result has other rows", false,
        [](const Calls& c) { return run(c, Product{.rows_d = c.choose(64, 48)}); }},
    {"a product with columns that overlap", false,
        [](const Calls& c) { return run(c, Product{.lda = c.choose(64, 48)}); }},
    {"a product of two types", false,
        [](const Calls& c) { return run(c, Product{.b = c.choose(CUDA_R_32F, CUDA_R_16BF)}); }},
    {"a product with f64 sums of f32", false,
        [](const Calls& c) {
          return run(c, Product{.scale = c.choose(CUDA_R_32F, CUDA_R_64F),
                            .compute = c.choose(CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_64F)});
        }},
    {"a product with less workspace than its algorithm wants", true,
        [](const Calls& c) { return run(c, Product{.workspace = c.choose(kBytes, kBytes - 1)}); }},
    {"a product by another question's algorithm", true,
        [](const Calls& c) { return run(c, Product{.asked_k = c.choose(0, 32)}); }},
    {"a layout that was given back", true,
        [](const Calls& c) { return run(c, Product{.dead = c.wrong}); }},
#if SINTER_HAS_CUDNN
    {"a convolution with another output shape", false,
        [](const Calls& c) { return run(c, Convolved{.y_h = c.choose(6, 5)}); }},
    {"a convolution of other channels", false,
        [](const Calls& c) { return run(c, Convolved{.channels = c.choose(3, 2)}); }},
    {"a convolution with too small a workspace", false,
        [](const Calls& c) { return run(c, Convolved{.short_of_memory = c.wrong}); }},
    {"a convolution of f32 with f64 sums", false,
        [](const Calls& c) {
          return run(c, Convolved{.compute = c.choose(CUDNN_DATA_FLOAT, CUDNN_DATA_DOUBLE)});
        }},
    {"a convolution from NCHW to NHWC", true,
        [](const Calls& c) {
          return run(c, Convolved{.format = c.choose(CUDNN_TENSOR_NCHW, CUDNN_TENSOR_NHWC)});
        }},
    {"a descriptor that was given back", true,
        [](const Calls& c) { return run(c, Convolved{.dead = c.wrong}); }},
#endif
};

void check(bool recorded) {
  for (const Row& row : kRows) {
    if (row.recorder_only && !recorded) continue;
    SCOPED_TRACE(row.what);
    for (const bool wrong : {false, true}) {
      std::optional<FakeToolkit> recorder;
      if (recorded) recorder.emplace();
      const Calls calls(wrong, recorded);
      const int answer = row.answer(calls);
      api().cudaGetLastError();
      EXPECT_EQ(answer != 0, wrong) << "answer " << answer;
    }
  }
}

TEST(CudaRefusals, TheRecorderRefusesWhatACardRefuses) { check(true); }

using CudaRefusalsGpu = test::GpuTest;
TEST_F(CudaRefusalsGpu, ACardRefusesThem) { check(false); }

}  // namespace
}  // namespace sinter::cuda

#else

using CudaRefusalsGpu = sinter::test::GpuTest;
TEST_F(CudaRefusalsGpu, ACardRefusesThem) {}  // skipped: there is no card without the toolkit

#endif
