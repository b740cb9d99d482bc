// Samples of gated_linear, and of product_chain: gated_linear_backward.
#include "tests/ops/ends.h"
#include "tests/ops/samples/samples.h"

namespace sinter {
namespace {

std::vector<Sample> gated_linear_samples() {
  const auto make = [](int64_t b, int64_t i, int64_t h, Act act, bool keep, const char* what) {
    return fixed_sample(
        {sample_tensor({b, i}, 1), sample_tensor({h, i}, 2), sample_tensor({h, i}, 3)},
        GatedLinearAttrs{act, keep}, what);
  };
  Sample halves = make(97, 64, 96, Act::gelu_tanh, true, "neighbours in one storage");
  const Tensor both = sample_tensor({192, 64}, 4);
  halves.in[1] = slice(both, 0, 0, 96);
  halves.in[2] = slice(both, 0, 96, 192);
  Sample turned = make(33, 40, 24, Act::silu, true, "transposed operands");
  for (Tensor& t : turned.in) t = transpose(contiguous(transpose(t)));
  const GatedLinearAttrs attrs{};
  return {make(17, 333, 77, Act::gelu_tanh, true, "odd"),
      make(97, 77, 333, Act::silu, false, "ragged"), make(1, 77, 130, Act::gelu, true, "one row"),
      make(0, 7, 5, Act::silu, true, "empty batch"),
      make(64, 64, 64, Act::gelu_tanh, true, "whole tiles"),
      make(32, 64, 64, Act::silu, true, "whole tiles, looked up"),
      make(63, 40, 33, Act::relu, true, "relu, a row less than a tile"),
      make(65, 33, 31, Act::sigmoid, true, "sigmoid, a row more"),
      make(17, 40, 33, Act::tanh, false, "tanh"), make(17, 40, 33, Act::none, true, "bilinear"),
      halves, turned,
      bad_sample({sample_tensor({4, 7}, 1), sample_tensor({5, 7}, 2), sample_tensor({6, 7}, 3)},
          attrs, "weights differ"),
      bad_sample({sample_tensor({4, 7}, 1), sample_tensor({5, 6}, 2), sample_tensor({5, 6}, 3)},
          attrs, "features differ"),
      bad_sample({sample_tensor({4, 6}, 1), sample_tensor({5, 6}, 2), Tensor::zeros({5, 6})}, attrs,
          "types differ")};
}

std::vector<Sample> gated_linear_backward_samples() {
  const auto make = [](int64_t b, int64_t o, int64_t h, Act act, bool merged, const char* what) {
    return fixed_sample({sample_tensor({b, o}, 1), sample_tensor({o, h}, 2), {},
                            sample_tensor({b, h}, 3), sample_tensor({b, h}, 4)},
        ends::gated_linear_backward(act, merged, DType::f64), what);
  };
  Sample halves = make(97, 40, 96, Act::gelu_tanh, true, "halves of one tensor"),
         turned = make(33, 24, 40, Act::silu, false, "transposed operands");
  const Tensor both = sample_tensor({97, 192}, 9);
  halves.in[3] = slice(both, 1, 0, 96);
  halves.in[4] = slice(both, 1, 96, 192);
  for (Tensor& t : turned.in) t = t.defined() ? transpose(contiguous(transpose(t))) : t;
  Sample small = make(4, 5, 6, Act::silu, false, "g of another shape");
  small.in[3] = sample_tensor({4, 5}, 3);
  small.bad = true;
  return {make(17, 333, 77, Act::gelu_tanh, true, "odd"),
      make(97, 77, 333, Act::silu, false, "ragged"), make(1, 10, 130, Act::gelu, true, "one row"),
      make(0, 7, 5, Act::silu, true, "empty batch"),
      make(64, 64, 128, Act::gelu_tanh, true, "whole tiles"),
      make(63, 40, 33, Act::relu, false, "relu, a row less than a tile"),
      make(65, 33, 31, Act::sigmoid, false, "sigmoid, a row more"),
      make(17, 40, 33, Act::tanh, true, "tanh"), make(17, 40, 33, Act::none, false, "bilinear"),
      halves, turned, small,
      bad_sample({sample_tensor({4, 5}, 1), sample_tensor({6, 7}, 2), {}, sample_tensor({4, 7}, 3),
                     sample_tensor({4, 7}, 4)},
          ends::gated_linear_backward(Act::gelu_tanh, false, DType::f64), "features differ")};
}

const Samples gated_linear_samples_of(kGatedLinearOp, gated_linear_samples);
const Samples gated_linear_backward_samples_of(kProductChainOp, gated_linear_backward_samples);

}  // namespace
}  // namespace sinter
