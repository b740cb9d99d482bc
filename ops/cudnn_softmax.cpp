#include "ops/cudnn_softmax.h"

#include <atomic>
#include <climits>
#include <mutex>

#include "core/error.h"

#if SINTER_HAS_CUDA && SINTER_HAS_CUDNN
#include "core/device/cuda_stream.h"
#include "core/device/launch_hook.h"
#include "core/device/launch_log.h"
#endif

namespace sinter {

#if SINTER_HAS_CUDA && SINTER_HAS_CUDNN
namespace {

using cuda::api;
std::atomic<bool> in_use{false};

struct Library {
  std::mutex mutex;
  cudnnHandle_t handle = nullptr;
  cudnnTensorDescriptor_t rows = nullptr;

  static Library& get() {
    static Library& library = *new Library;
    static const bool hooked = (cuda::at_reset([] { library.clear(); }), true);
    static_cast<void>(hooked);
    return library;
  }
  // Everything that a capture may not make. REQUIRES: mutex is held.
  void open() {
    cuda::thread_state();
    if (!handle) SINTER_CUDA_CALL(cudnnCreate(&handle));
    if (!rows) SINTER_CUDA_CALL(cudnnCreateTensorDescriptor(&rows));
    SINTER_CUDA_CALL(cudnnSetStream(handle, cuda::stream()));
  }
  void clear() {
    if (rows) api().cudnnDestroyTensorDescriptor(std::exchange(rows, nullptr));
    if (handle) api().cudnnDestroy(std::exchange(handle, nullptr));
  }
};

cudnnDataType_t type_of(DType t) {
  return t == DType::f64    ? CUDNN_DATA_DOUBLE
         : t == DType::bf16 ? CUDNN_DATA_BFLOAT16
                            : CUDNN_DATA_FLOAT;
}

// run(library, algorithm, alpha, beta) for rows of call.out[0].
template <class Run> bool on_rows(const Call& call, bool log, const char* name, Run&& run) {
  const Tensor& y = call.out[0];
  if (!in_use || y.numel() == 0) return false;
  const int64_t cols = y.size(-1), rows = y.numel() / cols;
  if (rows > INT_MAX || cols > INT_MAX) return false;
  Library& library = Library::get();
  const std::lock_guard lock(library.mutex);
  library.open();
  if (cuda::rehearsing()) return true;
  log_launch({.kernel = name, .grid = {}, .block = 1, .shared_bytes = 0});
  SINTER_CUDA_CALL(cudnnSetTensor4dDescriptor(library.rows, CUDNN_TENSOR_NCHW, type_of(y.dtype()),
      static_cast<int>(rows), static_cast<int>(cols), 1, 1));
  // Scalars are doubles for double data, else floats.
  const float one = 1, zero = 0;
  const double one64 = 1, zero64 = 0;
  const bool f64 = y.dtype() == DType::f64;
  const HookedCall hooked(DeviceWork::kernel, Device::Type::cuda, name, 0, !cuda::capturing());
  run(library, log ? CUDNN_SOFTMAX_LOG : CUDNN_SOFTMAX_ACCURATE,
      f64 ? static_cast<const void*>(&one64) : &one,
      f64 ? static_cast<const void*>(&zero64) : &zero);
  return true;
}

}  // namespace

void use_cudnn_softmax(bool use) { in_use = use; }

bool cudnn_softmax(const Call& call, bool log) {
  return on_rows(call, log, log ? "cudnn_log_softmax" : "cudnn_softmax",
      [&](Library& l, cudnnSoftmaxAlgorithm_t algorithm, const void* one, const void* zero) {
        SINTER_CUDA_CALL(cudnnSoftmaxForward(l.handle, algorithm, CUDNN_SOFTMAX_MODE_CHANNEL, one,
            l.rows, call.in[0].raw(), zero, l.rows, call.out[0].raw()));
      });
}

bool cudnn_softmax_backward(const Call& call, bool log) {
  return on_rows(call, log, log ? "cudnn_log_softmax_backward" : "cudnn_softmax_backward",
      [&](Library& l, cudnnSoftmaxAlgorithm_t algorithm, const void* one, const void* zero) {
        SINTER_CUDA_CALL(cudnnSoftmaxBackward(l.handle, algorithm, CUDNN_SOFTMAX_MODE_CHANNEL, one,
            l.rows, call.in[1].raw(), l.rows, call.in[0].raw(), zero, l.rows, call.out[0].raw()));
      });
}
#else

void use_cudnn_softmax(bool use) {
  SINTER_CHECK(!use, not_built, "softmax: cuDNN is not in this build");
}
bool cudnn_softmax(const Call&, bool) { return false; }
bool cudnn_softmax_backward(const Call&, bool) { return false; }

#endif

}  // namespace sinter
