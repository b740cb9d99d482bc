// Samples of rms_norm.
#include "ops/ops.h"
#include "tests/ops/samples/samples.h"

namespace sinter {
namespace {

Sample rms_norm_sample(const Shape& shape, bool weight, const char* what) {
  Sample sample{
      .in = {sample_tensor(shape, 1)}, .attrs = RmsNormAttrs{}, .what = what, .first_only = true};
  if (weight) sample.in.push_back(sample_tensor({shape[-1]}, 2));
  return sample;
}

std::vector<Sample> rms_norm_samples() {
  Sample turned = rms_norm_sample({6, 4}, true, "transposed"),
         rough = rms_norm_sample({5, 7}, true, "a large eps"),
         column = rms_norm_sample({5, 1}, true, "one column, a large eps");
  turned.in[0] = transpose(sample_tensor({4, 6}, 7));
  rough.attrs = column.attrs = RmsNormAttrs{0.5};
  const Tensor x = sample_tensor({5, 7}, 1);
  return {rms_norm_sample({5, 7}, true, "odd"), rms_norm_sample({5, 7}, false, "without a weight"),
      rms_norm_sample({17, 10}, true, "more than one tile"),
      rms_norm_sample({1, 37}, false, "one row"), rms_norm_sample({2, 3, 4}, true, "three dims"),
      rms_norm_sample({9}, true, "one dim"), rms_norm_sample({0, 4}, true, "empty batch"), turned,
      rough, bad_sample({x, sample_tensor({6}, 2)}, RmsNormAttrs{}, "weight of other columns"),
      bad_sample({x, sample_tensor({1, 7}, 2)}, RmsNormAttrs{}, "weight of two dims"),
      bad_sample({x, Tensor::ones({7})}, RmsNormAttrs{}, "types differ"),
      bad_sample({sample_tensor({}, 1)}, RmsNormAttrs{}, "scalar"),
      bad_sample({sample_tensor({5, 0}, 1)}, RmsNormAttrs{}, "no columns")};
}

// dy, x, rstd[, weight].
Tensors rms_norm_operands(const Shape& shape, bool weight) {
  const int64_t cols = shape[-1], rows = cols ? shape.numel() / cols : 0;
  Tensors in{sample_tensor(shape, 1), sample_tensor(shape, 2), sample_tensor({rows}, 5, 0.5, 1.5)};
  if (weight) in.push_back(sample_tensor({cols}, 3));
  return in;
}
template <bool kWeight> std::vector<Sample> rms_norm_gradients() {
  std::vector<Sample> all;
  for (const Shape& shape : {Shape{5, 7}, Shape{17, 10}, Shape{1, 37}, Shape{2, 3, 4}, Shape{9},
           Shape{0, 4}, Shape{70, 33}, Shape{3, 200}}) {
    all.push_back(fixed_sample(rms_norm_operands(shape, kWeight), {}, shape.str()));
  }
  const Tensors good = rms_norm_operands({5, 7}, kWeight);
  for (size_t i = 0; i < good.size(); ++i) {
    Tensors in = good;
    in[i] = sample_tensor({6}, 9);
    all.push_back(bad_sample(std::move(in), {}, str("operand ", i, " of another shape")));
  }
  return all;
}
std::vector<Sample> rms_norm_backwards() {
  std::vector<Sample> all = rms_norm_gradients<true>();
  all.push_back(fixed_sample(rms_norm_operands({17, 10}, false), {}, "without a weight"));
  return all;
}

const Samples rms_norm_samples_of(kRmsNormOp, rms_norm_samples);
const Samples rms_norm_backward_samples_of(kRmsNormBackwardOp, rms_norm_backwards);
const Samples rms_norm_weight_grad_samples_of(kRmsNormWeightGradOp, rms_norm_gradients<false>);

}  // namespace
}  // namespace sinter
