// cuBLASLt and cuDNN: the handle of each, which all that asks the library shares, cuBLASLt's
// descriptors, which are given back at the end of their scope, and the libraries' words. For
// ops/product/fast and ops/image/fast; empty in a build without the toolkit.
#pragma once

#if SINTER_HAS_CUDA

#include <mutex>
#include <type_traits>
#include <utility>

#include "core/device/cuda.h"
#include "core/device/cuda_stream.h"
#include "core/dtype.h"

namespace sinter::cuda {

template <class T, auto create, Literal name, auto destroy> class LibraryHandle {
 public:
  static LibraryHandle& get() {
    static LibraryHandle& library = *[] {
      auto* const made = new LibraryHandle;
      at_reset([made] {
        if (made->handle_) (api().*destroy)(std::exchange(made->handle_, nullptr));
      });
      return made;
    }();
    return library;
  }
  // Made at the first call, which must not be inside a capture; cuDNN's is on the thread's stream.
  // Throws device where the library is not there. REQUIRES: mutex is held, until what is asked of
  // the handle has been asked.
  T on_stream() {
    thread_state();  // opens the card
    if (!handle_) check((api().*create)(&handle_), name.text);
#if SINTER_HAS_CUDNN
    if constexpr (std::is_same_v<T, cudnnHandle_t>)
      SINTER_CUDA_CALL(cudnnSetStream(handle_, stream()));
#endif
    return handle_;
  }
  std::mutex mutex;

 private:
  T handle_ = nullptr;
};
using CublasLtHandle =
    LibraryHandle<cublasLtHandle_t, &Api::cublasLtCreate, "cublasLtCreate", &Api::cublasLtDestroy>;

using LtMatmul = Descriptor<cublasLtMatmulDesc_t, &Api::cublasLtMatmulDescDestroy>;
using LtLayout = Descriptor<cublasLtMatrixLayout_t, &Api::cublasLtMatrixLayoutDestroy>;
using LtPreference = Descriptor<cublasLtMatmulPreference_t, &Api::cublasLtMatmulPreferenceDestroy>;

template <class T>
void set(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute, const T& value) {
  SINTER_CUDA_CALL(cublasLtMatmulDescSetAttribute(desc, attribute, &value, sizeof value));
}
template <class T>
void set(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute,
    const T& value) {
  SINTER_CUDA_CALL(
      cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value));
}
template <class T>
void set(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t attribute, const T& value) {
  SINTER_CUDA_CALL(cublasLtMatrixLayoutSetAttribute(layout, attribute, &value, sizeof value));
}

inline cudaDataType_t lt_type_of(DType t) {
  return t == DType::f64 ? CUDA_R_64F : t == DType::bf16 ? CUDA_R_16BF : CUDA_R_32F;
}

#if SINTER_HAS_CUDNN
using CudnnHandle =
    LibraryHandle<cudnnHandle_t, &Api::cudnnCreate, "cudnnCreate", &Api::cudnnDestroy>;

inline cudnnDataType_t cudnn_type_of(DType type) {
  return type == DType::f64    ? CUDNN_DATA_DOUBLE
         : type == DType::bf16 ? CUDNN_DATA_BFLOAT16
                               : CUDNN_DATA_FLOAT;
}
#endif

// The scalars 1 and 0 of a call: doubles for f64 data, else floats.
struct LibraryScalars {
  explicit LibraryScalars(DType type) : f64(type == DType::f64) {}
  const void* one() const { return f64 ? static_cast<const void*>(&kOne64) : &kOne; }
  const void* zero() const { return f64 ? static_cast<const void*>(&kZero64) : &kZero; }

 private:
  static constexpr float kOne = 1, kZero = 0;
  static constexpr double kOne64 = 1, kZero64 = 0;
  bool f64;
};

}  // namespace sinter::cuda

#endif  // SINTER_HAS_CUDA
