// Samples of sum_rows.
#include "ops/ops.h"
#include "tests/ops/samples/samples.h"

namespace sinter {
namespace {

std::vector<Sample> sum_rows_samples() {
  return {{{sample_tensor({7, 19}, 1)}, {}, "odd"}, {{sample_tensor({1, 33}, 2)}, {}, "one row"},
      {{sample_tensor({3, 2, 5}, 3)}, {}, "three dims"},
      {{sample_tensor({0, 4}, 4)}, {}, "empty batch"},
      {{transpose(sample_tensor({6, 4}, 5))}, {}, "transposed"},
      bad_sample({sample_tensor({}, 6)}, {}, "scalar"),
      bad_sample({Tensor::zeros({2, 3}, DType::i32)}, {}, "integers")};
}

const Samples sum_rows_samples_of(kSumRowsOp, sum_rows_samples);

}  // namespace
}  // namespace sinter
