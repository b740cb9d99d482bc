// Samples of copy and cast.
#include "ops/ops.h"
#include "tests/ops/samples/samples.h"

namespace sinter {
namespace {

std::vector<Sample> copy_samples(const Attrs& attrs) {
  return {{.in = {sample_tensor({5, 7}, 1)}, .attrs = attrs, .what = "odd"},
      {.in = {sample_tensor({17}, 2)}, .attrs = attrs, .what = "one dim"},
      {.in = {sample_tensor({}, 3)}, .attrs = attrs, .what = "scalar"},
      {.in = {sample_tensor({0, 3}, 4)}, .attrs = attrs, .what = "empty batch"},
      {.in = {transpose(sample_tensor({6, 4}, 5))}, .attrs = attrs, .what = "transposed"},
      {.in = {transpose(sample_tensor({3, 4, 5}, 6), 0, 2)},
          .attrs = attrs,
          .what = "three dims, transposed"},
      {.in = {broadcast_to(sample_tensor({1, 4}, 7), {3, 4})},
          .attrs = attrs,
          .what = "spread rows",
          .differentiable = false},
      {.in = {Tensor::full({3, 2}, 7, DType::u8)},
          .attrs = attrs,
          .what = "bytes",
          .differentiable = false}};
}

const Samples copy_samples_of(kCopyOp, [] { return copy_samples({}); });
const Samples cast_samples_of(kCastOp, [] { return copy_samples(CastAttrs{DType::f64}); });

}  // namespace
}  // namespace sinter
