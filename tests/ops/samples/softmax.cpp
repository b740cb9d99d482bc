// Samples of softmax.
#include "ops/ops.h"
#include "tests/ops/samples/samples.h"

namespace sinter {
namespace {

const SoftmaxAttrs kAll, kCausal{true};

std::vector<Sample> softmax_samples() {
  Tensor large = sample_tensor({3, 5}, 6);
  large.data<double>()[2] = 1000;  // exp would overflow
  return {{{sample_tensor({5, 7}, 1)}, kAll, "odd"},
      {{sample_tensor({17, 10}, 2)}, kAll, "more than one tile"},
      {{sample_tensor({1, 37}, 3)}, kAll, "one row"},
      {{sample_tensor({2, 3, 4}, 4)}, kAll, "three dims"},
      {{sample_tensor({0, 4}, 5)}, kAll, "empty batch"}, fixed_sample({large}, kAll, "large value"),
      {{transpose(sample_tensor({6, 4}, 7))}, kAll, "transposed"},
      {{sample_tensor({5, 7}, 9)}, kCausal, "causal, wide"},
      {{sample_tensor({2, 7, 5}, 10)}, kCausal, "causal, high"},
      {{sample_tensor({3, 2, 9, 9}, 11)}, kCausal, "causal, four dims"},
      {{sample_tensor({0, 4, 4}, 12)}, kCausal, "causal, empty batch"},
      {{sample_tensor({2, 1, 6}, 13)}, kCausal, "causal, one row"},
      {{sample_tensor({2, 6, 1}, 14)}, kCausal, "causal, one key"},
      {{transpose(sample_tensor({2, 5, 3, 4}, 15), 1, 2)}, kCausal, "causal, of heads"},
      bad_sample({sample_tensor({7}, 8)}, kCausal, "causal, one dim"),
      bad_sample({sample_tensor({}, 8)}, kAll, "scalar"),
      bad_sample({Tensor::zeros({2, 3}, DType::i32)}, kAll, "integers")};
}

std::vector<Sample> softmax_backward_samples() {
  return {{{sample_tensor({5, 7}, 1), sample_tensor({5, 7}, 2)}, kAll, "odd"},
      {{sample_tensor({17, 3}, 1), sample_tensor({17, 3}, 2)}, kAll, "ragged"},
      {{sample_tensor({0, 4}, 3), sample_tensor({0, 4}, 4)}, kAll, "empty batch"},
      {{broadcast_to(sample_tensor({1, 1}, 5), {3, 4}), sample_tensor({3, 4}, 6)}, kAll,
          "spread gradient"},
      {{sample_tensor({2, 7, 5}, 9), sample_tensor({2, 7, 5}, 10)}, kCausal, "causal"},
      bad_sample({sample_tensor({2, 3}, 7), sample_tensor({2, 4}, 8)}, kAll, "shapes differ")};
}

const Samples softmax_samples_of(kSoftmaxOp, softmax_samples);
const Samples softmax_backward_samples_of(kSoftmaxBackwardOp, softmax_backward_samples);
// -inf has no difference: what is above the diagonal is for the plain loops.
std::vector<Sample> log_softmax_samples() {
  std::vector<Sample> all = softmax_samples();
  for (Sample& sample : all) sample.differentiable &= sample.attrs == Attrs(kAll);
  return all;
}

const Samples log_softmax_samples_of(kLogSoftmaxOp, log_softmax_samples);
const Samples log_softmax_backward_samples_of(kLogSoftmaxBackwardOp, softmax_backward_samples);

}  // namespace
}  // namespace sinter
