// The products behind gemm(), each with its contract; for gemm() and its tests only. m, n, k >= 1
// here and leading dims are checked.
#pragma once

#include "core/device/cpu_gemm.h"

namespace sinter::detail {

// f32 or f64, whole operands of one type; any shape.
void gemm_eigen(const Gemm& desc, const void* a, const void* b, const void* bias, void* c);
const char* eigen_name();

// False if oneDNN has no such product (nothing is written then).
bool gemm_onednn(const Gemm& desc, const void* a, const void* b, const void* bias, void* c);
const char* onednn_name();  // "oneDNN 2.6.3", or nullptr where the build lacks it

// Own kernels without packing, for the shapes in which a library's packing or its fork costs more
// than it gains.
bool gemm_small_fits(const Gemm& desc);
// REQUIRES: f32, at most one operand transposed; any shape.
void gemm_small(const Gemm& desc, const float* a, const float* b, const float* bias, float* c);

}  // namespace sinter::detail
