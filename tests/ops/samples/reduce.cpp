// Samples of reduce.
#include "ops/ops.h"
#include "tests/ops/samples/samples.h"

namespace sinter {
namespace {

std::vector<Sample> reduce_samples() {
  return {{{sample_tensor({5, 7}, 1)}, ReduceAttrs{}, "all"},
      {{sample_tensor({}, 2)}, ReduceAttrs{}, "scalar"},
      {{sample_tensor({5, 17}, 3)}, ReduceAttrs{{1}, false}, "rows"},
      {{sample_tensor({17, 5}, 4)}, ReduceAttrs{{0}, true}, "columns, kept"},
      {{sample_tensor({2, 3, 4}, 5)}, ReduceAttrs{{-2}, false}, "the middle"},
      {{sample_tensor({3, 2, 4, 2}, 6)}, ReduceAttrs{{0, 2}, false}, "two apart"},
      {{sample_tensor({0, 4}, 7)}, ReduceAttrs{{1}, false}, "empty batch"},
      {{transpose(sample_tensor({6, 4}, 8))}, ReduceAttrs{{1}, false}, "transposed"},
      bad_sample({sample_tensor({3, 4}, 9)}, ReduceAttrs{{2}, false}, "no such dim"),
      bad_sample({Tensor::zeros({3, 4}, DType::i32)}, ReduceAttrs{}, "integers")};
}

std::vector<Sample> reduce_max_samples() {
  std::vector<Sample> all = reduce_samples();
  all.push_back(
      bad_sample({sample_tensor({0, 4}, 10)}, ReduceAttrs{{0}, false}, "nothing to compare"));
  return all;
}

std::vector<Sample> reduce_max_backward_samples() {
  const Tensor x = sample_tensor({5, 7}, 1);
  return {{{sample_tensor({5}, 2), x, max(x, {1})}, ReduceAttrs{{1}, false}, "rows"},
      {{sample_tensor({0}, 3), sample_tensor({0, 4}, 4), sample_tensor({0}, 5)},
          ReduceAttrs{{1}, false}, "empty batch"},
      bad_sample(
          {sample_tensor({7}, 2), x, max(x, {1})}, ReduceAttrs{{1}, false}, "another gradient")};
}

const Samples sum_samples_of(kSumOp, reduce_samples);
const Samples mean_samples_of(kMeanOp, reduce_samples);
const Samples max_samples_of(kMaxOp, reduce_max_samples);
const Samples max_backward_samples_of(kMaxBackwardOp, reduce_max_backward_samples);

}  // namespace
}  // namespace sinter
