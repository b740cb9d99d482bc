// Samples of norm_backward_add.
#include "ops/fused/fused.h"
#include "tests/ops/samples/samples.h"

namespace sinter {
namespace {

// What layer_norm_backward or rms_norm_backward reads, and added.
Tensors operands_of(const Shape& shape, bool layer, bool weight) {
  const int64_t cols = shape[-1], rows = cols ? shape.numel() / cols : 0;
  const Tensor dy = sample_tensor(shape, 1), x = sample_tensor(shape, 2),
               mean = sample_tensor({rows}, 4, -0.5, 0.5),
               rstd = sample_tensor({rows}, 5, 0.5, 1.5), added = sample_tensor(shape, 6),
               w = weight ? sample_tensor({cols}, 3) : Tensor();
  return layer ? Tensors{dy, x, w, mean, rstd, added} : Tensors{dy, x, rstd, w, added};
}

std::vector<Sample> norm_backward_add_samples() {
  std::vector<Sample> all;
  for (const Shape& shape : {Shape{5, 7}, Shape{17, 10}, Shape{1, 37}, Shape{2, 3, 4}, Shape{9},
           Shape{0, 4}, Shape{70, 33}, Shape{3, 1200}}) {
    all.push_back(fixed_sample(operands_of(shape, true, true), {}, str("layer ", shape.str())));
    all.push_back(fixed_sample(operands_of(shape, false, true), {}, str("rms ", shape.str())));
    all.push_back(fixed_sample(
        operands_of(shape, false, false), {}, str("rms without a weight ", shape.str())));
  }
  for (const bool layer : {true, false}) {
    const Tensors good = operands_of({5, 7}, layer, true);
    for (size_t i = 0; i < good.size(); ++i) {
      Tensors in = good;
      in[i] = sample_tensor({6}, 9);
      all.push_back(bad_sample(std::move(in), {}, str("operand ", i, " of another shape")));
    }
  }
  Tensors in = operands_of({5, 7}, false, false);
  in[4] = sample_tensor({1, 7}, 6);
  all.push_back(bad_sample(std::move(in), {}, "one row added to all"));
  return all;
}

const Samples norm_backward_add_samples_of(kNormBackwardAddOp, norm_backward_add_samples);

}  // namespace
}  // namespace sinter
