// Samples of row_chain.
#include "ops/fused/fused.h"
#include "tests/ops/samples/samples.h"

namespace sinter {
namespace {

Sample make(int64_t b, std::vector<int64_t> widths, const RowChainAttrs& attrs, const char* what,
    bool bias = true) {
  const Tensor seed = broadcast_to(Tensor::full({1}, b ? 1.0 / double(b) : 1, DType::f64), {b});
  Sample s = fixed_sample(
      {sample_tensor({b, widths[0]}, 1, -1, 1), sample_labels(b, widths.back(), 5), seed, {}},
      attrs, what);
  for (size_t l = 1; l < widths.size(); ++l) {
    // What goes through keeps its size, or there would be little left to compare.
    const double most = std::sqrt(6.0 / double(widths[l - 1]));
    s.in.push_back(sample_tensor({widths[l], widths[l - 1]}, 10 + l, -most, most));
    s.in.push_back(bias ? sample_tensor({widths[l]}, 20 + l, -0.5, 0.5) : Tensor());
  }
  return s;
}

// Of an x that such an activation gave, and with what it saved.
Sample with_saved(Act act, int64_t b, const std::vector<int64_t>& widths) {
  Sample s = make(b, widths, {.act = act, .input_grad = true, .of_act = true}, "with its operand");
  s.in[3] = sample_tensor({b, widths[0]}, 7, -1, 1);
  return s;
}

std::vector<Sample> row_chain_samples() {
  constexpr RowChainAttrs kForward{}, kToInput{.input_grad = true},
      kToRelu{.input_grad = true, .of_act = true};
  Sample per_row = make(33, {24, 40, 10}, kToRelu, "a gradient of its own per row"),
         large = make(4, {600, 600, 6}, kForward, "weights that do not fit"),
         wide = make(4, {8, 8, 65}, kForward, "too many classes"),
         differ = make(4, {9, 7, 3}, kForward, "features differ"),
         labels = make(4, {9, 7, 3}, kForward, "labels differ"),
         none = make(4, {9}, kForward, "no layer"),
         five = make(4, {9, 7, 6, 5, 4, 3}, kForward, "five layers");
  per_row.in[2] = sample_tensor({33}, 6);
  Sample extreme = make(5, {24, 10}, kToRelu, "extreme logits"),
         saved = with_saved(Act::gelu, 4, {9, 7, 3}), other = with_saved(Act::relu, 4, {9, 7, 3});
  extreme.in.back().data<double>()[2] = 120;
  std::fill_n(extreme.in[0].data<double>(), 24, 0.0);
  saved.in[3] = sample_tensor({4, 8}, 3);
  differ.in[4] = sample_tensor({7, 8}, 1);
  labels.in[1] = sample_labels(3, 3, 5);
  for (Sample* s : {&large, &wide, &differ, &labels, &none, &saved, &other, &five}) {
    for (Tensor& t : s->in) t = t.defined() && t.dtype() == DType::f64 ? cast(t, DType::f32) : t;
    s->bad = true;
  }
  return {make(17, {33, 77, 10}, kForward, "odd"),
      make(19, {20, 37, 12, 33}, {.label_smoothing = 0.1, .input_grad = true, .of_act = true},
          "ragged, three layers, many classes"),
      make(1, {24, 16, 10}, kToInput, "one row"), make(0, {24, 16, 10}, kToRelu, "empty batch"),
      make(48, {64, 136, 16}, kToRelu, "whole tiles"),
      make(16, {32, 64, 64}, kToInput, "whole tiles, many classes"),
      make(15, {12, 40, 9, 8, 5}, kToRelu, "four layers, no biases", false),
      make(31, {7, 5, 1}, kToInput, "one class"), make(17, {333, 10}, kToRelu, "the head alone"),
      make(31, {65, 10}, kToInput, "the head alone, no activation before it"),
      make(17, {300, 64}, kToRelu, "the head alone, many classes"), extreme, per_row, large, wide,
      differ, labels, none, saved, other, five};
}

const Samples row_chain_samples_of(kRowChainOp, row_chain_samples);

}  // namespace

// Of other activations than ReLU. Of bf16 the plain ops round what an activation reads, which is
// not near what it is made of everywhere: these are compared with f64 alone (fused_ops_test.cpp).
std::vector<Sample> row_chain_samples_of_activations() {
  return {with_saved(Act::gelu, 35, {24, 40, 10}), with_saved(Act::silu, 20, {40, 10}),
      make(16, {32, 24, 40, 16}, {.act = Act::gelu, .input_grad = true}, "gelu"),
      make(18, {17, 33, 20}, {.act = Act::tanh, .input_grad = true, .of_act = true}, "tanh"),
      make(17, {24, 40, 33}, {.act = Act::silu}, "silu, many classes")};
}

}  // namespace sinter
