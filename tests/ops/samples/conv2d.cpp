// Samples of conv2d and its gradients.
#include "ops/ops.h"
#include "tests/ops/samples/samples.h"

namespace sinter {
namespace {

// The x and weight of a convolution, by shape, and how they meet.
struct Conv2dCase {
  Shape x, weight;
  Conv2dAttrs attrs;
  const char* what;
  bool bias = true;
};
std::vector<Conv2dCase> conv2d_cases() {
  return {{{2, 3, 5, 5}, {4, 3, 3, 3}, {}, "3x3"},
      {{2, 1, 4, 4}, {3, 1, 1, 1}, {}, "1x1 without a bias", false},
      {{1, 1, 5, 6}, {2, 1, 7, 7}, {1, 1, 3, 3}, "7x7, padded"},
      {{1, 1, 8, 8}, {2, 1, 5, 5}, {1, 1, 2, 2}, "5x5, of the same size"},
      {{2, 2, 7, 6}, {3, 2, 3, 2}, {2, 2, 0, 0}, "stride 2"},
      {{2, 2, 5, 8}, {3, 2, 2, 3}, {2, 3, 1, 2}, "all of it asymmetric"},
      {{1, 1, 7, 7}, {2, 1, 2, 2}, {3, 3, 0, 0}, "a stride beyond the kernel"},
      {{3, 2, 4, 4}, {5, 2, 4, 4}, {}, "one place", false},
      {{1, 2, 2, 2}, {2, 2, 1, 1}, {1, 1, 2, 1}, "windows of padding alone"},
      {{17, 1, 3, 3}, {2, 1, 2, 2}, {}, "16 images and one more"},
      {{0, 3, 5, 5}, {4, 3, 3, 3}, {}, "empty batch"}};
}

Tensors conv2d_operands(const Conv2dCase& c) {
  Tensors in{sample_tensor(c.x, 1), sample_tensor(c.weight, 2)};
  if (c.bias) in.push_back(sample_tensor({c.weight[0]}, 3));
  return in;
}

std::vector<Sample> conv2d_samples() {
  std::vector<Sample> all;
  for (const Conv2dCase& c : conv2d_cases()) all.push_back({conv2d_operands(c), c.attrs, c.what});
  Sample turned = all[0];
  turned.in[0] = transpose(sample_tensor({2, 3, 6, 5}, 4));
  turned.what = "transposed images";
  all.push_back(turned);
  const Tensor x = sample_tensor({2, 3, 5, 5}, 1), weight = sample_tensor({4, 3, 3, 3}, 2);
  const auto bad = [&](Tensors in, const Conv2dAttrs& attrs, const char* what) {
    all.push_back(bad_sample(std::move(in), attrs, what));
  };
  bad({x, sample_tensor({4, 1, 3, 3}, 2)}, {}, "channels differ");
  bad({x, sample_tensor({4, 3, 6, 3}, 2)}, {}, "a kernel of too many rows");
  bad({x, sample_tensor({4, 3, 3, 8}, 2)}, {1, 1, 1, 1}, "a kernel of too many columns");
  bad({x, sample_tensor({4, 3, 0, 3}, 2)}, {}, "an empty kernel");
  bad({sample_tensor({2, 3, 0, 5}, 1), weight}, {1, 1, 2, 2}, "empty images");
  bad({x, weight}, {0, 1, 0, 0}, "no stride");
  bad({x, weight}, {1, 1, 0, -1}, "negative padding");
  bad({x, weight, sample_tensor({3}, 3)}, {}, "bias of another length");
  bad({x, weight, sample_tensor({1, 4}, 3)}, {}, "bias of two dims");
  bad({x, Tensor::ones({4, 3, 3, 3})}, {}, "types differ");
  bad({x, weight, Tensor::ones({4})}, {}, "type of the bias");
  bad({sample_tensor({3, 5, 5}, 1), weight}, {}, "one image without a batch");
  bad({x, sample_tensor({4, 27}, 2)}, {}, "a matrix of weights");
  return all;
}

Conv2dGradAttrs with_sizes(const Conv2dAttrs& a, const Shape& of) {
  return {a.stride_h, a.stride_w, a.pad_h, a.pad_w, of[2], of[3]};
}
Tensor sample_dy(const Conv2dCase& c) {
  return sample_tensor(kConv2dOp.results(conv2d_operands(c), c.attrs)[0].shape(), 5);
}

std::vector<Sample> input_grad_samples() {
  std::vector<Sample> all;
  for (const Conv2dCase& c : conv2d_cases())
    all.push_back({{sample_dy(c), sample_tensor(c.weight, 2)}, with_sizes(c.attrs, c.x), c.what});
  const Tensor dy = sample_tensor({2, 4, 3, 3}, 1), weight = sample_tensor({4, 3, 3, 3}, 2);
  const Conv2dGradAttrs attrs = with_sizes({}, {2, 3, 5, 5});
  const auto bad = [&](Tensors in, const Conv2dGradAttrs& a, const char* what) {
    all.push_back(bad_sample(std::move(in), a, what));
  };
  bad({dy, weight}, with_sizes({}, {2, 3, 6, 5}), "x of other rows");
  bad({dy, weight}, with_sizes({}, {2, 3, 0, 5}), "x of no rows");
  bad({dy, weight}, with_sizes({}, {2, 3, 2, 5}), "x smaller than the kernel");
  bad({dy, weight}, {0, 1, 0, 0, 5, 5}, "no stride");
  bad({dy, sample_tensor({5, 3, 3, 3}, 2)}, attrs, "weight of other channels");
  bad({dy, sample_tensor({4, 27}, 2)}, attrs, "a matrix of weights");
  bad({dy, Tensor::ones({4, 3, 3, 3})}, attrs, "types differ");
  return all;
}

std::vector<Sample> weight_grad_samples() {
  std::vector<Sample> all;
  for (const Conv2dCase& c : conv2d_cases())
    all.push_back({{sample_dy(c), sample_tensor(c.x, 1)}, with_sizes(c.attrs, c.weight), c.what});
  const Tensor dy = sample_tensor({2, 4, 3, 3}, 1), x = sample_tensor({2, 3, 5, 5}, 2);
  const Conv2dGradAttrs attrs = with_sizes({}, {4, 3, 3, 3});
  const auto bad = [&](Tensors in, const Conv2dGradAttrs& a, const char* what) {
    all.push_back(bad_sample(std::move(in), a, what));
  };
  bad({dy, x}, with_sizes({}, {4, 3, 2, 3}), "weight of other rows");
  bad({dy, x}, with_sizes({}, {4, 3, -1, -1}), "weight of no size");
  bad({dy, x}, {1, 1, -1, 0, 3, 3}, "negative padding");
  bad({dy, sample_tensor({3, 3, 5, 5}, 2)}, attrs, "x of another batch");
  bad({dy, sample_tensor({2, 75}, 2)}, attrs, "a matrix of images");
  bad({dy, Tensor::ones({2, 3, 5, 5})}, attrs, "types differ");
  return all;
}

std::vector<Sample> bias_grad_samples() {
  std::vector<Sample> all;
  for (const Shape& shape : {Shape{2, 3, 4, 5}, Shape{17, 2, 1, 1}, Shape{1, 1, 40, 3},
           Shape{3, 1, 8, 8}, Shape{0, 4, 2, 2}, Shape{2, 0, 3, 3}})
    all.push_back({{sample_tensor(shape, 1)}, {}, shape.str()});
  all.push_back(bad_sample({sample_tensor({4, 5}, 1)}, {}, "two dims"));
  return all;
}

const Samples conv2d_samples_of(kConv2dOp, conv2d_samples);
const Samples conv2d_input_grad_samples_of(kConv2dInputGradOp, input_grad_samples);
const Samples conv2d_weight_grad_samples_of(kConv2dWeightGradOp, weight_grad_samples);
const Samples conv2d_bias_grad_samples_of(kConv2dBiasGradOp, bias_grad_samples);

}  // namespace
}  // namespace sinter
