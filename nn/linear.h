// Linear: y = x W^T + b, the fully connected layer. Parameters as in PyTorch: "weight" f32[out,
// in], "bias" f32[out].
#pragma once

#include "nn/module.h"

// I in, O out
namespace sinter::nn {

class Linear : public Module {
 public:
  // Values are U(-1/sqrt(in), 1/sqrt(in)), PyTorch's default. Sizes >= 1; throws usage.
  Linear(int64_t in_features, int64_t out_features, bool bias = true);
  // x[.., I] -> [.., O]
  Tensor forward(const Tensor& x) override;
  std::string describe() const override;

  const Tensor& weight() const { return tensor(0); }
  Tensor bias() const { return has_bias_ ? tensor(1) : Tensor(); }

 protected:
  void init_own(init::Stream& stream) override;
  bool enable_bf16_own(Converter& convert, DType out) override;

 private:
  int64_t in_, out_;
  bool has_bias_;
  DType result_ = DType::f32;  // with a bf16 copy of the weight
};

// x W^T + b by the weight's bf16 copy (autograd().bf16_copy), if it has one; then x is rounded and
// the result is of type `out`.
Tensor linear_mixed(const Tensor& x, const Tensor& weight, const Tensor& bias, DType out);

}  // namespace sinter::nn
