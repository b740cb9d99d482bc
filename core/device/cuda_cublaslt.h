// Descriptors of cuBLASLt that are given back at the end of their scope, and how their attributes
// are set. For ops/product/fast/gemm_library.cpp; empty in a build without the toolkit.
#pragma once

#if SINTER_HAS_CUDA

#include "core/device/cuda_api.h"
#include "core/dtype.h"

namespace sinter::cuda {

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

inline cudaDataType_t lt_type_of(DType t) {
  return t == DType::f64 ? CUDA_R_64F : t == DType::bf16 ? CUDA_R_16BF : CUDA_R_32F;
}

}  // namespace sinter::cuda

#endif  // SINTER_HAS_CUDA
