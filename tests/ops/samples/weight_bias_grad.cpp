// Samples of weight_bias_grad.
#include "ops/fused/fused.h"
#include "tests/ops/samples/samples.h"

namespace sinter {
namespace {

std::vector<Sample> weight_bias_grad_samples() {
  const auto make = [](int64_t b, int64_t o, int64_t i, const char* what) {
    return fixed_sample({sample_tensor({b, o}, 1), sample_tensor({b, i}, 2)}, {}, what);
  };
  return {make(17, 77, 333, "odd"), make(97, 333, 77, "ragged"), make(1, 77, 333, "one row"),
      make(0, 5, 7, "empty batch"), make(97, 10, 1, "one input"), make(64, 128, 256, "whole tiles"),
      make(600, 33, 65, "large batch"),
      bad_sample({sample_tensor({4, 5}, 1), sample_tensor({3, 7}, 2)}, {}, "rows differ"),
      bad_sample({sample_tensor({4, 5}, 1), sample_tensor({4}, 2)}, {}, "one dim")};
}

const Samples weight_bias_grad_samples_of(kWeightBiasGradOp, weight_bias_grad_samples);

}  // namespace
}  // namespace sinter
