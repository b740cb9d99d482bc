// Samples of mse.
#include "ops/ops.h"
#include "tests/ops/samples/samples.h"

namespace sinter {
namespace {

std::vector<Sample> mse_samples() {
  return {{{sample_tensor({5, 7}, 1), sample_tensor({5, 7}, 2)}, {}, "odd"},
      {{sample_tensor({1, 3, 4}, 3), sample_tensor({1, 3, 4}, 4)}, {}, "one row"},
      {{sample_tensor({17}, 5), sample_tensor({17}, 6)}, {}, "one dim"},
      {{sample_tensor({0, 4}, 7), sample_tensor({0, 4}, 8)}, {}, "empty batch"},
      bad_sample({sample_tensor({5, 1}, 9), sample_tensor({5}, 10)}, {}, "shapes differ")};
}

std::vector<Sample> mse_backward_samples() {
  return {{{sample_tensor({5}, 1), sample_tensor({5, 7}, 2), sample_tensor({5, 7}, 3)}, {}, "odd"},
      {{sample_tensor({0}, 4), sample_tensor({0, 3}, 5), sample_tensor({0, 3}, 6)}, {},
          "empty batch"},
      bad_sample({sample_tensor({4}, 7), sample_tensor({5, 7}, 8), sample_tensor({5, 7}, 9)}, {},
          "row counts differ")};
}

const Samples mse_samples_of(kMseOp, mse_samples);
const Samples mse_backward_samples_of(kMseBackwardOp, mse_backward_samples);

}  // namespace
}  // namespace sinter
