// Samples of narrow_mlp.
#include "ops/fused/fused.h"
#include "tests/ops/samples/samples.h"

namespace sinter {
namespace {

std::vector<Sample> narrow_mlp_samples() {
  const auto make = [](int64_t batch, std::vector<int64_t> widths, Act act, double smoothing,
                        bool input_grad, bool bias, const char* what) {
    Sample s{.in = {sample_tensor({batch, widths[0]}, 1, -0.9, 0.9),
                 sample_labels(batch, widths.back(), 2),
                 broadcast_to(
                     Tensor::full({1}, batch ? 1.0 / static_cast<double>(batch) : 1, DType::f64),
                     {batch})},
        .attrs = NarrowMlpAttrs{act, smoothing, input_grad},
        .what = what,
        .differentiable = false};
    for (size_t l = 1; l < widths.size(); ++l) {
      s.in.push_back(sample_tensor({widths[l], widths[l - 1]}, 10 + l, -0.5, 0.5));
      s.in.push_back(bias ? sample_tensor({widths[l]}, 20 + l) : Tensor());
    }
    return s;
  };
  Sample wide = make(4, {9, 129, 3}, Act::relu, 0, false, true, "a layer too wide"),
         differ = make(4, {9, 7, 3}, Act::relu, 0, false, true, "features differ"),
         labels = make(4, {9, 7, 3}, Act::relu, 0, false, true, "counts differ"),
         one = make(4, {9, 7}, Act::relu, 0, false, true, "one layer");
  differ.in[3] = sample_tensor({7, 8}, 1);
  labels.in[1] = sample_labels(3, 3, 2);
  wide.bad = differ.bad = labels.bad = one.bad = true;
  return {make(17, {33, 77, 10}, Act::relu, 0, false, true, "odd"),
      make(97, {20, 16, 12, 10}, Act::relu, 0.1, true, true,
          "ragged, smoothed, with the input's gradient"),
      make(1, {7, 5, 3}, Act::tanh, 0, true, false, "one row, no biases"),
      make(63, {12, 40, 9, 8, 5}, Act::sigmoid, 0, true, true,
          "four layers, a row less than a tile"),
      make(65, {4, 4, 4}, Act::none, 0, false, true, "a row more"),
      make(64, {64, 32, 16}, Act::relu, 0, true, true, "whole tiles"),
      make(0, {7, 5, 3}, Act::relu, 0, true, true, "empty batch"),
      make(1100, {5, 4, 3}, Act::relu, 0, false, true, "more tiles than blocks"), wide, differ,
      labels, one};
}

const Samples narrow_mlp_samples_of(kNarrowMlpOp, narrow_mlp_samples);

}  // namespace
}  // namespace sinter
