// RMSNorm: for each row, x / root of the mean of its squares * weight. Parameter as in PyTorch:
// "weight" f32[features], at first 1, or none.
#pragma once

#include "nn/module.h"
#include "ops/ops.h"

namespace sinter::nn {

class RMSNorm : public Module {
 public:
  // features: the size of the last dim, >= 1; eps >= 0, below the root. Throws usage.
  explicit RMSNorm(int64_t features, double eps = 1e-5, bool weight = true)
      : features_(features), eps_(eps) {
    SINTER_CHECK(features > 0 && eps >= 0, usage,
        sinter::str(
            "RMSNorm: features is ", features, ", at least 1; eps is ", eps, ", at least 0"));
    if (weight) add_parameter("weight", Tensor::ones({features}));
  }
  // x[.., features] -> the same shape, computed and given in the weight's type (f32), as LayerNorm.
  Tensor forward(const Tensor& x) override {
    SINTER_CHECK(x.size(-1) == features_, shape,
        sinter::str("RMSNorm: wrong number of features: x is ", x.describe(),
            "; its last dim must be ", features_));
    const Tensor weight = num_tensors() > 0 ? tensor(0) : Tensor();
    const DType type = weight.defined() ? weight.dtype() : x.dtype();
    return rms_norm(x.dtype() == type ? x : cast(x, type), weight, eps_);
  }
  std::string describe() const override {
    return sinter::str("RMSNorm(", features_, num_tensors() > 0 ? ")" : ", no weight)");
  }

 protected:
  void init_own(init::Stream&) override {
    if (num_tensors() > 0) init::ones(tensor(0));
  }

 private:
  int64_t features_;
  double eps_;
};

}  // namespace sinter::nn
