// Samples of tril.
#include "ops/ops.h"
#include "tests/ops/samples/samples.h"

namespace sinter {
namespace {

std::vector<Sample> tril_samples() {
  return {{{sample_tensor({5, 7}, 1)}, TrilAttrs{}, "odd"},
      {{sample_tensor({2, 3, 4, 4}, 2)}, TrilAttrs{1}, "four dims, above"},
      {{sample_tensor({7, 5}, 3)}, TrilAttrs{-3}, "below"},
      {{sample_tensor({3, 4}, 4)}, TrilAttrs{-9}, "nothing is left"},
      {{sample_tensor({3, 4}, 5)}, TrilAttrs{9}, "all is left"},
      {{sample_tensor({1, 17}, 6)}, TrilAttrs{}, "one row"},
      {{transpose(sample_tensor({6, 4}, 7))}, TrilAttrs{}, "transposed"},
      {{sample_tensor({0, 4}, 8)}, TrilAttrs{}, "empty"},
      {{sample_tensor({4, 0}, 9)}, TrilAttrs{}, "no columns"},
      bad_sample({sample_tensor({4}, 10)}, TrilAttrs{}, "one dim"),
      bad_sample({Tensor::zeros({3, 4}, DType::i32)}, TrilAttrs{}, "integers")};
}

const Samples tril_samples_of(kTrilOp, tril_samples);

}  // namespace
}  // namespace sinter
