#include "ops/cudnn_softmax.h"

#include <atomic>
#include <climits>

#include "core/error.h"

#if SINTER_HAS_CUDA && SINTER_HAS_CUDNN
#include "core/device/cuda_dnn.h"
#include "core/device/cuda_stream.h"
#include "core/device/launch_hook.h"
#include "core/device/launch_log.h"
#endif

namespace sinter {

#if SINTER_HAS_CUDA && SINTER_HAS_CUDNN
namespace {

using cuda::api;
std::atomic<bool> in_use{false};

// The rows of a call; made anew after a reset.
cudnnTensorDescriptor_t& softmax_rows() {
  static cudnnTensorDescriptor_t rows = nullptr;
  static const bool hooked = (cuda::at_reset([] {
    if (rows) api().cudnnDestroyTensorDescriptor(std::exchange(rows, nullptr));
  }),
      true);
  static_cast<void>(hooked);
  return rows;
}

// run(handle, rows, algorithm, scalars) for rows of call.out[0].
template <class Run> bool on_rows(const Call& call, bool log, const char* name, Run&& run) {
  const Tensor& y = call.out[0];
  if (!in_use || y.numel() == 0) return false;
  const int64_t cols = y.size(-1), rows = y.numel() / cols;
  if (rows > INT_MAX || cols > INT_MAX) return false;
  cuda::CudnnHandle& library = cuda::CudnnHandle::get();
  const std::lock_guard lock(library.mutex);
  cudnnHandle_t handle = library.on_stream();
  cudnnTensorDescriptor_t& descriptor = softmax_rows();
  if (!descriptor) SINTER_CUDA_CALL(cudnnCreateTensorDescriptor(&descriptor));
  if (cuda::rehearsing()) return true;
  log_launch({.kernel = name, .grid = {}, .block = 1, .shared_bytes = 0});
  SINTER_CUDA_CALL(cudnnSetTensor4dDescriptor(descriptor, CUDNN_TENSOR_NCHW,
      cuda::cudnn_type_of(y.dtype()), static_cast<int>(rows), static_cast<int>(cols), 1, 1));
  const HookedCall hooked(DeviceWork::kernel, Device::Type::cuda, name, 0, !cuda::capturing());
  run(handle, descriptor, log ? CUDNN_SOFTMAX_LOG : CUDNN_SOFTMAX_ACCURATE,
      cuda::CudnnScalars(y.dtype()));
  return true;
}

}  // namespace

void use_cudnn_softmax(bool use) { in_use = use; }

bool cudnn_softmax(const Call& call, bool log) {
  return on_rows(call, log, log ? "cudnn_log_softmax" : "cudnn_softmax",
      [&](cudnnHandle_t handle, cudnnTensorDescriptor_t rows, cudnnSoftmaxAlgorithm_t algorithm,
          const cuda::CudnnScalars& scalars) {
        SINTER_CUDA_CALL(cudnnSoftmaxForward(handle, algorithm, CUDNN_SOFTMAX_MODE_CHANNEL,
            scalars.one(), rows, call.in[0].raw(), scalars.zero(), rows, call.out[0].raw()));
      });
}

bool cudnn_softmax_backward(const Call& call, bool log) {
  return on_rows(call, log, log ? "cudnn_log_softmax_backward" : "cudnn_softmax_backward",
      [&](cudnnHandle_t handle, cudnnTensorDescriptor_t rows, cudnnSoftmaxAlgorithm_t algorithm,
          const cuda::CudnnScalars& scalars) {
        SINTER_CUDA_CALL(
            cudnnSoftmaxBackward(handle, algorithm, CUDNN_SOFTMAX_MODE_CHANNEL, scalars.one(), rows,
                call.in[1].raw(), rows, call.in[0].raw(), scalars.zero(), rows, call.out[0].raw()));
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
