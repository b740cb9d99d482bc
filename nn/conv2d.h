// Conv2d: a convolution of images [N, C, H, W]. Parameters as in PyTorch: "weight" f32[out, in, R,
// S], "bias" f32[out].
#pragma once

#include "nn/linear.h"

namespace sinter::nn {

class Conv2d : public ProductLayer {
 public:
  // kernel, stride and padding: one number, or {of rows, of columns}. Throws usage.
  Conv2d(int64_t in_channels, int64_t out_channels, const Dims& kernel, const Dims& stride = 1,
      const Dims& padding = 0, bool bias = true) {
    SINTER_CHECK(in_channels > 0 && out_channels > 0, usage,
        sinter::str(
            "Conv2d: channels must be 1 or more: in ", in_channels, ", out ", out_channels));
    const auto [kernel_h, kernel_w] = pair("kernel", kernel, 1);
    const auto [stride_h, stride_w] = pair("stride", stride, 1);
    const auto [pad_h, pad_w] = pair("padding", padding, 0);
    attrs_ = {stride_h, stride_w, pad_h, pad_w};
    add_parameter("weight", Tensor::empty({out_channels, in_channels, kernel_h, kernel_w}));
    if (bias) add_parameter("bias", Tensor::empty({out_channels}));
    ProductLayer::init_own(init::default_stream());
  }
  // x[N, in, H, W] -> [N, out, P, Q], as conv2d() has it.
  Tensor forward(const Tensor& x) override {
    if (!weight().autograd().bf16_copy.defined()) return conv2d(x, weight(), bias(), attrs_);
    const Tensor low = x.dtype() == DType::bf16 ? x : cast(x, DType::bf16);
    const Tensor y = conv2d(low, low_precision(weight()), bias(), attrs_);
    return y.dtype() == result_ ? y : cast(y, result_);
  }
  std::string describe() const override {
    const auto& [stride_h, stride_w, pad_h, pad_w] = attrs_;
    std::string text =
        sinter::str("Conv2d(", weight().size(1), ", ", weight().size(0), ", kernel_size=(",
            weight().size(2), ", ", weight().size(3), "), stride=(", stride_h, ", ", stride_w, ")");
    if (pad_h != 0 || pad_w != 0) text += sinter::str(", padding=(", pad_h, ", ", pad_w, ")");
    return text + (num_tensors() > 1 ? ")" : ", bias=False)");
  }

  const Tensor& weight() const { return tensor(0); }
  Tensor bias() const { return num_tensors() > 1 ? tensor(1) : Tensor(); }

 private:
  // {rows, columns} of one number or two, each at least `low`.
  static std::array<int64_t, 2> pair(const char* name, const Dims& given, int64_t low) {
    const bool fits = given.rank() == 1 || given.rank() == 2;
    SINTER_CHECK(fits && given[0] >= low && given[-1] >= low, usage,
        sinter::str(
            "Conv2d: ", name, " is ", given.str(), "; one number or two, each at least ", low));
    return {given[0], given[-1]};
  }
  Conv2dAttrs attrs_;
};

}  // namespace sinter::nn
