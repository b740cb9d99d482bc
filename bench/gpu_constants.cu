// What this card can do at all, for the shares in reports (scripts/gpu_report): one JSON object on
// stdout. Copy bandwidth, the cost of a launch on a stream and of a node of a graph, cuBLASLt's
// best time for 8192^3 products and for the nine products of the GLU block. Data is random, outputs
// are fresh, times are medians of events around many calls; nothing is read by the host in between.
#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

void check(int status, const char* call) {
  if (status == 0) return;
  std::fprintf(stderr, "gpu_constants: %s says %d: %s\n", call, status,
      cudaGetErrorString(cudaGetLastError()));
  std::exit(1);
}
#define CHECK(call) check(static_cast<int>(call), #call)

cudaStream_t stream;

__global__ void nothing() {}
__global__ void copy(const float4* from, float4* to, int64_t n) {
  for (int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x; i < n;
       i += int64_t{gridDim.x} * blockDim.x)
    to[i] = from[i];
}
template <class T> __global__ void randomize(T* p, int64_t n, uint32_t seed) {
  for (int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x; i < n;
       i += int64_t{gridDim.x} * blockDim.x) {
    uint32_t h = static_cast<uint32_t>(i) * 2654435761u + seed;
    h = (h ^ h >> 15) * 2246822519u;
    h = (h ^ h >> 13) * 3266489917u;
    p[i] = static_cast<T>(static_cast<float>(h >> 8) * 0x1p-23f - 1);
  }
}

template <class T> T* random_array(int64_t n, uint32_t seed) {
  T* p = nullptr;
  CHECK(cudaMalloc(&p, n * sizeof(T)));
  randomize<<<1024, 256, 0, stream>>>(p, n, seed);
  return p;
}

// Median of `rounds` times in us of `calls` calls of f, per call.
template <class F> double time_of(int rounds, int calls, F&& f) {
  cudaEvent_t begin, end;
  CHECK(cudaEventCreate(&begin));
  CHECK(cudaEventCreate(&end));
  for (int i = 0; i < 3; ++i) f();
  std::vector<double> times;
  for (int r = 0; r < rounds; ++r) {
    CHECK(cudaEventRecord(begin, stream));
    for (int i = 0; i < calls; ++i) f();
    CHECK(cudaEventRecord(end, stream));
    CHECK(cudaEventSynchronize(end));
    float ms = 0;
    CHECK(cudaEventElapsedTime(&ms, begin, end));
    times.push_back(1000.0 * ms / calls);
  }
  CHECK(cudaEventDestroy(begin));
  CHECK(cudaEventDestroy(end));
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

double time_of_graph(int nodes) {
  cudaGraph_t graph;
  cudaGraphExec_t replay;
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  for (int i = 0; i < nodes; ++i) nothing<<<1, 32, 0, stream>>>();
  CHECK(cudaStreamEndCapture(stream, &graph));
  CHECK(cudaGraphInstantiate(&replay, graph, 0));
  const double us = time_of(9, 100, [&] { CHECK(cudaGraphLaunch(replay, stream)); });
  CHECK(cudaGraphExecDestroy(replay));
  CHECK(cudaGraphDestroy(graph));
  return us;
}

// Best time in us of D[m, n] = op(A) op(B) (column-major) over the first eight answers of the
// heuristic.
template <class T>
double time_of_product(
    cublasLtHandle_t handle, bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k) {
  constexpr bool kBf16 = sizeof(T) == 2;
  const cudaDataType_t type = kBf16 ? CUDA_R_16BF : CUDA_R_32F;
  constexpr size_t kWorkspace = 32 << 20;
  T *a = random_array<T>(m * k, 1), *b = random_array<T>(n * k, 2), *d = random_array<T>(m * n, 3);
  void* workspace = nullptr;
  CHECK(cudaMalloc(&workspace, kWorkspace));
  cublasLtMatmulDesc_t product;
  CHECK(cublasLtMatmulDescCreate(
      &product, kBf16 ? CUBLAS_COMPUTE_32F : CUBLAS_COMPUTE_32F_FAST_TF32, CUDA_R_32F));
  const cublasOperation_t op_a = trans_a ? CUBLAS_OP_T : CUBLAS_OP_N,
                          op_b = trans_b ? CUBLAS_OP_T : CUBLAS_OP_N;
  CHECK(cublasLtMatmulDescSetAttribute(product, CUBLASLT_MATMUL_DESC_TRANSA, &op_a, sizeof(op_a)));
  CHECK(cublasLtMatmulDescSetAttribute(product, CUBLASLT_MATMUL_DESC_TRANSB, &op_b, sizeof(op_b)));
  cublasLtMatrixLayout_t layout_a, layout_b, layout_d;
  CHECK(cublasLtMatrixLayoutCreate(
      &layout_a, type, trans_a ? k : m, trans_a ? m : k, trans_a ? k : m));
  CHECK(cublasLtMatrixLayoutCreate(
      &layout_b, type, trans_b ? n : k, trans_b ? k : n, trans_b ? n : k));
  CHECK(cublasLtMatrixLayoutCreate(&layout_d, type, m, n, m));
  cublasLtMatmulPreference_t preference;
  CHECK(cublasLtMatmulPreferenceCreate(&preference));
  CHECK(cublasLtMatmulPreferenceSetAttribute(
      preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &kWorkspace, sizeof(kWorkspace)));
  cublasLtMatmulHeuristicResult_t answers[8];
  int found = 0;
  CHECK(cublasLtMatmulAlgoGetHeuristic(
      handle, product, layout_a, layout_b, layout_d, layout_d, preference, 8, answers, &found));
  double best = 0;
  const float one = 1, zero = 0;
  for (int i = 0; i < found; ++i) {
    const double us = time_of(5, 5, [&] {
      CHECK(cublasLtMatmul(handle, product, &one, a, layout_a, b, layout_b, &zero, d, layout_d, d,
          layout_d, &answers[i].algo, workspace, kWorkspace, stream));
    });
    best = i == 0 ? us : std::min(best, us);
  }
  // The descriptions are few and small: they go with the process.
  for (void* p : {static_cast<void*>(a), static_cast<void*>(b), static_cast<void*>(d), workspace})
    CHECK(cudaFree(p));
  return best;
}

}  // namespace

