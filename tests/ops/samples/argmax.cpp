// Samples of argmax.
#include "ops/ops.h"
#include "tests/ops/samples/samples.h"

namespace sinter {
namespace {

std::vector<Sample> argmax_samples() {
  return {{{sample_tensor({5, 7}, 1)}, DimAttrs{-1}, "rows"},
      {{sample_tensor({1, 10}, 2)}, DimAttrs{1}, "one row"},
      {{sample_tensor({3, 4, 5}, 3)}, DimAttrs{1}, "the middle"},
      {{sample_tensor({5, 4, 3}, 7)}, DimAttrs{-3}, "the first"},
      {{Tensor::from<double>({1, 3, 3, 2, 5, 5, -1, 5, -4, -4, -4, -4}, {3, 4})}, DimAttrs{-1},
          "ties"},
      {{sample_tensor({0, 4}, 4)}, DimAttrs{1}, "empty batch"},
      {{transpose(sample_tensor({6, 4}, 5))}, DimAttrs{-1}, "transposed"},
      bad_sample({sample_tensor({3, 0}, 6)}, DimAttrs{1}, "nothing to compare"),
      bad_sample({sample_tensor({3, 2}, 6)}, DimAttrs{2}, "no such dim")};
}

const Samples argmax_samples_of(kArgmaxOp, argmax_samples);

}  // namespace
}  // namespace sinter
