#include "core/device/cuda_api.h"

#if SINTER_HAS_CUDA

#include <algorithm>
#include <cstddef>

#include "core/device/library.h"
#include "core/error.h"

namespace sinter::cuda {
namespace {

std::string_view name_in(std::string_view call) { return call.substr(0, call.find('(')); }
std::string text(const char* words, std::string_view call, int answer) {
  return str(words, " (", name_in(call), " says ", answer, ")");
}

std::string cublaslt_name() { return str("libcublasLt.so.", CUDART_VERSION / 1000); }
#if SINTER_HAS_CUDNN
std::string cudnn_name() { return str("libcudnn.so.", CUDNN_MAJOR); }
#endif

// Stands for a function of a library until, and after, it is loaded.
template <class Function, auto library, Literal name> struct Loaded;
template <class Result, class... Args, auto library, Literal name>
struct Loaded<Result (*)(Args...), library, name> {
  static Result call(Args... args) {
    static const auto function =
        reinterpret_cast<Result (*)(Args...)>(library_function(library(), name.text));
    return function(args...);
  }
};
#define SINTER_LOADED(library, name) Loaded<decltype(&::name), library, #name>::call

}  // namespace

void* library_function(const std::string& name, const char* function) {
  Library library({name}, SINTER_CUDA_LIBRARY_DIR);
  void* const found = library.find(function);
  SINTER_CHECK(found, device, str("cuda: no ", function, " of ", name, ": ", library.why()),
      "install the CUDA toolkit's libraries of the version that this program was built for, or add "
      "their folder to LD_LIBRARY_PATH");
  return found;
}

const Api& real_api() {
  static const Api api = [] {
    Api a;
#define SINTER_LINKED(name) a.name = ::name;
#define SINTER_CUBLASLT(name) a.name = SINTER_LOADED(cublaslt_name, name);
#define SINTER_CUDNN(name) a.name = SINTER_LOADED(cudnn_name, name);
    SINTER_RUNTIME_CALLS(SINTER_LINKED)
    SINTER_CUBLASLT_CALLS(SINTER_CUBLASLT)
    SINTER_CUDNN_CALLS(SINTER_CUDNN)
#undef SINTER_LINKED
#undef SINTER_CUBLASLT
#undef SINTER_CUDNN
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
      str(who,
          no_code ? ": no code for this card: " : ": the call failed: ", explain(answer, call)),
      no_code ? "configure with its compute capability in SINTER_CUDA_ARCHITECTURES" : "");
}

void check(cublasStatus_t answer, std::string_view call, std::string_view who) {
  SINTER_CHECK(answer == CUBLAS_STATUS_SUCCESS, device,
      str(who, ": the call failed: ",
          text(SINTER_LOADED(cublaslt_name, cublasLtGetStatusString)(answer), call, answer)));
}

#if SINTER_HAS_CUDNN
void check(cudnnStatus_t answer, std::string_view call, std::string_view who) {
  SINTER_CHECK(answer == CUDNN_STATUS_SUCCESS, device,
      str(who, ": the call failed: ",
          text(SINTER_LOADED(cudnn_name, cudnnGetErrorString)(answer), call, answer)));
}
#endif

}  // namespace sinter::cuda

#endif  // SINTER_HAS_CUDA
