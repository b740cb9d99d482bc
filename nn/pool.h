// Layers over images [N, C, H, W] without parameters: MaxPool2d, AvgPool2d; and Flatten, which
// leads from them to Linear.
#pragma once

#include "nn/activations.h"

namespace sinter::nn {
namespace detail {

// "2" or "(3, 2)", as PyTorch writes sizes.
inline std::string height_and_width(int64_t height, int64_t width) {
  return height == width ? sinter::str(height) : sinter::str("(", height, ", ", width, ")");
}
// "MaxPool2d(kernel_size=2, stride=2, padding=0)"
inline std::string describe_pool(const char* layer, const Pool2dAttrs& a) {
  return sinter::str(layer, "(kernel_size=", height_and_width(a.kernel_h, a.kernel_w),
      ", stride=", height_and_width(a.stride_h, a.stride_w),
      ", padding=", height_and_width(a.pad_h, a.pad_w), ")");
}
// stride 0: that of the kernel, side by side.
inline Pool2dAttrs square_pool(int64_t kernel, int64_t stride, int64_t padding) {
  const int64_t apart = stride ? stride : kernel;
  return {kernel, kernel, apart, apart, padding, padding};
}

}  // namespace detail

// Which windows fit an image is max_pool2d's and avg_pool2d's to say (ops/ops.h).
template <auto pool> struct Pool2d : Activation {
  explicit Pool2d(const Pool2dAttrs& attrs)
      : Activation(detail::describe_pool(pool == max_pool2d ? "MaxPool2d" : "AvgPool2d", attrs),
            [attrs](const Tensor& x) { return pool(x, attrs); }) {}
  explicit Pool2d(int64_t kernel_size, int64_t stride = 0, int64_t padding = 0)
      : Pool2d(detail::square_pool(kernel_size, stride, padding)) {}
};
using MaxPool2d = Pool2d<max_pool2d>;
using AvgPool2d = Pool2d<avg_pool2d>;

// [N, C, H, W] -> [N, C H W]: the dims from start_dim on become one.
struct Flatten : Activation {
  explicit Flatten(int64_t start_dim = 1)
      : Activation(sinter::str("Flatten(start_dim=", start_dim, ")"),
            [start_dim](const Tensor& x) { return flatten(x, start_dim); }) {}
};

}  // namespace sinter::nn
