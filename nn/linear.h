// Linear: y = x W^T + b, the fully connected layer. Parameters as in PyTorch: "weight" f32[out,
// in], "bias" f32[out]. And what it shares with the other layers of products, Conv2d and Glu.
#pragma once

#include "nn/module.h"
#include "ops/ops.h"

// I in, O out
namespace sinter::nn {

// A layer whose parameters are weights [out, ..], each with or without a bias behind it.
class ProductLayer : public Module {
 protected:
  // U(-1/sqrt(fan_in), 1/sqrt(fan_in)), PyTorch's default; fan_in: of how many inputs an output is.
  void init_own(init::Stream& stream) override {
    int64_t fan_in = 0;
    for (size_t i = 0; i < num_tensors(); ++i) {
      if (tensor(i).rank() > 1) fan_in = tensor(i).numel() / tensor(i).size(0);
      init::linear_default(tensor(i), fan_in, stream);
    }
  }
  bool enable_bf16_own(Converter& convert, DType out) override {
    for (size_t i = 0; i < num_tensors(); ++i) {
      if (tensor(i).rank() > 1) tensor(i).autograd().bf16_copy = convert(tensor(i), DType::bf16);
    }
    result_ = out;
    return true;
  }
  DType result_ = DType::f32;  // with bf16 copies of the weights
};

// x W^T + b by the weight's bf16 copy (autograd().bf16_copy), if it has one; then x is rounded and
// the result is of type `out`.
inline Tensor linear_mixed(const Tensor& x, const Tensor& weight, const Tensor& bias, DType out) {
  if (!weight.autograd().bf16_copy.defined()) return linear(x, weight, bias);
  const Tensor low = x.dtype() == DType::bf16 ? x : cast(x, DType::bf16);
  return linear_to(low, low_precision(weight), bias, out);
}

class Linear : public ProductLayer {
 public:
  // Sizes >= 1; throws usage.
  Linear(int64_t in_features, int64_t out_features, bool bias = true) {
    SINTER_CHECK(in_features > 0 && out_features > 0, usage,
        sinter::str("Linear: sizes must be 1 or more: in ", in_features, ", out ", out_features));
    add_parameter("weight", Tensor::empty({out_features, in_features}));
    if (bias) add_parameter("bias", Tensor::empty({out_features}));
    ProductLayer::init_own(init::default_stream());
  }
  // x[.., I] -> [.., O]
  Tensor forward(const Tensor& x) override { return linear_mixed(x, weight(), bias(), result_); }
  std::string describe() const override {
    return sinter::str("Linear(", weight().size(1), " -> ", weight().size(0),
        num_tensors() > 1 ? ")" : ", no bias)");
  }

  const Tensor& weight() const { return tensor(0); }
  Tensor bias() const { return num_tensors() > 1 ? tensor(1) : Tensor(); }
};

}  // namespace sinter::nn
