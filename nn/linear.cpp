#include "nn/linear.h"

#include "ops/ops.h"

namespace sinter::nn {

Linear::Linear(int64_t in_features, int64_t out_features, bool bias)
    : in_(in_features), out_(out_features), has_bias_(bias) {
  SINTER_CHECK(
      in_ > 0 && out_ > 0, usage, cat("Linear: sizes must be 1 or more: in ", in_, ", out ", out_));
  add_parameter("weight", Tensor::empty({out_, in_}));
  if (bias) add_parameter("bias", Tensor::empty({out_}));
  Linear::init_own(init::default_stream());
}

void Linear::init_own(init::Stream& stream) {
  init::linear_default(weight(), in_, stream);
  if (has_bias_) init::linear_default(bias(), in_, stream);
}

bool Linear::enable_bf16_own(Converter& convert, DType out) {
  weight().autograd().bf16_copy = convert(weight(), DType::bf16);
  result_ = out;
  return true;
}

Tensor Linear::forward(const Tensor& x) { return linear_mixed(x, weight(), bias(), result_); }

std::string Linear::describe() const {
  return cat("Linear(", in_, " -> ", out_, has_bias_ ? ")" : ", no bias)");
}

Tensor linear_mixed(const Tensor& x, const Tensor& weight, const Tensor& bias, DType out) {
  if (!weight.autograd().bf16_copy.defined()) return linear(x, weight, bias);
  return linear_to(
      x.dtype() == DType::bf16 ? x : cast(x, DType::bf16), low_precision(weight), bias, out);
}

}  // namespace sinter::nn
