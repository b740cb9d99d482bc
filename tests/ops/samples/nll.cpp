// Samples of nll, and of what says which of its rows count.
#include "ops/ops.h"
#include "tests/ops/samples/samples.h"

namespace sinter {
namespace {

Tensor some_labels(int64_t n) {
  const Tensor labels = sample_labels(n, 5, 2);
  for (int64_t i = 0; i < n; i += 3) labels.data<int32_t>()[i] = kNoLabel;
  return labels;
}

std::vector<Sample> nll_samples() {
  const NllAttrs plain, smooth{0.1};
  return {{{sample_tensor({7, 5}, 1, -3, 0), sample_labels(7, 5, 2)}, plain, "odd"},
      {{sample_tensor({1, 10}, 3, -3, 0), sample_labels(1, 10, 4)}, plain, "one row"},
      {{sample_tensor({17, 10}, 5, -3, 0), sample_labels(17, 10, 6)}, smooth, "smoothed"},
      {{sample_tensor({10, 5}, 6, -3, 0), some_labels(10)}, smooth, "rows without a label"},
      {{sample_tensor({0, 10}, 7), sample_labels(0, 10, 8)}, plain, "empty batch"},
      {{transpose(sample_tensor({5, 3}, 9, -3, 0)), sample_labels(3, 5, 10)}, plain, "transposed"},
      bad_sample({sample_tensor({4, 5}, 11), sample_labels(3, 5, 12)}, plain, "counts differ"),
      bad_sample({sample_tensor({4, 5}, 11), sample_tensor({4}, 12)}, plain, "floating labels"),
      bad_sample({sample_tensor({4}, 11), sample_labels(4, 5, 12)}, plain, "one dim")};
}

std::vector<Sample> nll_backward_samples() {
  const NllBackwardAttrs five{5, 0, DType::f64}, smooth{5, 0.1, DType::f64};
  return {{{sample_tensor({7}, 1), sample_labels(7, 5, 2)}, five, "odd"},
      {{sample_tensor({17}, 3), sample_labels(17, 5, 4)}, smooth, "smoothed"},
      {{broadcast_to(sample_tensor({1}, 5), {6}), sample_labels(6, 5, 6)}, five,
          "broadcast gradient"},
      {{sample_tensor({10}, 6), some_labels(10)}, smooth, "rows without a label"},
      {{sample_tensor({0}, 7), sample_labels(0, 5, 8)}, five, "empty batch"},
      bad_sample({sample_tensor({4}, 9), sample_labels(3, 5, 10)}, five, "counts differ")};
}

std::vector<Sample> ignore_samples() {
  const auto make = [](int64_t n, int64_t ignored, const char* what) {
    return fixed_sample({sample_labels(n, 5, 2)}, IgnoreAttrs{ignored}, what);
  };
  return {make(7, 2, "odd"), make(1000, 0, "the first class"), make(6, -100, "none of them"),
      make(0, 3, "empty batch"),
      bad_sample({sample_tensor({7}, 2)}, IgnoreAttrs{}, "floating labels"),
      bad_sample({Tensor::zeros({7, 2}, DType::i32)}, IgnoreAttrs{}, "two dims")};
}

std::vector<Sample> count_samples() {
  const auto number = [](double n) { return Tensor::full({1}, n, DType::f64); };
  const auto make = [&](double own, double all, const char* what) {
    return fixed_sample({make_step_state(), number(own), number(all)}, {}, what);
  };
  return {make(3, 3, "of one process"), make(0, 5, "others have rows"), make(0, 0, "no rows"),
      bad_sample({make_step_state(), sample_tensor({2}, 1), number(1)}, {}, "two numbers"),
      bad_sample({Tensor::zeros({8}, DType::u8), number(1), number(1)}, {}, "no state")};
}

const Samples ignore_labels_samples_of(kIgnoreLabelsOp, ignore_samples);
const Samples count_rows_samples_of(kCountRowsOp, count_samples);
const Samples nll_samples_of(kNllOp, nll_samples);
const Samples nll_backward_samples_of(kNllBackwardOp, nll_backward_samples);

}  // namespace
}  // namespace sinter
