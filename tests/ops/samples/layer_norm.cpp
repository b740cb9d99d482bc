// Samples of layer_norm.
#include "ops/ops.h"
#include "tests/ops/samples/samples.h"

namespace sinter {
namespace {

Sample layer_norm_sample(const Shape& shape, const char* what) {
  const int64_t cols = shape[-1];
  return {.in = {sample_tensor(shape, 1), sample_tensor({cols}, 2), sample_tensor({cols}, 3)},
      .attrs = LayerNormAttrs{},
      .what = what,
      .first_only = true};
}

std::vector<Sample> layer_norm_samples() {
  Sample turned = layer_norm_sample({6, 4}, "transposed"),
         rough = layer_norm_sample({5, 7}, "a large eps");
  turned.in[0] = transpose(sample_tensor({4, 6}, 7));
  rough.attrs = LayerNormAttrs{0.5};
  const Sample odd = layer_norm_sample({5, 7}, "odd");
  return {odd, layer_norm_sample({17, 10}, "more than one tile"),
      layer_norm_sample({1, 37}, "one row"), layer_norm_sample({2, 3, 4}, "three dims"),
      layer_norm_sample({9}, "one dim"), layer_norm_sample({0, 4}, "empty batch"), turned, rough,
      bad_sample({sample_tensor({5, 7}, 1), sample_tensor({6}, 2), odd.in[2]}, LayerNormAttrs{},
          "weight of other columns"),
      bad_sample(
          {odd.in[0], odd.in[1], sample_tensor({1, 7}, 2)}, LayerNormAttrs{}, "bias of two dims"),
      bad_sample({odd.in[0], Tensor::ones({7}), odd.in[2]}, LayerNormAttrs{}, "types differ"),
      bad_sample({sample_tensor({}, 1), odd.in[1], odd.in[2]}, LayerNormAttrs{}, "scalar"),
      bad_sample({sample_tensor({5, 0}, 1), odd.in[1], odd.in[2]}, LayerNormAttrs{}, "no columns")};
}

// dy, x, [weight,] mean, rstd.
Tensors gradient_operands(const Shape& shape, bool weight) {
  const int64_t cols = shape[-1], rows = cols ? shape.numel() / cols : 0;
  Tensors in{sample_tensor(shape, 1), sample_tensor(shape, 2)};
  if (weight) in.push_back(sample_tensor({cols}, 3));
  in.push_back(sample_tensor({rows}, 4, -0.5, 0.5));
  in.push_back(sample_tensor({rows}, 5, 0.5, 1.5));
  return in;
}
template <bool kWeight> std::vector<Sample> gradient_samples() {
  std::vector<Sample> all;
  for (const Shape& shape : {Shape{5, 7}, Shape{17, 10}, Shape{1, 37}, Shape{2, 3, 4}, Shape{9},
           Shape{0, 4}, Shape{70, 33}, Shape{3, 200}}) {
    all.push_back(fixed_sample(gradient_operands(shape, kWeight), {}, shape.str()));
  }
  const Tensors good = gradient_operands({5, 7}, kWeight);
  for (size_t i = 0; i < good.size(); ++i) {
    Tensors in = good;
    in[i] = sample_tensor({6}, 9);
    all.push_back(bad_sample(std::move(in), {}, str("operand ", i, " of another shape")));
  }
  return all;
}

const Samples layer_norm_samples_of(kLayerNormOp, layer_norm_samples);
const Samples layer_norm_backward_samples_of(kLayerNormBackwardOp, gradient_samples<true>);
const Samples layer_norm_weight_grad_samples_of(kLayerNormWeightGradOp, gradient_samples<false>);

}  // namespace
}  // namespace sinter
