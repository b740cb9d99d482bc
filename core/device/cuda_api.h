// The function table through which everything of the CUDA toolkit is called: runtime, graphs,
// cuBLASLt, cuDNN. One is the real one; tests put a recorder in its place
// (tests/cuda_recorder.h). For .cpp files that drive the card; empty in a build without the
// toolkit.
#pragma once

#if SINTER_HAS_CUDA

#include <cublasLt.h>
#include <cuda_profiler_api.h>
#include <cuda_runtime_api.h>
#if SINTER_HAS_CUDNN
#include <cudnn.h>
#endif

#include <algorithm>
#include <string>
#include <string_view>

// clang-format off
// What makes, uses and destroys; each answers a status.
#define SINTER_RUNTIME_CALLS(X)                                                                    \
  X(cudaGetDeviceCount) X(cudaDriverGetVersion) X(cudaSetDevice) X(cudaDeviceGetAttribute)         \
  X(cudaGetLastError) X(cudaMalloc) X(cudaFree) X(cudaHostAlloc) X(cudaFreeHost)                   \
  X(cudaHostGetDevicePointer) X(cudaMemGetInfo) X(cudaMemcpyAsync) X(cudaMemsetAsync)              \
  X(cudaStreamCreateWithFlags) X(cudaStreamDestroy) X(cudaStreamSynchronize)                       \
  X(cudaStreamWaitEvent) X(cudaStreamBeginCapture) X(cudaStreamEndCapture)                         \
  X(cudaEventCreateWithFlags) X(cudaEventRecord)                                                   \
  X(cudaEventElapsedTime) X(cudaEventDestroy) X(cudaLaunchKernelExC) X(cudaFuncGetAttributes)      \
  X(cudaFuncSetAttribute)                                                                        \
  X(cudaGraphInstantiate) X(cudaGraphUpload) X(cudaGraphLaunch) X(cudaGraphGetNodes)               \
  X(cudaGraphDestroy) X(cudaGraphExecDestroy) X(cudaProfilerStart) X(cudaProfilerStop)             \
  X(cudaGetDeviceProperties) X(cudaEventSynchronize)                                               \
  SINTER_CAPTURE_CALLS(X)
#if CUDART_VERSION >= 13000
#define SINTER_CAPTURE_CALLS(X) X(cudaStreamGetCaptureInfo)
#else
#define SINTER_CAPTURE_CALLS(X) X(cudaStreamGetCaptureInfo_v2)
#endif
#define SINTER_CUBLASLT_CALLS(X)                                                                   \
  X(cublasLtCreate) X(cublasLtDestroy) X(cublasLtMatmulDescCreate) X(cublasLtMatmulDescDestroy)    \
  X(cublasLtMatmulDescSetAttribute) X(cublasLtMatrixLayoutCreate) X(cublasLtMatrixLayoutDestroy)   \
  X(cublasLtMatmulPreferenceCreate) X(cublasLtMatmulPreferenceDestroy)                             \
  X(cublasLtMatmulPreferenceSetAttribute) X(cublasLtMatmulAlgoGetHeuristic) X(cublasLtMatmul)    \
  X(cublasLtMatrixLayoutSetAttribute) X(cublasLtGetProperty)
#if SINTER_HAS_CUDNN
#define SINTER_CUDNN_CALLS(X)                                                                      \
  X(cudnnCreate) X(cudnnDestroy) X(cudnnSetStream) X(cudnnCreateTensorDescriptor)                  \
  X(cudnnDestroyTensorDescriptor) X(cudnnSetTensor4dDescriptor) X(cudnnGetProperty)                \
  X(cudnnBackendCreateDescriptor) X(cudnnBackendDestroyDescriptor) X(cudnnBackendSetAttribute)     \
  X(cudnnBackendGetAttribute) X(cudnnBackendFinalize) X(cudnnBackendExecute)                       \
  SINTER_CUDNN_CONV_CALLS(X)
#define SINTER_CUDNN_CONV_CALLS(X)                                                                 \
  X(cudnnCreateFilterDescriptor) X(cudnnDestroyFilterDescriptor) X(cudnnSetFilter4dDescriptor)     \
  X(cudnnCreateActivationDescriptor) X(cudnnDestroyActivationDescriptor)                           \
  X(cudnnSetActivationDescriptor) X(cudnnCreateConvolutionDescriptor)                              \
  X(cudnnDestroyConvolutionDescriptor) X(cudnnSetConvolution2dDescriptor)                          \
  X(cudnnSetConvolutionMathType) X(cudnnGetConvolutionForwardAlgorithm_v7)                         \
  X(cudnnGetConvolutionBackwardDataAlgorithm_v7) X(cudnnGetConvolutionBackwardFilterAlgorithm_v7)  \
  X(cudnnConvolutionForward) X(cudnnConvolutionBiasActivationForward)                              \
  X(cudnnConvolutionBackwardData) X(cudnnConvolutionBackwardFilter)
#else
#define SINTER_CUDNN_CALLS(X)
#endif
// All of them.
#define SINTER_CUDA_CALLS(X) SINTER_RUNTIME_CALLS(X) SINTER_CUBLASLT_CALLS(X) SINTER_CUDNN_CALLS(X)
// clang-format on

namespace sinter::cuda {

struct Api {
#define SINTER_POINTER(name) decltype(&::name) name = nullptr;
  SINTER_CUDA_CALLS(SINTER_POINTER)
#undef SINTER_POINTER
  // Whose code the kernels are, SINTER_CUDA_ARCHITECTURES: "80,90a"; the first also as PTX.
  std::string architectures = SINTER_CUDA_ARCHITECTURES;
  bool real = false;  // calls reach a card, so the libraries that look into one mean something
};

// The table in use.
const Api& api();
// Its functions of cuBLASLt and cuDNN load their library when they are first called, so that a
// program starts, and works on the CPU, without either.
const Api& real_api();
// Gives back all that was made on the card (caches, streams, handles), then uses `table`. REQUIRES:
// no tensor and no graph on the card, and no other thread that uses it.
void set_api(const Api& table);

// A function of a library of the toolkit, by the loader's path or from the folder where the build
// found it. Throws device: library, and what it lacks or what the loader says.
void* library_function(const std::string& name, const char* function);

// A name as a template's argument.
template <size_t N> struct Literal {
  char text[N];
  constexpr Literal(const char (&literal)[N]) { std::copy_n(literal, N, text); }
};

// A descriptor of a library's, given back at the end.
template <class T, auto destroy> class Descriptor {
 public:
  Descriptor() = default;
  ~Descriptor() {
    if (handle_) (api().*destroy)(handle_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  T* operator&() { return &handle_; }
  operator T() const { return handle_; }

 private:
  T handle_ = nullptr;
};

// "an illegal memory access was encountered (cudaStreamSynchronize says 700)"; forgets the error,
// or the next call would answer it again.
std::string explain(cudaError_t answer, std::string_view call);
// Throws what a call answered, in words. `call`: "cudaFree(p)", of which the name is told; `who`
// begins the message.
void check(cudaError_t answer, std::string_view call, std::string_view who = "cuda");
void check(cublasStatus_t answer, std::string_view call, std::string_view who = "cuda");
#if SINTER_HAS_CUDNN
void check(cudnnStatus_t answer, std::string_view call, std::string_view who = "cuda");
#endif

}  // namespace sinter::cuda

// SINTER_CUDA_CALL(cudaFree(p))
#define SINTER_CUDA_CALL(...) ::sinter::cuda::check(::sinter::cuda::api().__VA_ARGS__, #__VA_ARGS__)

#endif  // SINTER_HAS_CUDA
