// Samples of linear.
#include "ops/ops.h"
#include "tests/ops/samples/samples.h"

namespace sinter {
namespace {

std::vector<Sample> linear_samples() {
  const auto make = [](int64_t b, int64_t i, int64_t o, bool bias, const char* what) {
    Sample s{{sample_tensor({b, i}, 1), sample_tensor({o, i}, 2)}, LinearAttrs{DType::f64}, what};
    if (bias) s.in.push_back(sample_tensor({o}, 3));
    return s;
  };
  Sample strided = make(6, 5, 4, true, "transposed operands");
  strided.in[0] = transpose(sample_tensor({5, 6}, 4));
  strided.in[1] = transpose(sample_tensor({5, 4}, 5));
  const LinearAttrs f64{DType::f64};
  return {make(7, 13, 5, true, "odd"), make(1, 17, 3, true, "one row"),
      make(17, 9, 10, false, "ragged, no bias"), make(9, 16, 24, true, "whole groups"),
      make(0, 4, 3, true, "empty batch"), strided,
      bad_sample({sample_tensor({4, 7}, 1), sample_tensor({5, 6}, 2)}, f64, "features differ"),
      bad_sample({sample_tensor({4, 2, 3}, 1), sample_tensor({5, 6}, 2)}, f64, "not flattened"),
      bad_sample({sample_tensor({4, 6}, 1), sample_tensor({5, 6}, 2), sample_tensor({6}, 3)}, f64,
          "bias of another length"),
      bad_sample({sample_tensor({4, 6}, 1), Tensor::zeros({5, 6})}, f64, "types differ")};
}

const Samples linear_samples_of(kLinearOp, linear_samples);

}  // namespace
}  // namespace sinter