int main() {
  cudaDeviceProp card;
  int driver = 0, runtime = 0;
  CHECK(cudaGetDeviceProperties(&card, 0));
  CHECK(cudaDriverGetVersion(&driver));
  CHECK(cudaRuntimeGetVersion(&runtime));
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  cublasLtHandle_t handle;
  CHECK(cublasLtCreate(&handle));
  std::printf(
      "{\n \"card\": \"%s\", \"capability\": \"%d.%d\", \"multiprocessors\": %d, \"l2_mb\": %.1f, "
      "\"memory_gb\": %.1f,\n",
      card.name, card.major, card.minor, card.multiProcessorCount, card.l2CacheSize / 1e6,
      static_cast<double>(card.totalGlobalMem) / 1e9);
  std::printf(" \"driver\": %d, \"runtime\": %d, \"cublaslt\": %zu,\n", driver, runtime,
      cublasLtGetVersion());

  const int64_t vectors = int64_t{1} << 26;  // 1 GiB
  auto *from = reinterpret_cast<float4*>(random_array<float>(vectors * 4, 4)),
       *to = reinterpret_cast<float4*>(random_array<float>(vectors * 4, 5));
  const double kernel_us = time_of(
      9, 5, [&] { copy<<<card.multiProcessorCount * 8, 256, 0, stream>>>(from, to, vectors); });
  const double memcpy_us = time_of(9, 5,
      [&] { CHECK(cudaMemcpyAsync(to, from, vectors * 16, cudaMemcpyDeviceToDevice, stream)); });
  CHECK(cudaFree(from));
  CHECK(cudaFree(to));
  const double bytes = 2.0 * 16 * static_cast<double>(vectors);
  std::printf(" \"copy_tb_per_s\": {\"kernel\": %.3f, \"memcpy\": %.3f},\n",
      bytes / kernel_us * 1e-6, bytes / memcpy_us * 1e-6);
  std::printf(
      " \"launch_us\": {\"stream\": %.3f, \"graph_of_1\": %.3f, \"graph_of_10\": %.3f, "
      "\"graph_of_100\": %.3f},\n",
      time_of(9, 1000, [] { nothing<<<1, 32, 0, stream>>>(); }), time_of_graph(1),
      time_of_graph(10), time_of_graph(100));
  const double flop = 2.0 * 8192 * 8192 * 8192;
  const double bf16 = time_of_product<__nv_bfloat16>(handle, true, false, 8192, 8192, 8192);
  const double tf32 = time_of_product<float>(handle, true, false, 8192, 8192, 8192);
  std::printf(" \"tflops_8192\": {\"bf16\": %.1f, \"tf32\": %.1f},\n", flop / bf16 * 1e-6,
      flop / tf32 * 1e-6);

  // Rows 8192, dim 768, hidden 3072: y = x W^T, dx = dy W, dW = dy^T x as cuBLASLt sees them.
  const double up = time_of_product<__nv_bfloat16>(handle, true, false, 3072, 8192, 768),
               down = time_of_product<__nv_bfloat16>(handle, true, false, 768, 8192, 3072);
  const double dx_up = time_of_product<__nv_bfloat16>(handle, false, false, 768, 8192, 3072);
  const double dx_down = time_of_product<__nv_bfloat16>(handle, false, false, 3072, 8192, 768);
  const double dw_up = time_of_product<__nv_bfloat16>(handle, false, true, 768, 3072, 8192),
               dw_down = time_of_product<__nv_bfloat16>(handle, false, true, 3072, 768, 8192);
  std::printf(
      " \"glu_products_us\": {\"up\": %.1f, \"down\": %.1f, \"dx_up\": %.1f, \"dx_down\": %.1f, "
      "\"dw_up\": %.1f, \"dw_down\": %.1f, "
      "\"all_nine\": %.1f}\n}\n",
      up, down, dx_up, dx_down, dw_up, dw_down,
      2 * (up + dx_up + dw_up) + down + dx_down + dw_down);
  CHECK(cublasLtDestroy(handle));
  CHECK(cudaDeviceSynchronize());
  return 0;
}
