// What one source needs to know of the side that it is compiled for, the host's or a card's.
#pragma once

#include <cstdint>

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

namespace sinter {

// The upper half of an f32, rounded to nearest even. NaN stays NaN: on a card, where this is one
// instruction, 0x7fff.
SINTER_FN uint16_t round_to_bf16(float x) {
#if defined(__CUDA_ARCH__)
  uint16_t bits;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  return bits;
#else
  const auto u = __builtin_bit_cast(uint32_t, x);
  const uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  return uint16_t(x == x ? rounded : (u >> 16) | 0x40u);
#endif
}

// 1 / x for 1 <= x <= 2: on a card its own division, less what that asks of other x.
SINTER_FN float inverse_of_1_to_2(float x) {
#if defined(__CUDA_ARCH__)
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return __fmaf_rn(y, __fmaf_rn(-x, y, 1.0f), y);
#else
  return 1 / x;
#endif
}

}  // namespace sinter
