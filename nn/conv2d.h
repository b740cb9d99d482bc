// Conv2d: a convolution of images [N, C, H, W]. Parameters as in PyTorch: "weight" f32[out, in, R,
// S], "bias" f32[out].
#pragma once

#include "nn/module.h"
#include "ops/ops.h"

namespace sinter::nn {

class Conv2d : public Module {
 public:
  // kernel, stride and padding: one number, or {of rows, of columns}. Values are U(-1/sqrt(fan_in),
  // 1/sqrt(fan_in)), fan_in = in * R * S: PyTorch's default. Throws usage.
  Conv2d(int64_t in_channels, int64_t out_channels, const Dims& kernel, const Dims& stride = 1,
      const Dims& padding = 0, bool bias = true);
  // x[N, in, H, W] -> [N, out, P, Q], as conv2d() has it.
  Tensor forward(const Tensor& x) override;
  std::string describe() const override;

  const Tensor& weight() const { return tensor(0); }
  Tensor bias() const { return has_bias_ ? tensor(1) : Tensor(); }

 protected:
  void init_own(init::Stream& stream) override;
  bool enable_bf16_own(Converter& convert, DType out) override;

 private:
  Conv2dAttrs attrs_;
  bool has_bias_;
  DType result_ = DType::f32;  // with a bf16 copy of the weight
};

}  // namespace sinter::nn
