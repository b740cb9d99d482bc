// BatchNorm2d: for each channel, (x - mean) / standard deviation * weight + bias. In training mean
// and deviation are those of the batch, in evaluation the running ones. Keys as in PyTorch:
// parameters "weight" f32[features], at first 1, and "bias", at first 0; buffers "running_mean", at
// first 0, "running_var", at first 1, and "num_batches_tracked" i64[], which training changes in
// place, in a captured step too.
#pragma once

#include "nn/module.h"
#include "ops/ops.h"

namespace sinter::nn {

class BatchNorm2d : public Module {
 public:
  // num_features: channels, >= 1; eps >= 0, below the root of the variance; momentum 0 to 1, the
  // share of a batch in the running statistics. Throws usage.
  explicit BatchNorm2d(int64_t num_features, double eps = 1e-5, double momentum = 0.1)
      : features_(num_features), attrs_{momentum, eps} {
    SINTER_CHECK(features_ > 0 && eps >= 0 && momentum >= 0 && momentum <= 1, usage,
        sinter::str("BatchNorm2d: num_features is ", features_, ", at least 1; eps is ", eps,
            ", at least 0; momentum is ", momentum, ", 0 to 1"));
    add_parameter("weight", Tensor::ones({features_}));
    add_parameter("bias", Tensor::zeros({features_}));
    add_buffer("running_mean", Tensor::zeros({features_}));
    add_buffer("running_var", Tensor::ones({features_}));
    add_buffer("num_batches_tracked", Tensor::zeros({}, DType::i64));
  }
  // x[N, features, ..] -> the same shape, computed and given in the parameters' type (f32).
  Tensor forward(const Tensor& x) override {
    const DType type = tensor(0).dtype();
    const Tensor in = x.dtype() == type ? x : cast(x, type);
    if (is_training())
      return batch_norm2d(in, tensor(0), tensor(1), tensor(2), tensor(3), tensor(4), attrs_);
    return batch_norm2d_eval(in, tensor(0), tensor(1), tensor(2), tensor(3), attrs_.eps);
  }
  std::string describe() const override {
    return sinter::str(
        "BatchNorm2d(", features_, ", eps=", attrs_.eps, ", momentum=", attrs_.momentum, ")");
  }

 protected:
  void init_own(init::Stream&) override {
    init::ones(tensor(0));
    init::zeros(tensor(1));
    init::zeros(tensor(2));
    init::ones(tensor(3));
    copy_values(tensor(4), Tensor::zeros({}, DType::i64), "init");
  }
  bool depends_on_training() const override { return true; }

 private:
  int64_t features_;
  BatchNormAttrs attrs_;
};

}  // namespace sinter::nn
