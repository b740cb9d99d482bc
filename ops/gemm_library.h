// Who makes the eager products on CUDA: cuBLASLt (ops/gemm_plans.h), or the own kernels, which are its reference. Thread-safe.
#pragma once

#include "core/tensor.h"

namespace sinter {

// c = op(a) op(b) (+ bias over columns) by the library. False: nothing was done, the own kernel must.
bool library_gemm(const Tensor& a, bool trans_a, const Tensor& b, bool trans_b, const Tensor& bias, const Tensor& c);

// Own kernels always. Off by default.
void set_own_gemm(bool own);

}  // namespace sinter
