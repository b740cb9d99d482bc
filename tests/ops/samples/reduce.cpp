// Samples of reduce.
#include "ops/ops.h"
#include "tests/ops/samples/samples.h"

namespace sinter {
namespace {

std::vector<Sample> reduce_samples() {
  return {{.in = {sample_tensor({5, 7}, 1)}, .attrs = ReduceAttrs{}, .what = "all"},
      {.in = {sample_tensor({}, 2)}, .attrs = ReduceAttrs{}, .what = "scalar"},
      {.in = {sample_tensor({5, 17}, 3)}, .attrs = ReduceAttrs{{1}, false}, .what = "rows"},
      {.in = {sample_tensor({17, 5}, 4)}, .attrs = ReduceAttrs{{0}, true}, .what = "columns, kept"},
      {.in = {sample_tensor({2, 3, 4}, 5)},
          .attrs = ReduceAttrs{{-2}, false},
          .what = "the middle"},
      {.in = {sample_tensor({3, 2, 4, 2}, 6)},
          .attrs = ReduceAttrs{{0, 2}, false},
          .what = "two apart"},
      {.in = {sample_tensor({0, 4}, 7)}, .attrs = ReduceAttrs{{1}, false}, .what = "empty batch"},
      {.in = {transpose(sample_tensor({6, 4}, 8))},
          .attrs = ReduceAttrs{{1}, false},
          .what = "transposed"},
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
  return {{.in = {sample_tensor({5}, 2), x, max(x, {1})},
              .attrs = ReduceAttrs{{1}, false},
              .what = "rows"},
      {.in = {sample_tensor({0}, 3), sample_tensor({0, 4}, 4), sample_tensor({0}, 5)},
          .attrs = ReduceAttrs{{1}, false},
          .what = "empty batch"},
      bad_sample(
          {sample_tensor({7}, 2), x, max(x, {1})}, ReduceAttrs{{1}, false}, "another gradient")};
}

const Samples sum_samples_of(kSumOp, reduce_samples);
const Samples mean_samples_of(kMeanOp, reduce_samples);
const Samples max_samples_of(kMaxOp, reduce_max_samples);
const Samples max_backward_samples_of(kMaxBackwardOp, reduce_max_backward_samples);

}  // namespace
}  // namespace sinter
