// One bit per element of a ReLU's input, set where the gradient passes. Row b, feature o: byte b *
// (ld / 8) + o / 8, bit o % 8, where ld is the row length rounded up to 128 bits: the layout that
// cuBLASLt's ReLU epilogues use, so own and library kernels mix. The formula is pointwise::Relu's;
// 16 values at a time, AVX-512 makes the bits and the values by one comparison.
#pragma once

#include <cstring>

#include "core/tensor.h"
#include "ops/image/masked_lanes.h"
#include "ops/pointwise/pointwise.h"

namespace sinter {

// Bytes of one mask row.
constexpr int64_t relu_mask_row(int64_t cols) { return (cols + 127) / 128 * 16; }
// Shape of the mask of x: x's, with the last dim in bytes. REQUIRES: rank >= 1.
inline Shape relu_mask_shape(const Shape& x) {
  Shape mask = x;
  mask[-1] = relu_mask_row(x[-1]);
  return mask;
}

// y = relu(x) over one row; mask (relu_mask_row(n) bytes) may be null. In place (y == x) is
// allowed.
template <class T> inline void relu_row(const T* x, T* y, uint8_t* mask, int64_t n) {
  int64_t i = 0;
#if defined(__AVX512BW__) && defined(__AVX512VL__)
  if constexpr (std::is_same_v<compute_t<T>, float>) {
    for (; i < n; i += 16) {
      const __mmask16 here = first_lanes(n - i);
      const __m512 v = load_floats(x + i, here);
      const __mmask16 keep = _mm512_cmp_ps_mask(v, _mm512_setzero_ps(), _CMP_NLE_UQ);
      store_floats(y + i, here, _mm512_maskz_mov_ps(keep, v));
      if (mask) std::memcpy(mask + i / 8, &keep, sizeof keep);  // a row has whole words
    }
  }
#endif
  for (; i < n; i += 8) {
    uint8_t bits = 0;
    for (int64_t j = i; j < std::min(i + 8, n); ++j) {
      const compute_t<T> v = x[j];
      bits |= uint8_t(pointwise::Relu::passes(v) << (j - i));
      y[j] = pointwise::Relu().forward(v);
    }
    if (mask) mask[i / 8] = bits;
  }
  if (mask) {
    for (int64_t byte = (n + 7) / 8; byte < relu_mask_row(n); ++byte) mask[byte] = 0;
  }
}

// dx = dy where the mask has a bit, else 0. In place is allowed.
template <class T>
inline void relu_backward_row(const T* dy, const uint8_t* mask, T* dx, int64_t n) {
  int64_t i = 0;
#if defined(__AVX512BW__) && defined(__AVX512VL__)
  if constexpr (std::is_same_v<compute_t<T>, float>) {
    for (; i < n; i += 16) {
      const __mmask16 here = first_lanes(n - i);
      __mmask16 keep;
      std::memcpy(&keep, mask + i / 8, sizeof keep);
      store_floats(dx + i, here, load_floats(dy + i, keep & here));
    }
  }
#endif
  for (; i < n; ++i) dx[i] = pointwise::Relu().grad(dy[i], mask[i / 8] >> (i % 8) & 1);
}

}  // namespace sinter
