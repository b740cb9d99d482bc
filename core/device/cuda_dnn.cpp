#include "core/device/cuda_dnn.h"

#if SINTER_HAS_CUDA && SINTER_HAS_CUDNN

#include "core/device/cuda_stream.h"

namespace sinter::cuda {

CudnnHandle& CudnnHandle::get() {
  static CudnnHandle& library = *new CudnnHandle;
  static const bool hooked = (at_reset([] {
    if (library.handle_) api().cudnnDestroy(std::exchange(library.handle_, nullptr));
  }),
      true);
  static_cast<void>(hooked);
  return library;
}

cudnnHandle_t CudnnHandle::on_stream() {
  thread_state();  // opens the card
  if (!handle_) SINTER_CUDA_CALL(cudnnCreate(&handle_));
  SINTER_CUDA_CALL(cudnnSetStream(handle_, stream()));
  return handle_;
}

cudnnDataType_t cudnn_type_of(DType type) {
  return type == DType::f64    ? CUDNN_DATA_DOUBLE
         : type == DType::bf16 ? CUDNN_DATA_BFLOAT16
                               : CUDNN_DATA_FLOAT;
}

}  // namespace sinter::cuda

#endif  // SINTER_HAS_CUDA && SINTER_HAS_CUDNN
