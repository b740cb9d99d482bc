// Samples of product_chain: the three products, programs with and without operands and a bias, of
// one to three results, and operands of every shape that broadcasts to them.
#include "ops/fused/fused.h"
#include "tests/ops/samples/samples.h"

namespace sinter {
namespace {

ProductChainAttrs chain(ProductKind kind, std::string_view text, int64_t pad = 0) {
  ProductChainAttrs attrs{.product = kind, .pad_h = pad, .pad_w = pad, .out = DType::f64};
  SINTER_ASSERT(parse_value(text, attrs.program), text);
  return attrs;
}

std::vector<Sample> product_chain_samples() {
  const auto linear = [](int64_t b, int64_t o, int64_t i, std::string_view text, bool bias,
                          const char* what) {
    const ProductChainAttrs attrs = chain(ProductKind::linear, text);
    Tensors in{sample_tensor({b, i}, 1, 0, 1), sample_tensor({o, i}, 2, -1, 1),
        bias ? sample_tensor({o}, 3) : Tensor()};
    for (int k = 1; k < attrs.program.n_inputs; ++k)
      in.push_back(sample_tensor({b, o}, 3 + uint64_t(k), -1, 1));
    return fixed_sample(in, attrs, what);
  };
  // What the steps read, of these shapes.
  const auto beside = [](Tensors in, ProductChainAttrs attrs, std::initializer_list<Shape> shapes,
                          const char* what) {
    in.resize(3);
    for (const Shape& shape : shapes) in.push_back(sample_tensor(shape, 3 + in.size(), 0.5, 1));
    return fixed_sample(in, attrs, what);
  };
  const auto a = [](int64_t b) { return sample_tensor({b, 6}, 1, -1, 1); };
  const auto wide = [](int64_t o) { return sample_tensor({o, 6}, 2, -1, 1); };
  const char *const two = "3;add(0,1);mul(3,2);4", *const four =
                                                       "5;add(0,1);mul(5,2);sub(6,3);mul(7,4);8";
  const ProductChainAttrs of_two = chain(ProductKind::linear, two),
                          of_four = chain(ProductKind::linear, four),
                          image = chain(ProductKind::conv2d, four, 1);
  const Tensor x = sample_tensor({3, 2, 7, 5}, 1), w = sample_tensor({4, 2, 3, 3}, 2),
               r = sample_tensor({3, 4, 7, 5}, 4);
  const Sample misfit = bad_sample({x, w, sample_tensor({4}, 3), sample_tensor({7, 5}, 4)},
      chain(ProductKind::conv2d, "2;add(0,1);2", 1), "a convolution and one plane");
  return {linear(17, 77, 33, "2;add(0,1);gelu(2);3", true, "a residual"),
      linear(97, 33, 77, "2;mul(0,1);tanh(2);2,3,0", false, "three results"),
      linear(1, 10, 130, "1;scale:0.5(0);1,0", true, "one row, sums kept"),
      linear(0, 7, 5, "2;sub(1,0);2", false, "empty batch"),
      linear(64, 64, 128, "4;mul(0,1);add(4,2);sub(5,3);mul(6,0);7", true, "whole tiles"),
      linear(33, 20, 9, "1;softplus(0);tanh(0);sigmoid(0);silu(0);add(1,2);add(3,4);add(5,6);7",
          true, "five values at once"),
      fixed_sample({sample_tensor({9, 14}, 1, -1, 1), sample_tensor({14, 21}, 2, -1, 1), Tensor(),
                       sample_tensor({9, 21}, 3)},
          chain(ProductKind::matmul, "2;maximum(0,1);2"), "a matmul"),
      fixed_sample({x, w, sample_tensor({4}, 3), r},
          chain(ProductKind::conv2d, "2;add(0,1);leaky_relu:0.1(2);3,2", 1), "a convolution"),
      beside({a(9), wide(13)}, of_four, {{}, {1}, {1, 1}, {13}}, "numbers of any rank"),
      beside({a(9), wide(24)}, of_four, {{}, {1, 24}, {9, 1}, {24}}, "whole groups of columns"),
      beside({a(9), wide(1)}, of_four, {{}, {9, 1}, {1}, {1, 1}}, "one column"),
      beside({a(1), wide(13)}, of_four, {{}, {13}, {1, 13}, {1, 1}}, "one row and operands"),
      beside({a(1), wide(1)}, of_four, {{}, {1}, {1, 1}, {}}, "one element"),
      beside({a(9), wide(0)}, of_two, {{}, {9, 1}}, "no columns"),
      beside({a(0), wide(13)}, of_two, {{}, {13}}, "no rows, and a number"),
      beside({a(9), sample_tensor({6, 16}, 2)}, chain(ProductKind::matmul, two), {{}, {9, 1}},
          "a matmul and a number"),
      beside({a(9), sample_tensor({6, 16}, 2)},
          chain(ProductKind::matmul, "2;gelu_tanh_backward(0,1);2"), {{1, 16}},
          "the gradient of a row"),
      beside({a(9), wide(16)}, chain(ProductKind::linear, "2;relu_backward(0,1);2"), {{}},
          "the gradient of a number"),
      beside({x, w}, image, {{}, {1}, {4, 1, 1}, {1, 4, 1, 1}}, "a convolution and numbers"),
      beside({slice(x, 0, 0, 1), w}, image, {{1, 1, 1, 1}, {4, 1, 1}, {4, 7, 5}, {}},
          "an image of its own"),
      bad_sample({sample_tensor({9, 14}, 1), sample_tensor({14, 21}, 2), sample_tensor({21}, 3)},
          chain(ProductKind::matmul, "1;relu(0);1"), "a matmul with a bias"),
      misfit};
}

const Samples product_chain_samples_of(kProductChainOp, product_chain_samples);

}  // namespace
}  // namespace sinter
