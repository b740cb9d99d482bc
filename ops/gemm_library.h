// How the products are made on devices: on CUDA the eager ones by cuBLASLt (ops/gemm_plans.h), or by the own kernels, which are its
// reference; with or without TF32. Thread-safe.
#pragma once

#include "core/tensor.h"

namespace sinter {

// c = op(a) op(b) (+ bias over columns) by the library. False: nothing was done, the own kernel must.
bool library_gemm(const Tensor& a, bool trans_a, const Tensor& b, bool trans_b, const Tensor& bias, const Tensor& c);

// f32 products of cuda and simt on tensor cores, which read 19 bits of each operand (TF32). Off by default.
void set_allow_tf32(bool allow);
bool allow_tf32();

// Own kernels always. Off by default.
void set_own_gemm(bool own);

}  // namespace sinter
