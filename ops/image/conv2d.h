// The sizes of a convolution, for what computes one: the kernels of conv2d.cpp and conv2d.cu,
// and cuDNN (cudnn_conv.cpp). The rules that they keep to are checked in conv2d.cpp.
#pragma once

#include "ops/ops.h"

// N batch, C in, O out, H x W of x, R x S of the weight, P x Q of y
namespace sinter {

struct Conv2dSizes {
  int64_t n, c, h, w, o, r, s, p, q;
  int64_t stride_h, stride_w, pad_h, pad_w;
  auto operator<=>(const Conv2dSizes&) const = default;

  int64_t taps() const { return c * r * s; }  // products for an element of y
};

// The shape of y for an image tensor x[N, C, H, W] and a weight of this shape; refuses, for `op`,
// what is no convolution.
Shape conv2d_shape(const char* op, const Tensor& x, const Shape& weight, const Conv2dAttrs& attrs);

// x, weight and y may each be a gradient of its own shape; A is Conv2dAttrs or Conv2dGradAttrs.
template <class A>
Conv2dSizes conv2d_sizes(const Tensor& x, const Tensor& weight, const Tensor& y, const A& a) {
  return {x.size(0), x.size(1), x.size(2), x.size(3), weight.size(0), weight.size(2),
      weight.size(3), y.size(2), y.size(3), a.stride_h, a.stride_w, a.pad_h, a.pad_w};
}
inline Conv2dSizes conv2d_sizes(const Call& call) {
  return conv2d_sizes(call.in[0], call.in[1], call.out[0], call.as<Conv2dAttrs>());
}
inline Conv2dSizes conv2d_input_grad_sizes(const Call& call) {
  return conv2d_sizes(call.out[0], call.in[1], call.in[0], call.as<Conv2dGradAttrs>());
}
inline Conv2dSizes conv2d_weight_grad_sizes(const Call& call) {
  return conv2d_sizes(call.in[1], call.out[0], call.in[0], call.as<Conv2dGradAttrs>());
}
// Of a gradient dy that may be of what was pooled: P and Q are those of the convolution itself.
inline Conv2dSizes conv2d_sizes_before_pooling(
    const Tensor& x, const Tensor& weight, const Tensor& dy, const Conv2dGradAttrs& attrs) {
  Conv2dSizes z = conv2d_sizes(x, weight, dy, attrs);
  z.p = (z.h + 2 * z.pad_h - z.r) / z.stride_h + 1;
  z.q = (z.w + 2 * z.pad_w - z.s) / z.stride_w + 1;
  return z;
}

}  // namespace sinter
