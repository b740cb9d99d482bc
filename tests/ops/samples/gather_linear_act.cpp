// Samples of gather_linear_act.
#include "ops/fused/fused.h"
#include "tests/ops/samples/samples.h"

namespace sinter {
namespace {

std::vector<Sample> gather_linear_act_samples() {
  const auto make = [](int64_t b, int64_t o, const Shape& image, bool mnist, Act act, Keep keep,
                        const char* what, bool bias = true) {
    Shape set = image;
    int64_t pixels = 1;
    for (int d = 1; d < set.rank(); ++d) pixels *= set[d];
    Tensor images = Tensor::empty(set, DType::u8), index = Tensor::empty({b}, DType::i64);
    for (int64_t i = 0; i < images.numel(); ++i)
      images.data<uint8_t>()[i] = static_cast<uint8_t>(i * 37);
    for (int64_t i = 0; i < b; ++i) index.data<int64_t>()[i] = (i * 5 + 2) % set[0];
    return Sample{.in = {images, sample_labels(set[0], 10, 3), index, sample_tensor({o, pixels}, 1),
                      bias ? sample_tensor({o}, 2) : Tensor()},
        .attrs = GatherLinearActAttrs{mnist, act, keep},
        .what = what,
        .differentiable = false};
  };
  Sample bad = make(4, 5, {9, 3, 3}, false, Act::relu, Keep::mask, "features differ");
  bad.in[3] = sample_tensor({5, 8}, 1);
  bad.attrs = GatherLinearActAttrs{};
  bad.bad = true;
  return {make(17, 77, {9, 28, 28}, true, Act::relu, Keep::mask, "mnist, odd"),
      make(97, 333, {11, 7, 11}, false, Act::relu, Keep::mask, "ragged, 77 pixels"),
      make(65, 129, {9, 8, 8}, true, Act::gelu, Keep::pre, "gelu, two tiles"),
      make(1, 10, {3, 5, 1}, false, Act::sigmoid, Keep::nothing, "one row, no bias", false),
      make(64, 64, {7, 4, 16}, false, Act::relu, Keep::mask, "whole tiles"),
      make(0, 7, {5, 4}, true, Act::relu, Keep::mask, "empty batch"), bad};
}

const Samples gather_linear_act_samples_of(kGatherLinearActOp, gather_linear_act_samples);

}  // namespace
}  // namespace sinter
