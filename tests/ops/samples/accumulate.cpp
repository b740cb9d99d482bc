// Samples of accumulate and masked_fill_.
#include "ops/ops.h"
#include "tests/ops/samples/samples.h"

namespace sinter {
namespace {

std::vector<Sample> accumulate_samples() {
  return {{{sample_tensor({5, 7}, 1), sample_tensor({5, 7}, 2)}, {}, "odd"},
      {{sample_tensor({4, 6}, 3), transpose(sample_tensor({6, 4}, 4))}, {}, "transposed value"},
      {{sample_tensor({0, 6}, 5), sample_tensor({0, 6}, 6)}, {}, "empty batch"},
      bad_sample({sample_tensor({4, 6}, 7), sample_tensor({6}, 8)}, {}, "shapes differ"),
      bad_sample(
          {transpose(sample_tensor({4, 6}, 7)), sample_tensor({6, 4}, 8)}, {}, "strided target")};
}

std::vector<Sample> fill_samples() {
  const auto mask = [](const Shape& shape) {
    return cast(sample_tensor(shape, 5, 0, 2), DType::u8);  // 0 and 1
  };
  const FillAttrs seven{7};
  return {{{sample_tensor({5, 7}, 1), mask({5, 7})}, seven, "odd"},
      {{sample_tensor({3, 4, 6}, 2), mask({4, 6})}, FillAttrs{-INFINITY}, "a mask for all"},
      {{sample_tensor({4, 6}, 3), mask({4, 1})}, seven, "by rows"},
      {{sample_tensor({4, 6}, 4), transpose(mask({6, 4}))}, seven, "transposed mask"},
      {{sample_tensor({0, 6}, 5), mask({6})}, seven, "empty batch"},
      bad_sample({sample_tensor({4, 6}, 7), mask({4})}, seven, "shapes differ"),
      bad_sample({sample_tensor({6}, 7), mask({4, 6})}, seven, "a larger mask"),
      bad_sample({sample_tensor({4, 6}, 7), sample_tensor({4, 6}, 8)}, seven, "floating mask"),
      bad_sample({transpose(sample_tensor({4, 6}, 7)), mask({6, 4})}, seven, "strided target")};
}

const Samples masked_fill_samples_of(kMaskedFillInPlaceOp, fill_samples);
const Samples accumulate_samples_of(kAccumulateOp, accumulate_samples);

}  // namespace
}  // namespace sinter
