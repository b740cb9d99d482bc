// Where the windows of a pooling lie, for its kernels on every device. A plane is one image's
// channel; its windows are those of two axes.
#pragma once

#include "ops/ops.h"

namespace sinter {

// One direction of the windows: `outputs` of them over `size` elements.
struct PoolAxis {
  int64_t kernel, stride, pad, size, outputs;
  struct Range {
    int64_t begin, end;
  };

  // Where the window of an output begins, in the padding perhaps, and which of its elements are in
  // x.
  SINTER_FN int64_t start(int64_t output) const { return output * stride - pad; }
  SINTER_FN Range taps(int64_t output) const {
    const int64_t first = start(output);
    return {first < 0 ? -first : 0, smaller(kernel, size - first)};
  }
  // The outputs in whose windows an element of x is, and those whose windows have their element
  // `tap` in x.
  SINTER_FN Range outputs_at(int64_t element) const {
    const int64_t place = element + pad;
    return {place < kernel ? 0 : (place - kernel) / stride + 1,
        smaller(place / stride, outputs - 1) + 1};
  }
  Range outputs_of(int64_t tap) const {
    const auto before = [&](int64_t place) { return place > 0 ? (place - 1) / stride + 1 : 0; };
    return {before(pad - tap), smaller(before(size + pad - tap), outputs)};
  }
  bool side_by_side() const { return stride == kernel && pad == 0; }
  // Then: the elements from the window's beginning to the next one's; of the last all that are
  // left.
  SINTER_FN int64_t cell(int64_t output) const {
    return output + 1 < outputs ? kernel : size - output * kernel;
  }

 private:
  static SINTER_FN int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
};

struct PoolPlane {
  PoolAxis rows, columns;
  PoolPlane(const Pool2dAttrs& a, const Tensor& x, const Tensor& y)
      : rows{a.kernel_h, a.stride_h, a.pad_h, x.size(2), y.size(2)},
        columns{a.kernel_w, a.stride_w, a.pad_w, x.size(3), y.size(3)} {}

  SINTER_FN int64_t inputs() const { return rows.size * columns.size; }
  SINTER_FN int64_t outputs() const { return rows.outputs * columns.outputs; }
  SINTER_FN int64_t area() const { return rows.kernel * columns.kernel; }
  bool side_by_side() const { return rows.side_by_side() && columns.side_by_side(); }

  // f(k, at), row by row, for the elements of the window of output (p, q) that are no padding: k is
  // the place in the window, `at` that in the plane.
  template <class F> SINTER_FN void for_window(int64_t p, int64_t q, const F& f) const {
    const auto down = rows.taps(p), right = columns.taps(q);
    const int64_t first = rows.start(p) * columns.size + columns.start(q);
    for (int64_t r = down.begin; r < down.end; ++r) {
      for (int64_t s = right.begin; s < right.end; ++s)
        f(r * columns.kernel + s, first + r * columns.size + s);
    }
  }
  // Where windows lie side by side: f(k, at) for the elements of the window of output (p, q), and
  // those beyond the last ones, which are in no window, with k < 0.
  template <class F> SINTER_FN void for_cell(int64_t p, int64_t q, const F& f) const {
    const int64_t down = rows.cell(p), right = columns.cell(q);
    const int64_t first = rows.start(p) * columns.size + columns.start(q);
    for (int64_t r = 0; r < down; ++r) {
      for (int64_t s = 0; s < right; ++s) {
        const bool inside = r < rows.kernel && s < columns.kernel;
        f(inside ? r * columns.kernel + s : -1, first + r * columns.size + s);
      }
    }
  }
  // The other way round: f(k, at) for the windows that hold element (h, w) of the input, by the
  // places of their outputs in order; k is the element's place in the window.
  template <class F> SINTER_FN void for_windows_of(int64_t h, int64_t w, const F& f) const {
    const auto down = rows.outputs_at(h), right = columns.outputs_at(w);
    for (int64_t p = down.begin; p < down.end; ++p) {
      for (int64_t q = right.begin; q < right.end; ++q)
        f((h - rows.start(p)) * columns.kernel + w - columns.start(q), p * columns.outputs + q);
    }
  }
  // f(k, at, output, n): in the n windows from `output` on, which lie in one row, element k of the
  // window lies inside x, in the first of them at `at`, in the next a stride further on. An output
  // meets its elements in order; or, from the last one on, an element of x its windows in order.
  template <class F> void for_taps(bool from_last, const F& f) const {
    for (int64_t i = 0; i < area(); ++i) {
      const int64_t k = from_last ? area() - 1 - i : i;
      const int64_t r = k / columns.kernel, s = k % columns.kernel;
      const auto down = rows.outputs_of(r), right = columns.outputs_of(s);
      for (int64_t p = down.begin; p < down.end && right.begin < right.end; ++p)
        f(k, (rows.start(p) + r) * columns.size + columns.start(right.begin) + s,
            p * columns.outputs + right.begin, right.end - right.begin);
    }
  }
};

// What an index has instead of a place in the window where ReLU lets nothing of the maximum pass,
// so that backward has no need of y. Windows have fewer elements.
inline constexpr uint8_t kNoPlace = 255;

// Does v take the place of the best so far? The first maximum stays; a NaN wins, the last one of
// several, as in PyTorch.
template <class V> SINTER_FN bool beats(V v, V best) { return v > best || v != v; }

}  // namespace sinter
