// What the CPU kernels of conv2d share with those of the fused ops: how tensors in NCHW come to the
// tiles of ops/image/fast/conv2d_parts.h.
#pragma once

#include "ops/image/conv2d.h"
#include "ops/image/fast/conv2d_parts.h"

namespace sinter::conv {

// dx from dy: the two change places.
inline Correlation input_grad_of(const Conv2dSizes& z) {
  Correlation g{z, z.stride_h, z.stride_w};
  std::swap(g.c, g.o);
  std::swap(g.h, g.p);
  std::swap(g.w, g.q);
  g.stride_h = g.stride_w = 1;
  g.pad_h = z.r - 1 - z.pad_h;
  g.pad_w = z.s - 1 - z.pad_w;
  return g;
}

// weight(o, c, r, s) of a dense [O, C, R, S], and of its transpose, turned by 180 degrees.
template <class T> auto weights_of(const Tensor& weight) {
  const T* w = weight.data<T>();
  const int64_t c = weight.size(1), r = weight.size(2), s = weight.size(3);
  return [=](int64_t o, int64_t in, int64_t i, int64_t j) {
    return compute_t<T>(w[((o * c + in) * r + i) * s + j]);
  };
}
template <class T> auto turned_weights_of(const Tensor& weight) {
  const auto at = weights_of<T>(weight);
  const int64_t r = weight.size(2), s = weight.size(3);
  return [=](int64_t c, int64_t o, int64_t i, int64_t j) { return at(o, c, r - 1 - i, s - 1 - j); };
}
// bias(o) of T or of the type of its sums; 0 without one.
template <class T> auto bias_of(const Tensor& bias) {
  using V = compute_t<T>;
  return [bias](int64_t o) {
    if (!bias.defined()) return V(0);
    return bias.dtype() == dtype_of<T> ? V(bias.data<T>()[o]) : bias.data<V>()[o];
  };
}

// What fills the tile of a part's x from images in memory.
template <class T> auto image_source(const Correlation& g, const T* x) {
  using V = compute_t<T>;
  return [=](const Part& part, V* tile) {
    auto rows = [&](int64_t c, int64_t row, int64_t skip, int64_t count, V* lanes) {
      to_lanes<V>(x + ((part.image * g.c + c) * g.h + row) * g.w + skip, g.c * g.h * g.w,
          part.count, count, lanes);
    };
    load_tile(g, part.first * g.stride_h, g.tile_rows(part.rows), rows, tile);
  };
}
// And what fills that of its dy, whole rows without padding.
template <class T> auto gradient_source(const Correlation& g, const T* dy) {
  return [=](const Part& part, compute_t<T>* tile) {
    for (int64_t o = 0; o < g.o; ++o, tile += part.rows * g.q * kImages<compute_t<T>>)
      to_lanes<compute_t<T>>(dy + ((part.image * g.o + o) * g.p + part.first) * g.q,
          g.o * g.p * g.q, part.count, part.rows * g.q, tile);
  };
}
// Takes a part's results, of V, or bytes beside them, to images in memory.
template <class T, class V = compute_t<T>> struct ImageSink {
  using Element = std::conditional_t<std::is_same_v<T, uint8_t>, uint8_t, V>;
  Correlation g;
  T* y;
  void operator()(const Part& part, const Element* tile) const {
    for (int64_t o = 0; o < g.o; ++o, tile += part.rows * g.q * kImages<V>)
      from_lanes<V>(tile, part.rows * g.q, y + ((part.image * g.o + o) * g.p + part.first) * g.q,
          g.o * g.p * g.q, part.count);
  }
};

}  // namespace sinter::conv
