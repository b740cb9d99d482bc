// LayerNorm: for each row, (x - mean) / standard deviation * weight + bias.
// Parameters as in PyTorch: "weight" f32[features], at first 1, and "bias" f32[features], at first
// 0.
#pragma once

#include "nn/module.h"
#include "ops/ops.h"

namespace sinter::nn {

class LayerNorm : public Module {
 public:
  // features: the size of the last dim, >= 1; eps >= 0, below the root of the variance. Throws
  // usage.
  explicit LayerNorm(int64_t features, double eps = 1e-5) : features_(features), eps_(eps) {
    SINTER_CHECK(features > 0 && eps >= 0, usage,
        sinter::str(
            "LayerNorm: features is ", features, ", at least 1; eps is ", eps, ", at least 0"));
    add_parameter("weight", Tensor::ones({features}));
    add_parameter("bias", Tensor::zeros({features}));
  }
  // x[.., features] -> the same shape, computed and given in the parameters' type (f32), as under
  // PyTorch's autocast.
  Tensor forward(const Tensor& x) override {
    const DType type = tensor(0).dtype();
    return layer_norm(x.dtype() == type ? x : cast(x, type), tensor(0), tensor(1), eps_);
  }
  std::string describe() const override { return sinter::str("LayerNorm(", features_, ")"); }

 protected:
  void init_own(init::Stream&) override {
    init::ones(tensor(0));
    init::zeros(tensor(1));
  }

 private:
  int64_t features_;
  double eps_;
};

}  // namespace sinter::nn
