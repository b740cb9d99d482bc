// Products side by side: as many as lie beside each other become one, forward and backward.
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <sstream>

#include "tests/capture/step_util.h"

namespace sinter {
namespace {

using capture::Step;

constexpr int64_t kBatchRows = 5, kInputs = 6;

// Linears of one input whose weights are row blocks of one storage, `widths` rows each, and what
// becomes of their results. The gradients of x and of the weights are results of the step.
struct Linears {
  std::vector<Tensor> weights;
  std::function<Tensor(const Tensors&)> end;

  Linears(const std::vector<int64_t>& widths, std::function<Tensor(const Tensors&)> f)
      : end(std::move(f)) {
    int64_t rows = 0;
    for (const int64_t width : widths) rows += width;
    const Tensor all = sample_tensor({rows, kInputs}, 3);
    for (int64_t at = 0; const int64_t width : widths) {
      weights.push_back(slice(all, 0, at, at + width));
      weights.back().autograd().requires_grad = true;
      at += width;
    }
  }
  Tensors operator()(const Tensors& in) {
    for (const Tensor& w : weights) w.autograd().grad = {};
    in[0].autograd().grad = {};
    Tensors results;
    for (const Tensor& w : weights) results.push_back(linear(in[0], w));
    const Tensor y = end(results);
    backward(sum(y * y));
    return {y, in[0].grad()};
  }
};

Tensors input() {
  const Tensors in{sample_tensor({kBatchRows, kInputs}, 1)};
  in[0].autograd().requires_grad = true;
  return in;
}

using End = std::function<Tensor(const Tensors&)>;

// The ops of the captured step, which gives what the eager one does.
std::string ops(const std::vector<int64_t>& widths, const End& end, const char* rules) {
  Linears eager(widths, end), fused(widths, end);
  const auto parameters = [&](const capture::ParameterVisitor& visit) {
    for (const Tensor& w : fused.weights) visit(w);
  };
  Step step([&](const Tensors& in) { return fused(in); },
      {.rules = capture::RuleSet(rules), .parameters = parameters});
  for (int call = 0; call < 3; ++call) {
    const Tensors got = step(input()), want = eager(input());
    for (size_t r = 0; r < want.size(); ++r)
      EXPECT_TRUE(test::close(got[r], want[r], {.of_largest = 1e-14})) << r;
    for (size_t w = 0; w < eager.weights.size(); ++w) {
      const Tensor& grad = fused.weights[w].grad();
      EXPECT_TRUE(test::close(grad, eager.weights[w].grad(), {.of_largest = 1e-14})) << w;
    }
  }
  return ops_of(step.captured()->fused.graph);
}

// How many of them have a name that ends in `name`.
int64_t count(const std::string& ops, std::string_view name) {
  std::istringstream words(ops);
  return std::count_if(std::istream_iterator<std::string>(words), {},
      [&](const std::string& word) { return word.ends_with(name); });
}

Tensor product_and_sum(const Tensors& t) { return t[0] * t[1] + t[2]; }

TEST(SideBySide, ThreeLinearsOfOneInputAreOne) {
  EXPECT_EQ(count(ops({4, 4, 4}, product_and_sum, "none"), "linear"), 3);
  EXPECT_EQ(count(ops({4, 4, 4}, product_and_sum, "merge_linear"), "linear"), 1);
}

// str() wants its operands dense, and gives them their gradients side by side.
TEST(SideBySide, TheGradientsOfThreeLinearsAreOneAndOne) {
  for (const std::vector<int64_t>& widths : {std::vector<int64_t>{4, 4, 4}, {8, 2, 3}}) {
    const auto end = [](const Tensors& t) { return cat({t[0], t[1], t[2]}, 1); };
    EXPECT_EQ(count(ops(widths, end, "none"), "matmul"), 6);
    EXPECT_EQ(ops(widths, end, "merge_linear"), "linear linear linear cat mul add matmul matmul");
  }
}

// The others are one where the result of one must stay as it is, whichever that is.
TEST(SideBySide, OneThatCannotMoveStaysByItself) {
  for (const size_t dense : {0, 2}) {
    const auto end = [=](Tensors t) {
      t[dense] = log_softmax(t[dense]);
      return product_and_sum(t);
    };
    EXPECT_EQ(count(ops({4, 4, 4}, end, "merge_linear"), "linear"), 2) << dense;
  }
  const auto middle = [](const Tensors& t) { return t[0] * log_softmax(t[1]) + t[2]; };
  EXPECT_EQ(count(ops({4, 4, 4}, middle, "merge_linear"), "linear"), 3);
}

}  // namespace
}  // namespace sinter
