// Samples of product_chain: conv_act and conv_norm_act; of conv_act_pool, and their backwards.
#include "tests/ops/ends.h"
#include "tests/ops/samples/samples.h"

namespace sinter {
namespace {

struct ConvActCase {
  Shape x, weight;
  Conv2dAttrs window;
  const char* what;
  bool bias = true;
};
std::vector<ConvActCase> conv_act_cases() {
  return {{{3, 2, 9, 7}, {5, 2, 3, 3}, {}, "odd rows and columns"},
      {{17, 1, 12, 12}, {6, 1, 5, 5}, {1, 1, 2, 2}, "padded, one image more than a vector holds"},
      {{2, 3, 11, 13}, {9, 3, 3, 2}, {2, 2, 1, 0}, "stride 2, asymmetric"},
      {{1, 4, 6, 5}, {3, 4, 1, 1}, {}, "1x1 without a bias", false},
      {{0, 2, 9, 7}, {5, 2, 3, 3}, {}, "empty batch"}};
}
Tensors conv_act_operands(const ConvActCase& c) {
  Tensors in{sample_tensor(c.x, 1), sample_tensor(c.weight, 2)};
  if (c.bias) in.push_back(sample_tensor({c.weight[0]}, 3));
  return in;
}

std::vector<Sample> conv_act_samples() {
  std::vector<Sample> all;
  const auto with = [&](const ConvActCase& c, Act act, bool keep) {
    all.push_back(fixed_sample(conv_act_operands(c), ends::conv_act(c.window, act, keep), c.what));
  };
  for (const ConvActCase& c : conv_act_cases()) with(c, Act::relu, false);
  for (const Act act : kActivations) {
    for (const bool keep : {false, true}) with(conv_act_cases()[0], act, keep);
  }
  all.push_back(bad_sample({sample_tensor({2, 3, 5, 5}, 1), sample_tensor({4, 1, 3, 3}, 2)},
      ends::conv_act({}, Act::relu), "channels differ"));
  return all;
}

std::vector<Sample> conv_act_pool_samples() {
  std::vector<Sample> all;
  for (const ConvActCase& c : conv_act_cases())
    all.push_back(fixed_sample(conv_act_operands(c), c.window, c.what));
  all.push_back(bad_sample({sample_tensor({2, 3, 3, 5}, 1), sample_tensor({4, 3, 3, 3}, 2)},
      Conv2dAttrs{}, "nothing to pool"));
  return all;
}

std::vector<Sample> conv_norm_act_samples() {
  std::vector<Sample> all;
  const auto with = [&](const ConvActCase& c, Act act) {
    Tensors in = conv_act_operands(c);
    in.resize(3);
    const Shape row{c.weight[0]};
    for (const uint64_t seed : {4, 5, 6}) in.push_back(sample_tensor(row, seed));
    in.push_back(sample_tensor(row, 7, 0.5, 2));
    all.push_back(fixed_sample(in, ends::conv_norm_act(c.window, act, 1e-3), c.what));
  };
  for (const ConvActCase& c : conv_act_cases()) with(c, Act::relu);
  for (const Act act : {Act::none, Act::gelu}) with(conv_act_cases()[0], act);
  Sample bad = all[0];
  bad.in[6] = sample_tensor({3}, 7, 0.5, 2);
  bad.bad = true;
  bad.what = "a variance of other channels";
  all.push_back(bad);
  return all;
}

// dy; x; y or, where pooled, the index; the weight.
std::vector<Sample> conv_backward_samples(bool pooled) {
  std::vector<Sample> all;
  for (const ConvActCase& c : conv_act_cases()) {
    const Tensors in = conv_act_operands(c);
    const Conv2dAttrs& w = c.window;
    const Tensors made = pooled ? apply(kConvActPoolOp, in, w)
                                : apply(kProductChainOp, in, ends::conv_act(w, Act::relu));
    Tensors operands{sample_tensor(made[0].shape(), 4), in[0], made[pooled ? 1 : 0]};
    Conv2dGradAttrs attrs{w.stride_h, w.stride_w, w.pad_h, w.pad_w, c.weight[2], c.weight[3]};
    all.push_back(fixed_sample(operands, attrs, "without x's gradient"));
    operands.push_back(in[1]);
    all.push_back(fixed_sample(operands, attrs, c.what));
    attrs.relu = true;
    all.push_back(fixed_sample(operands, attrs, "behind a ReLU"));
    if (pooled) continue;
    operands[2] = Tensor();
    all.push_back(fixed_sample(operands, attrs, "behind a ReLU, without y"));
  }
  Sample bad = all[0];
  bad.bad = true;
  const auto other = [&](const Shape& shape) {
    return pooled ? Tensor::zeros(shape, DType::u8) : sample_tensor(shape, 4);
  };
  bad.what = "y or index of another shape";
  bad.in[2] = other({3, 5, 1, 2});
  all.push_back(bad);
  bad.what = "y or index that broadcasts";
  bad.in[2] = other({5, 1, 1});
  all.push_back(bad);
  return all;
}

const Samples conv_act_samples_of(kProductChainOp, conv_act_samples);
const Samples conv_act_pool_samples_of(kConvActPoolOp, conv_act_pool_samples);
const Samples conv_norm_act_samples_of(kProductChainOp, conv_norm_act_samples);
const Samples conv_act_backward_samples_of(
    kConvActBackwardOp, [] { return conv_backward_samples(false); });
const Samples conv_act_pool_backward_samples_of(
    kConvActPoolBackwardOp, [] { return conv_backward_samples(true); });

}  // namespace
}  // namespace sinter
