// Samples of add_layer_norm.
#include "ops/fused/fused.h"
#include "tests/ops/samples/samples.h"

namespace sinter {
namespace {

Sample add_layer_norm_sample(const Shape& shape, double eps = 1e-5) {
  const int64_t cols = shape[-1];
  return {.in = {sample_tensor(shape, 1), sample_tensor(shape, 2), sample_tensor({cols}, 3),
              sample_tensor({cols}, 4)},
      .attrs = LayerNormAttrs{eps},
      .what = shape.str(),
      .differentiable = false};
}

std::vector<Sample> add_layer_norm_samples() {
  std::vector<Sample> all;
  for (const Shape& shape : {Shape{5, 7}, Shape{17, 10}, Shape{1, 37}, Shape{2, 3, 4}, Shape{9},
           Shape{0, 4}, Shape{3, 200}, Shape{2, 1030}})
    all.push_back(add_layer_norm_sample(shape));
  all.push_back(add_layer_norm_sample({6, 5}, 0.5));
  Sample turned = add_layer_norm_sample({6, 4});
  turned.in[1] = transpose(sample_tensor({4, 6}, 7));
  turned.what = "transposed";
  all.push_back(turned);
  const Tensors good = all[0].in;
  all.push_back(bad_sample({good[0], sample_tensor({7}, 2), good[2], good[3]}, LayerNormAttrs{},
      "an operand that broadcasts"));
  all.push_back(bad_sample(
      {good[0], good[1], sample_tensor({6}, 2), good[3]}, LayerNormAttrs{}, "other columns"));
  return all;
}

const Samples add_layer_norm_samples_of(kAddLayerNormOp, add_layer_norm_samples);

}  // namespace
}  // namespace sinter
