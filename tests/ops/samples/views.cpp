// Samples of views.
#include "ops/ops.h"
#include "tests/ops/samples/samples.h"

namespace sinter {
namespace {

std::vector<Sample> views_reshape_samples() {
  return {{{sample_tensor({4, 6}, 1)}, ShapeAttrs{{3, 8}}, "plain"},
      {{sample_tensor({2, 3, 5}, 2)}, ShapeAttrs{{2, -1}}, "one size open"},
      {{sample_tensor({0, 6}, 3)}, ShapeAttrs{{0, 2, 3}}, "empty batch"},
      bad_sample({sample_tensor({4, 6}, 4)}, ShapeAttrs{{5, 5}}, "counts differ"),
      bad_sample({sample_tensor({4, 6}, 4)}, ShapeAttrs{{-1, 5}}, "no multiple"),
      bad_sample({sample_tensor({4, 6}, 4)}, ShapeAttrs{{-1, -1}}, "two open sizes")};
}

std::vector<Sample> views_transpose_samples() {
  return {{{sample_tensor({4, 6}, 1)}, TransposeAttrs{}, "plain"},
      {{sample_tensor({2, 3, 5}, 2)}, TransposeAttrs{0, 2}, "three dims"},
      {{sample_tensor({0, 6}, 3)}, TransposeAttrs{0, 1}, "empty batch"},
      bad_sample({sample_tensor({4}, 4)}, TransposeAttrs{}, "one dim"),
      bad_sample({sample_tensor({4, 6}, 4)}, TransposeAttrs{0, 2}, "no such dim")};
}

std::vector<Sample> views_slice_samples() {
  return {{{sample_tensor({7, 5}, 1)}, SliceAttrs{0, 2, 6}, "rows"},
      {{sample_tensor({3, 9}, 2)}, SliceAttrs{1, -4, -1}, "columns from the end"},
      {{sample_tensor({3, 9}, 3)}, SliceAttrs{1, 4, 4}, "nothing"},
      {{sample_tensor({0, 9}, 3)}, SliceAttrs{1, 2, 4}, "empty batch"},
      bad_sample({sample_tensor({3, 9}, 4)}, SliceAttrs{1, 4, 10}, "beyond the end"),
      bad_sample({sample_tensor({3, 9}, 4)}, SliceAttrs{2, 0, 1}, "no such dim")};
}

std::vector<Sample> views_pad_slice_samples() {
  return {{{sample_tensor({4, 5}, 1)}, PadSliceAttrs{0, 2, 7}, "rows"},
      {{sample_tensor({3, 2, 2}, 2)}, PadSliceAttrs{1, 1, 4}, "middle dim"},
      {{sample_tensor({3, 0}, 3)}, PadSliceAttrs{1, 4, 9}, "nothing into zeros"},
      {{sample_tensor({0, 2}, 3)}, PadSliceAttrs{1, 4, 9}, "empty batch"},
      bad_sample({sample_tensor({3, 5}, 4)}, PadSliceAttrs{1, 5, 9}, "does not fit")};
}

std::vector<Sample> views_broadcast_samples() {
  return {{{sample_tensor({3, 1}, 1)}, ShapeAttrs{{3, 5}}, "columns"},
      {{sample_tensor({4}, 2)}, ShapeAttrs{{2, 3, 4}}, "more dims"},
      {{sample_tensor({}, 3)}, ShapeAttrs{{2, 3}}, "scalar"},
      {{sample_tensor({0, 1}, 4)}, ShapeAttrs{{0, 4}}, "empty batch"},
      bad_sample({sample_tensor({3, 2}, 5)}, ShapeAttrs{{3, 4}}, "2 is not 1"),
      bad_sample({sample_tensor({3, 2}, 5)}, ShapeAttrs{{2}}, "fewer dims")};
}

std::vector<Sample> views_low_samples() {
  const auto make = [](const Shape& shape) {
    Tensor weight = sample_tensor(shape, 1);
    weight.autograd().bf16_copy = cast(weight, DType::bf16);
    return fixed_sample({weight}, {}, "weight with a copy");
  };
  Sample bad = make({2, 3});
  bad.in[0].autograd().bf16_copy = cast(sample_tensor({3, 2}, 2), DType::bf16);
  bad.bad = true;
  return {make({5, 3}), bad};
}

std::vector<Sample> views_detach_samples() {
  return {fixed_sample({sample_tensor({3, 5}, 1)}, {}, "plain")};
}

const Samples reshape_samples_of(kReshapeOp, views_reshape_samples);
const Samples transpose_samples_of(kTransposeOp, views_transpose_samples);
const Samples slice_samples_of(kSliceOp, views_slice_samples);
const Samples pad_slice_samples_of(kPadSliceOp, views_pad_slice_samples);
const Samples broadcast_to_samples_of(kBroadcastToOp, views_broadcast_samples);
const Samples low_precision_samples_of(kLowPrecisionOp, views_low_samples);
const Samples detach_samples_of(kDetachOp, views_detach_samples);

}  // namespace
}  // namespace sinter
