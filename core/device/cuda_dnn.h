// cuDNN's handle, which all that asks the library shares, and its words: for ops/cudnn_*.cpp. Empty
// in a build without cuDNN.
#pragma once

#if SINTER_HAS_CUDA && SINTER_HAS_CUDNN

#include <mutex>

#include "core/device/cuda_api.h"
#include "core/dtype.h"

namespace sinter::cuda {

struct CudnnHandle {
  static CudnnHandle& get();
  // On the thread's stream; made at the first call, which must not be inside a capture. Throws
  // device where the library is not there. REQUIRES: mutex is held, until what is asked of the
  // handle has been asked.
  cudnnHandle_t on_stream();
  std::mutex mutex;

 private:
  cudnnHandle_t handle_ = nullptr;
};

cudnnDataType_t cudnn_type_of(DType type);

// The scalars 1 and 0 of a call: doubles for f64 data, else floats.
class CudnnScalars {
 public:
  explicit CudnnScalars(DType type) : f64_(type == DType::f64) {}
  const void* one() const { return f64_ ? static_cast<const void*>(&one64_) : &one_; }
  const void* zero() const { return f64_ ? static_cast<const void*>(&zero64_) : &zero_; }

 private:
  bool f64_;
  float one_ = 1, zero_ = 0;
  double one64_ = 1, zero64_ = 0;
};

}  // namespace sinter::cuda

#endif  // SINTER_HAS_CUDA && SINTER_HAS_CUDNN
