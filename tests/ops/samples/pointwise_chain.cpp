// Samples of pointwise_chain.
#include "ops/fused/fused.h"
#include "tests/ops/samples/samples.h"

namespace sinter {
namespace {

std::vector<Sample> pointwise_chain_samples() {
  const auto make = [](std::initializer_list<Shape> shapes, std::string_view program,
                        const char* what) {
    ChainAttrs attrs;
    SINTER_ASSERT(parse_value(program, attrs.program), program);
    Sample s = fixed_sample({}, attrs, what);
    for (const Shape& shape : shapes) s.in.push_back(sample_tensor(shape, s.in.size() + 1, 0.3, 2));
    return s;
  };
  Sample between = make({{3, 5, 7}, {3, 1, 7}}, "2;mul(0,1);2", "broadcast between its dims"),
         count = make({{5, 7}, {7}}, "2;mul(0,1);2", "an input is missing");
  count.in.pop_back();
  between.bad = count.bad = true;
  return {make({{17, 333}, {17, 333}}, "2;mul(0,1);silu(2);sub(3,0);4", "odd"),
      make({{97, 77}, {77}, {1}}, "3;add(0,1);gelu_tanh(3);mul(4,2);scale:0.5(5);4,6",
          "row and scalar broadcast, two results"),
      make({{17, 77}, {17, 1}, {77}}, "3;add(0,1);mul(3,2);4", "a column and a row"),
      make({{3, 5, 6, 7}, {5, 1, 1}, {5, 6, 1}, {7}, {3, 1, 1, 1}},
          "5;mul(0,1);add(5,2);sub(6,3);mul(7,4);8", "channels, and parts of dims"),
      make({{8, 1}, {2, 8, 16}, {8, 1}}, "3;mul(0,1);add(3,2);4", "the first is broadcast, too"),
      make({{}, {}}, "2;mul(0,1);exp(2);sub(3,0);4,3", "numbers alone"),
      make({{1}, {}, {1, 1}}, "3;mul(0,1);add(3,2);4", "one element"),
      make({{}, {5, 8}, {5, 1}, {8}}, "4;mul(0,1);add(4,2);sub(5,3);6", "a number comes first"),
      make({{1, 2077}}, "1;neg(0);exp(1);add(2,0);log(3);sqrt(0);maximum(4,5);2,6", "one row"),
      make({{3, 5, 7}, {3, 5, 7}},
          "2;silu_backward(0,1);tanh_backward(2,0);pow:3(3);leaky_relu:0.1(4);relu(5);6",
          "backward ops and numbers"),
      make({{17, 77}, {17, 77}, {77}},
          "3;div_backward.da(0,1,2);div_backward.db(0,1,2);mul(3,4);3,4,5",
          "both gradients of div"),
      make({{5, 66}, {5, 66}, {5, 66}},
          "3;maximum_backward.db(0,1,2);maximum_backward.da(3,1,1);mul_backward.db(4,2,0);5,3",
          "one gradient of maximum, and of its ties"),
      make({{0, 7}, {0, 7}}, "2;div(0,1);abs(2);3", "empty batch"),
      make({{40}},
          "1;mul(0,0);mul(1,1);mul(2,2);softplus(3);elu:1(4);sigmoid(5);gelu(6);add(7,0);sub(8,1);"
          "div(9,0);10",
          "ten steps"),
      between, count};
}

const Samples pointwise_chain_samples_of(kPointwiseChainOp, pointwise_chain_samples);

}  // namespace
}  // namespace sinter
