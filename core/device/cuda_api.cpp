#include "core/device/cuda_api.h"

#if SINTER_HAS_CUDA

#include "core/error.h"

namespace sinter::cuda {
namespace {

std::string_view name_in(std::string_view call) { return call.substr(0, call.find('(')); }
std::string text(const char* words, std::string_view call, int answer) {
  return cat(words, " (", name_in(call), " says ", answer, ")");
}

}  // namespace

const Api& real_api() {
  static const Api api = [] {
    Api a;
#define SINTER_REAL(name) a.name = ::name;
    SINTER_CUDA_CALLS(SINTER_REAL)
    SINTER_CUDNN_CALLS(SINTER_REAL)
#undef SINTER_REAL
    a.real = true;
    return a;
  }();
  return api;
}

std::string explain(cudaError_t answer, std::string_view call) {
  api().cudaGetLastError();
  return text(cudaGetErrorString(answer), call, answer);
}

void check(cudaError_t answer, std::string_view call, std::string_view who) {
  if (answer == cudaSuccess) return;
  const bool no_code = answer == cudaErrorNoKernelImageForDevice;
  throw Error(Error::Kind::device,
      cat(who,
          no_code ? ": no code for this card: " : ": the call failed: ", explain(answer, call)),
      no_code ? "configure with its compute capability in SINTER_CUDA_ARCHITECTURES" : "");
}

void check(cublasStatus_t answer, std::string_view call, std::string_view who) {
  SINTER_CHECK(answer == CUBLAS_STATUS_SUCCESS, device,
      cat(who, ": the call failed: ", text(cublasLtGetStatusString(answer), call, answer)));
}

#if SINTER_HAS_CUDNN
void check(cudnnStatus_t answer, std::string_view call, std::string_view who) {
  SINTER_CHECK(answer == CUDNN_STATUS_SUCCESS, device,
      cat(who, ": the call failed: ", text(cudnnGetErrorString(answer), call, answer)));
}
#endif

}  // namespace sinter::cuda

#endif  // SINTER_HAS_CUDA
