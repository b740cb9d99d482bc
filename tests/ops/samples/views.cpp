// Samples of views.
#include "ops/ops.h"
#include "tests/ops/samples/samples.h"

namespace sinter {
namespace {

std::vector<Sample> views_reshape_samples() {
  return {{.in = {sample_tensor({4, 6}, 1)}, .attrs = ShapeAttrs{{3, 8}}, .what = "plain"},
      {.in = {sample_tensor({2, 3, 5}, 2)}, .attrs = ShapeAttrs{{2, -1}}, .what = "one size open"},
      {.in = {sample_tensor({0, 6}, 3)}, .attrs = ShapeAttrs{{0, 2, 3}}, .what = "empty batch"},
      bad_sample({sample_tensor({4, 6}, 4)}, ShapeAttrs{{5, 5}}, "counts differ"),
      bad_sample({sample_tensor({4, 6}, 4)}, ShapeAttrs{{-1, 5}}, "no multiple"),
      bad_sample({sample_tensor({4, 6}, 4)}, ShapeAttrs{{-1, -1}}, "two open sizes")};
}

std::vector<Sample> views_transpose_samples() {
  return {{.in = {sample_tensor({4, 6}, 1)}, .attrs = TransposeAttrs{}, .what = "plain"},
      {.in = {sample_tensor({2, 3, 5}, 2)}, .attrs = TransposeAttrs{0, 2}, .what = "three dims"},
      {.in = {sample_tensor({0, 6}, 3)}, .attrs = TransposeAttrs{0, 1}, .what = "empty batch"},
      bad_sample({sample_tensor({4}, 4)}, TransposeAttrs{}, "one dim"),
      bad_sample({sample_tensor({4, 6}, 4)}, TransposeAttrs{0, 2}, "no such dim")};
}

std::vector<Sample> views_slice_samples() {
  return {{.in = {sample_tensor({7, 5}, 1)}, .attrs = SliceAttrs{0, 2, 6}, .what = "rows"},
      {.in = {sample_tensor({3, 9}, 2)},
          .attrs = SliceAttrs{1, -4, -1},
          .what = "columns from the end"},
      {.in = {sample_tensor({3, 9}, 3)}, .attrs = SliceAttrs{1, 4, 4}, .what = "nothing"},
      {.in = {sample_tensor({0, 9}, 3)}, .attrs = SliceAttrs{1, 2, 4}, .what = "empty batch"},
      bad_sample({sample_tensor({3, 9}, 4)}, SliceAttrs{1, 4, 10}, "beyond the end"),
      bad_sample({sample_tensor({3, 9}, 4)}, SliceAttrs{2, 0, 1}, "no such dim")};
}

std::vector<Sample> views_pad_slice_samples() {
  return {{.in = {sample_tensor({4, 5}, 1)}, .attrs = PadSliceAttrs{0, 2, 7}, .what = "rows"},
      {.in = {sample_tensor({3, 2, 2}, 2)}, .attrs = PadSliceAttrs{1, 1, 4}, .what = "middle dim"},
      {.in = {sample_tensor({3, 0}, 3)},
          .attrs = PadSliceAttrs{1, 4, 9},
          .what = "nothing into zeros"},
      {.in = {sample_tensor({0, 2}, 3)}, .attrs = PadSliceAttrs{1, 4, 9}, .what = "empty batch"},
      bad_sample({sample_tensor({3, 5}, 4)}, PadSliceAttrs{1, 5, 9}, "does not fit")};
}

std::vector<Sample> views_broadcast_samples() {
  return {{.in = {sample_tensor({3, 1}, 1)}, .attrs = ShapeAttrs{{3, 5}}, .what = "columns"},
      {.in = {sample_tensor({4}, 2)}, .attrs = ShapeAttrs{{2, 3, 4}}, .what = "more dims"},
      {.in = {sample_tensor({}, 3)}, .attrs = ShapeAttrs{{2, 3}}, .what = "scalar"},
      {.in = {sample_tensor({0, 1}, 4)}, .attrs = ShapeAttrs{{0, 4}}, .what = "empty batch"},
      bad_sample({sample_tensor({3, 2}, 5)}, ShapeAttrs{{3, 4}}, "2 is not 1"),
      bad_sample({sample_tensor({3, 2}, 5)}, ShapeAttrs{{2}}, "fewer dims")};
}

std::vector<Sample> views_low_samples() {
  const auto make = [](const Shape& shape) {
    Tensor weight = sample_tensor(shape, 1);
    weight.autograd().bf16_copy = cast(weight, DType::bf16);
    return Sample{
        .in = {weight}, .attrs = {}, .what = "weight with a copy", .differentiable = false};
  };
  Sample bad = make({2, 3});
  bad.in[0].autograd().bf16_copy = cast(sample_tensor({3, 2}, 2), DType::bf16);
  bad.bad = true;
  return {make({5, 3}), bad};
}

std::vector<Sample> views_detach_samples() {
  return {
      {.in = {sample_tensor({3, 5}, 1)}, .attrs = {}, .what = "plain", .differentiable = false}};
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
