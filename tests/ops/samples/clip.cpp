// Samples of clipping by the norm.
#include "ops/ops.h"
#include "tests/ops/samples/samples.h"

namespace sinter {
namespace {

std::vector<Sample> squared_norm_samples() {
  return {{{sample_tensor({5, 7}, 1)}, {}, "odd"}, {{sample_tensor({0, 3}, 2)}, {}, "no elements"},
      {{transpose(sample_tensor({6, 4}, 3))}, {}, "transposed"},
      bad_sample({Tensor::zeros({3}, DType::i64)}, {}, "integers")};
}

std::vector<Sample> clip_samples() {
  const Tensor total = Tensor::full({1}, 25, DType::f64);
  return {{{sample_tensor({5, 7}, 1), total}, ClipAttrs{1}, "clipped"},
      {{sample_tensor({5, 7}, 2), total}, ClipAttrs{10}, "within"},
      {{sample_tensor({0, 3}, 3), total}, ClipAttrs{1}, "no elements"},
      bad_sample({sample_tensor({5}, 4), sample_tensor({2}, 5)}, ClipAttrs{1}, "two totals"),
      bad_sample({transpose(sample_tensor({4, 6}, 4)), total}, ClipAttrs{1}, "strided")};
}

const Samples squared_norm_samples_of(kSquaredNormOp, squared_norm_samples);
const Samples clip_in_place_samples_of(kClipInPlaceOp, clip_samples);

}  // namespace
}  // namespace sinter
