// Samples of matmul.
#include "ops/ops.h"
#include "tests/ops/samples/samples.h"

namespace sinter {
namespace {

std::vector<Sample> matmul_samples() {
  std::vector<Sample> all;
  for (const bool ta : {false, true}) {
    for (const bool tb : {false, true}) {
      const Shape a = ta ? Shape{11, 7} : Shape{7, 11}, b = tb ? Shape{5, 11} : Shape{11, 5};
      all.push_back({{sample_tensor(a, 1), sample_tensor(b, 2)}, MatmulAttrs{ta, tb, DType::f64},
          str("odd, ", ta, tb)});
    }
  }
  const MatmulAttrs plain{false, false, DType::f64};
  all.push_back({{sample_tensor({1, 17}, 1), sample_tensor({17, 1}, 2)}, plain, "one element"});
  all.push_back({{sample_tensor({9, 16}, 1), sample_tensor({16, 24}, 2)}, plain, "whole groups"});
  all.push_back({{sample_tensor({0, 3}, 1), sample_tensor({3, 4}, 2)}, plain, "empty batch"});
  all.push_back({{transpose(sample_tensor({5, 6}, 1)), transpose(sample_tensor({4, 5}, 2))}, plain,
      "transposed views"});
  all.push_back(
      fixed_sample({broadcast_to(sample_tensor({1, 5}, 1), {3, 5}), sample_tensor({5, 2}, 2)},
          plain, "spread rows"));
  all.push_back(bad_sample(
      {sample_tensor({3, 4}, 1), sample_tensor({5, 4}, 2)}, plain, "inner sizes differ"));
  all.push_back(
      bad_sample({sample_tensor({3, 4, 5}, 1), sample_tensor({5, 4}, 2)}, plain, "three dims"));
  return all;
}

const Samples matmul_samples_of(kMatmulOp, matmul_samples);

}  // namespace
}  // namespace sinter
