// Samples of cat.
#include "ops/ops.h"
#include "tests/ops/samples/samples.h"

namespace sinter {
namespace {

std::vector<Sample> cat_samples() {
  return {{.in = {sample_tensor({3, 5}, 1), sample_tensor({2, 5}, 2)},
              .attrs = DimAttrs{0},
              .what = "rows"},
      {.in = {sample_tensor({4, 16}, 1), sample_tensor({4, 8}, 2), sample_tensor({4, 24}, 3)},
          .attrs = DimAttrs{-1},
          .what = "columns, whole vectors"},
      {.in = {Tensor::ones({3, 16}, DType::u8), Tensor::zeros({3, 32}, DType::u8)},
          .attrs = DimAttrs{1},
          .what = "bytes, whole vectors",
          .differentiable = false},
      {.in = {sample_tensor({2, 3, 5}, 1), sample_tensor({2, 1, 5}, 2)},
          .attrs = DimAttrs{1},
          .what = "middle dim, odd"},
      {.in = {sample_tensor({7}, 1)}, .attrs = DimAttrs{0}, .what = "one tensor"},
      {.in = {sample_tensor({3, 0}, 1), sample_tensor({3, 2}, 2), sample_tensor({3, 0}, 3)},
          .attrs = DimAttrs{1},
          .what = "empty ones beside one"},
      {.in = {sample_tensor({0, 4}, 1), sample_tensor({0, 4}, 2)},
          .attrs = DimAttrs{1},
          .what = "empty batch"},
      {.in = {transpose(sample_tensor({5, 3}, 1)), sample_tensor({3, 2}, 2)},
          .attrs = DimAttrs{1},
          .what = "transposed"},
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
