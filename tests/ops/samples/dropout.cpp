// Samples of dropout.
#include "ops/ops.h"
#include "tests/ops/samples/samples.h"

namespace sinter {
namespace {

std::vector<Sample> dropout_samples() {
  const Tensor rng = Tensor::from<int64_t>({7, 3, 0}, {3});
  return {{{sample_tensor({5, 27}, 1), rng}, DropoutAttrs{0.5, 0}, "odd"},
      {{sample_tensor({5, 27}, 1), rng}, DropoutAttrs{0.5, 0, 3}, "a part of the batch"},
      {{sample_tensor({1, 17}, 2), rng}, DropoutAttrs{0.1, 2}, "one row"},
      {{sample_tensor({3, 4}, 3), rng}, DropoutAttrs{1, 0}, "nothing kept"},
      {{sample_tensor({0, 4}, 4), rng}, DropoutAttrs{0.5, 1}, "empty batch"},
      {{transpose(sample_tensor({6, 4}, 5)), rng}, DropoutAttrs{0.3, 1}, "transposed"},
      bad_sample({sample_tensor({3, 4}, 6), Tensor::zeros({2}, DType::i64)}, DropoutAttrs{},
          "short rng state"),
      bad_sample({Tensor::zeros({3, 4}, DType::i32), rng}, DropoutAttrs{}, "integers")};
}

const Samples dropout_samples_of(kDropoutOp, dropout_samples);

}  // namespace
}  // namespace sinter
