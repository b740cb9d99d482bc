// Losses as objects, with PyTorch's names. Each gives one value per row; backward() of that vector
// differentiates its mean, and an optimizer's step(losses) sums it on the device (ops/ops.h has the
// functions). B batch, C classes.
#pragma once

#include "ops/ops.h"

namespace sinter::nn {

struct CrossEntropyLoss {
  double label_smoothing = 0;  // 0 <= s < 1
  // The label of rows that do not count: backward(), Trainer and evaluations divide by the number
  // of the others; mean() is of all rows.
  std::optional<int64_t> ignore_index = {};
  // logits[B, C], labels i32 or i64 [B] -> [B]
  Tensor operator()(const Tensor& logits, const Tensor& labels) const {
    return cross_entropy(logits, labels, label_smoothing, ignore_index);
  }
};

struct MseLoss {
  // x[B, ..], target of its shape -> [B], mean squared differences
  Tensor operator()(const Tensor& x, const Tensor& target) const { return mse(x, target); }
};

}  // namespace sinter::nn
