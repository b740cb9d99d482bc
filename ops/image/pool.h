// Where the windows of a pooling lie, for its kernels on every device: a plane [height, width] of
// one image and channel gives a plane [out_height, out_width].
#pragma once

#include "ops/ops.h"

namespace sinter {

struct PoolPlane {
  Pool2dAttrs window;
  int64_t height, width, out_height, out_width;
  PoolPlane(const Pool2dAttrs& window, const Tensor& x, const Tensor& y)
      : window(window),
        height(x.size(2)),
        width(x.size(3)),
        out_height(y.size(2)),
        out_width(y.size(3)) {}

  // f(k, at), row by row, for the elements of the window of output (p, q) that are no padding: k is
  // the place in the window, `at` that in the plane.
  template <class F> SINTER_FN void for_window(int64_t p, int64_t q, const F& f) const {
    const int64_t top = p * window.stride_h - window.pad_h,
                  left = q * window.stride_w - window.pad_w;
    const int64_t rows = smaller(window.kernel_h, height - top),
                  columns = smaller(window.kernel_w, width - left);
    for (int64_t r = top < 0 ? -top : 0; r < rows; ++r) {
      for (int64_t s = left < 0 ? -left : 0; s < columns; ++s)
        f(r * window.kernel_w + s, (top + r) * width + left + s);
    }
  }
  // Windows that lie side by side: each element of the input belongs to one at most.
  bool side_by_side() const {
    return window.stride_h == window.kernel_h && window.stride_w == window.kernel_w &&
           window.pad_h == 0 && window.pad_w == 0;
  }
  // Then: f(k, at) for the elements of the window of output (p, q), and those beyond the last ones,
  // which are in no window, with k < 0.
  template <class F> SINTER_FN void for_cell(int64_t p, int64_t q, const F& f) const {
    const int64_t top = p * window.kernel_h, left = q * window.kernel_w;
    const int64_t rows = p + 1 < out_height ? window.kernel_h : height - top,
                  columns = q + 1 < out_width ? window.kernel_w : width - left;
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t s = 0; s < columns; ++s) {
        const bool inside = r < window.kernel_h && s < window.kernel_w;
        f(inside ? r * window.kernel_w + s : -1, (top + r) * width + left + s);
      }
    }
  }
  // The other way round: f(k, at) for the windows that hold element (h, w) of the input, by the
  // places of their outputs in order; k is the element's place in the window.
  template <class F> SINTER_FN void for_windows_of(int64_t h, int64_t w, const F& f) const {
    const int64_t row = h + window.pad_h, column = w + window.pad_w;
    const int64_t last_p = smaller(row / window.stride_h, out_height - 1),
                  last_q = smaller(column / window.stride_w, out_width - 1);
    for (int64_t p = first(row, window.kernel_h, window.stride_h); p <= last_p; ++p) {
      for (int64_t q = first(column, window.kernel_w, window.stride_w); q <= last_q; ++q) {
        const int64_t k =
            (row - p * window.stride_h) * window.kernel_w + column - q * window.stride_w;
        f(k, p * out_width + q);
      }
    }
  }

 private:
  static SINTER_FN int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
  // The first window that reaches as far as `place`.
  static SINTER_FN int64_t first(int64_t place, int64_t kernel, int64_t stride) {
    return place < kernel ? 0 : (place - kernel) / stride + 1;
  }
};

// What an index has instead of a place in the window where ReLU lets nothing of the maximum pass,
// so that backward has no need of y. Windows have fewer elements.
inline constexpr uint8_t kNoPlace = 255;

// Does v take the place of the best so far? The first maximum stays; a NaN wins, the last one of
// several, as in PyTorch.
template <class V> SINTER_FN bool beats(V v, V best) { return v > best || v != v; }

}  // namespace sinter
