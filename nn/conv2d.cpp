#include "nn/conv2d.h"

namespace sinter::nn {
namespace {

// {rows, columns} of one number or two, each at least `low`.
Dims conv2d_pair(const char* name, const Dims& given, int64_t low) {
  const bool fits = given.rank() == 1 || given.rank() == 2;
  SINTER_CHECK(fits && given[0] >= low && given[-1] >= low, usage,
      cat("Conv2d: ", name, " is ", given.str(), "; one number or two, each at least ", low));
  return {given[0], given[-1]};
}
std::string conv2d_pair_text(int64_t rows, int64_t columns) {
  return cat("(", rows, ", ", columns, ")");
}

}  // namespace

Conv2d::Conv2d(int64_t in_channels, int64_t out_channels, const Dims& kernel, const Dims& stride,
    const Dims& padding, bool bias)
    : has_bias_(bias) {
  SINTER_CHECK(in_channels > 0 && out_channels > 0, usage,
      cat("Conv2d: channels must be 1 or more: in ", in_channels, ", out ", out_channels));
  const Dims size = conv2d_pair("kernel", kernel, 1), step = conv2d_pair("stride", stride, 1),
             pad = conv2d_pair("padding", padding, 0);
  attrs_ = {step[0], step[1], pad[0], pad[1]};
  add_parameter("weight", Tensor::empty({out_channels, in_channels, size[0], size[1]}));
  if (bias) add_parameter("bias", Tensor::empty({out_channels}));
  Conv2d::init_own(init::default_stream());
}

void Conv2d::init_own(init::Stream& stream) {
  const int64_t fan_in = weight().numel() / weight().size(0);
  init::linear_default(weight(), fan_in, stream);
  if (has_bias_) init::linear_default(bias(), fan_in, stream);
}

bool Conv2d::enable_bf16_own(Converter& convert, DType out) {
  weight().autograd().bf16_copy = convert(weight(), DType::bf16);
  result_ = out;
  return true;
}

Tensor Conv2d::forward(const Tensor& x) {
  if (!weight().autograd().bf16_copy.defined()) return conv2d(x, weight(), bias(), attrs_);
  const Tensor low = x.dtype() == DType::bf16 ? x : cast(x, DType::bf16);
  const Tensor y = conv2d(low, low_precision(weight()), bias(), attrs_);
  return y.dtype() == result_ ? y : cast(y, result_);
}

std::string Conv2d::describe() const {
  const auto& [stride_h, stride_w, pad_h, pad_w] = attrs_;
  std::string text = cat("Conv2d(", weight().size(1), ", ", weight().size(0),
      ", kernel_size=", conv2d_pair_text(weight().size(2), weight().size(3)),
      ", stride=", conv2d_pair_text(stride_h, stride_w));
  if (pad_h != 0 || pad_w != 0) text += cat(", padding=", conv2d_pair_text(pad_h, pad_w));
  return text + (has_bias_ ? ")" : ", bias=False)");
}

}  // namespace sinter::nn
