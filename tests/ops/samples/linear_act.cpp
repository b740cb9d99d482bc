// Samples of product_chain: linear_act.
#include "tests/ops/ends.h"
#include "tests/ops/samples/samples.h"

namespace sinter {
namespace {

std::vector<Sample> linear_act_samples() {
  const auto make = [](int64_t b, int64_t i, int64_t o, Act act, bool keep, bool bias,
                        const char* what) {
    Sample s = fixed_sample({sample_tensor({b, i}, 1), sample_tensor({o, i}, 2)},
        ends::linear_act(act, keep, DType::f64), what);
    if (bias) s.in.push_back(sample_tensor({o}, 3));
    return s;
  };
  const ProductChainAttrs f64 = ends::linear_act(Act::relu, false, DType::f64);
  std::vector<Sample> all{make(17, 333, 77, Act::relu, false, true, "odd"),
      make(97, 77, 333, Act::relu, true, false, "ragged, no bias"),
      make(1, 77, 130, Act::relu, false, true, "one row"),
      make(1, 9, 1, Act::relu, false, true, "one element"),
      make(0, 7, 5, Act::relu, true, true, "empty batch"),
      make(97, 40, 33, Act::none, false, true, "no activation"),
      make(64, 256, 128, Act::relu, true, true, "whole tiles"),
      bad_sample({sample_tensor({4, 7}, 1), sample_tensor({5, 6}, 2)}, f64, "features differ"),
      bad_sample({sample_tensor({4, 6}, 1), sample_tensor({5, 6}, 2), sample_tensor({6}, 3)}, f64,
          "bias of another length"),
      bad_sample({sample_tensor({4, 6}, 1), Tensor::zeros({5, 6})}, f64, "types differ")};
  for (const Act act : kActivations) {
    const bool keep = act_saves(act) == pointwise::Saves::inputs;
    all.push_back(make(97, 33, 49, act, keep, true, "each activation"));
    all.push_back(make(17, 40, 33, act, false, false, "each activation, no bias"));
    all.push_back(make(17, 40, 48, act, keep, true, "each activation, whole groups"));
    all.push_back(make(17, 40, 48, act, false, false, "each activation, whole groups, no bias"));
  }
  return all;
}

const Samples linear_act_samples_of(kProductChainOp, linear_act_samples);

}  // namespace
}  // namespace sinter
