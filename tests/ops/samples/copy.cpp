// Samples of copy, cast and renew_copy.
#include "ops/ops.h"
#include "tests/ops/samples/samples.h"

namespace sinter {
namespace {

std::vector<Sample> copy_samples(const Attrs& attrs) {
  return {{{sample_tensor({5, 7}, 1)}, attrs, "odd"}, {{sample_tensor({17}, 2)}, attrs, "one dim"},
      {{sample_tensor({}, 3)}, attrs, "scalar"}, {{sample_tensor({0, 3}, 4)}, attrs, "empty batch"},
      {{transpose(sample_tensor({6, 4}, 5))}, attrs, "transposed"},
      {{transpose(sample_tensor({3, 4, 5}, 6), 0, 2)}, attrs, "three dims, transposed"},
      fixed_sample({broadcast_to(sample_tensor({1, 4}, 7), {3, 4})}, attrs, "spread rows"),
      fixed_sample({Tensor::full({3, 2}, 7, DType::u8)}, attrs, "bytes")};
}

std::vector<Sample> renew_copy_samples() {
  return {{{sample_tensor({5, 7}, 1), sample_tensor({5, 7}, 2)}, {}, "odd"},
      {{transpose(sample_tensor({6, 4}, 3)), sample_tensor({4, 6}, 4)}, {}, "transposed weight"},
      {{sample_tensor({0, 6}, 5), sample_tensor({0, 6}, 6)}, {}, "empty batch"},
      bad_sample({sample_tensor({4, 6}, 7), sample_tensor({6}, 8)}, {}, "shapes differ"),
      bad_sample(
          {sample_tensor({6, 4}, 7), transpose(sample_tensor({4, 6}, 8))}, {}, "strided copy")};
}

const Samples copy_samples_of(kCopyOp, [] { return copy_samples({}); });
const Samples cast_samples_of(kCastOp, [] { return copy_samples(CastAttrs{DType::f64}); });
const Samples renew_copy_samples_of(kRenewCopyOp, renew_copy_samples);

}  // namespace
}  // namespace sinter
