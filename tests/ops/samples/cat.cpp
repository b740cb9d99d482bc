// Samples of cat.
#include "ops/ops.h"
#include "tests/ops/samples/samples.h"

namespace sinter {
namespace {

std::vector<Sample> cat_samples() {
  return {{{sample_tensor({3, 5}, 1), sample_tensor({2, 5}, 2)}, DimAttrs{0}, "rows"},
      {{sample_tensor({4, 16}, 1), sample_tensor({4, 8}, 2), sample_tensor({4, 24}, 3)},
          DimAttrs{-1}, "columns, whole vectors"},
      fixed_sample({Tensor::ones({3, 16}, DType::u8), Tensor::zeros({3, 32}, DType::u8)},
          DimAttrs{1}, "bytes, whole vectors"),
      {{sample_tensor({2, 3, 5}, 1), sample_tensor({2, 1, 5}, 2)}, DimAttrs{1}, "middle dim, odd"},
      {{sample_tensor({7}, 1)}, DimAttrs{0}, "one tensor"},
      {{sample_tensor({3, 0}, 1), sample_tensor({3, 2}, 2), sample_tensor({3, 0}, 3)}, DimAttrs{1},
          "empty ones beside one"},
      {{sample_tensor({0, 4}, 1), sample_tensor({0, 4}, 2)}, DimAttrs{1}, "empty batch"},
      {{transpose(sample_tensor({5, 3}, 1)), sample_tensor({3, 2}, 2)}, DimAttrs{1}, "transposed"},
      bad_sample({sample_tensor({}, 1)}, DimAttrs{0}, "scalar"),
      bad_sample({sample_tensor({2, 3}, 1), sample_tensor({2, 4}, 2)}, DimAttrs{0}, "other shape"),
      bad_sample({sample_tensor({2, 3}, 1), sample_tensor({2}, 2)}, DimAttrs{0}, "other rank"),
      bad_sample(
          {sample_tensor({2, 3}, 1), Tensor::zeros({2, 3}, DType::i64)}, DimAttrs{0}, "other type"),
      bad_sample({sample_tensor({2, 3}, 1)}, DimAttrs{2}, "no such dim")};
}

const Samples cat_samples_of(kCatOp, cat_samples);

}  // namespace
}  // namespace sinter
