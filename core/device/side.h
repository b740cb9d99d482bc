// What one source needs to know of the side that it is compiled for, the host's or a card's.
#pragma once

#if defined(__CUDACC__)
#define SINTER_FN __host__ __device__ __forceinline__
// Before a template whose argument is a function of the caller's side.
#define SINTER_ANY_SIDE _Pragma("nv_exec_check_disable")
#else
#define SINTER_FN inline __attribute__((always_inline))
#define SINTER_ANY_SIDE
#endif

// Does the hardware round a * b + c once?
#if defined(__CUDA_ARCH__) || defined(__FMA__) || defined(__ARM_FEATURE_FMA)
#define SINTER_FUSES_MULTIPLY_ADD 1
#else
#define SINTER_FUSES_MULTIPLY_ADD 0
#endif
