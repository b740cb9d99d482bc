// Samples of sums over ranks: without a communicator a tensor is its own sum.
#include "ops/ops.h"
#include "tests/ops/samples/samples.h"

namespace sinter {
namespace {

std::vector<Sample> all_reduce_samples() {
  const Tensor a = sample_tensor({5, 7}, 1), b = sample_tensor({3}, 2),
               empty = Tensor::zeros({0, 3}, DType::f64);
  return {{{a}, AllReduceAttrs{}, "one tensor"}, {{a, b, empty}, AllReduceAttrs{2}, "a list"},
      {{empty}, AllReduceAttrs{}, "no elements"},
      bad_sample({transpose(sample_tensor({4, 6}, 3))}, AllReduceAttrs{}, "strided"),
      bad_sample({a, cast(b, DType::f32)}, AllReduceAttrs{}, "two types"),
      bad_sample({Tensor::zeros({3}, DType::i64)}, AllReduceAttrs{}, "integers")};
}

const Samples all_reduce_samples_of(kAllReduceOp, all_reduce_samples);
const Samples all_reduce_wait_samples_of(kAllReduceWaitOp, all_reduce_samples);

}  // namespace
}  // namespace sinter
