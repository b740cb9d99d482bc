// Samples of argmax.
#include "ops/ops.h"
#include "tests/ops/samples/samples.h"

namespace sinter {
namespace {

std::vector<Sample> argmax_samples() {
  return {{.in = {sample_tensor({5, 7}, 1)}, .attrs = DimAttrs{-1}, .what = "rows"},
      {.in = {sample_tensor({1, 10}, 2)}, .attrs = DimAttrs{1}, .what = "one row"},
      {.in = {sample_tensor({3, 4, 5}, 3)}, .attrs = DimAttrs{1}, .what = "the middle"},
      {.in = {sample_tensor({0, 4}, 4)}, .attrs = DimAttrs{1}, .what = "empty batch"},
      {.in = {transpose(sample_tensor({6, 4}, 5))}, .attrs = DimAttrs{-1}, .what = "transposed"},
      bad_sample({sample_tensor({3, 0}, 6)}, DimAttrs{1}, "nothing to compare"),
      bad_sample({sample_tensor({3, 2}, 6)}, DimAttrs{2}, "no such dim")};
}

const Samples argmax_samples_of(kArgmaxOp, argmax_samples);

}  // namespace
}  // namespace sinter
