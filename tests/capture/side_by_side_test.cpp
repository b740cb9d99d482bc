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

// Linears of one input whose weights are row blocks of one storage, `widths` rows each, and their
// biases of another, and what becomes of their results. The gradients of x and of the weights are
// results of the step.
struct Linears {
  std::vector<Tensor> weights;  // and the biases behind them
  size_t count;
  std::function<Tensor(const Tensors&)> end;

  Linears(const std::vector<int64_t>& widths, std::function<Tensor(const Tensors&)> f, bool biased,
      Device device)
      : count(widths.size()), end(std::move(f)) {
    int64_t rows = 0;
    for (const int64_t width : widths) rows += width;
    Tensors wholes{sample_tensor({rows, kInputs}, 3).to(device)};
    if (biased) wholes.push_back(sample_tensor({rows}, 4).to(device));
    for (const Tensor& all : wholes) {
      for (int64_t at = 0; const int64_t width : widths) {
        weights.push_back(slice(all, 0, at, at + width));
        weights.back().autograd().requires_grad = true;
        at += width;
      }
    }
  }
  Tensors operator()(const Tensors& in) {
    for (const Tensor& w : weights) w.autograd().grad = {};
    in[0].autograd().grad = {};
    Tensors results;
    for (size_t i = 0; i < count; ++i)
      results.push_back(
          linear(in[0], weights[i], weights.size() > count ? weights[count + i] : Tensor()));
    const Tensor y = end(results);
    backward(sum(y * y));
    return {y, in[0].grad()};
  }
};

Tensors input(const Shape& shape, Device device) {
  const Tensors in{sample_tensor(shape, 1).to(device)};
  in[0].autograd().requires_grad = true;
  return in;
}

using End = std::function<Tensor(const Tensors&)>;

struct HeadOptions {
  Shape input{kBatchRows, kInputs};
  bool biased = false;
  Device device = kCpu;
  double absolute = 0;  // that gradients of weights may differ by, if more than their sums' orders
};

// The ops of the captured step, which gives what the eager one does.
std::string ops(const std::vector<int64_t>& widths, const End& end, const char* rules,
    const HeadOptions& options = {}) {
  const auto& [shape, biased, device, absolute] = options;
  Linears eager(widths, end, biased, device), fused(widths, end, biased, device);
  const auto parameters = [&](const capture::ParameterVisitor& visit) {
    for (const Tensor& w : fused.weights) visit(w);
  };
  Step step([&](const Tensors& in) { return fused(in); },
      {.rules = capture::RuleSet(rules), .parameters = parameters});
  for (int call = 0; call < 3; ++call) {
    const Tensors got = step(input(shape, device)), want = eager(input(shape, device));
    for (size_t r = 0; r < want.size(); ++r)
      EXPECT_TRUE(test::close(got[r], want[r], {.of_largest = 1e-14})) << r;
    for (size_t w = 0; w < eager.weights.size(); ++w) {
      // A key's bias has the gradient 0, a sum of what makes its weight's gradient.
      const std::vector<double> near = eager.weights[w % eager.count].grad().to_vector<double>();
      const double largest =
          std::abs(*std::ranges::max_element(near, {}, [](double x) { return std::abs(x); }));
      const Tensor& grad = fused.weights[w].grad();
      EXPECT_TRUE(test::close(
          grad, eager.weights[w].grad(), {.absolute = std::max(1e-14 * largest, absolute)}))
          << w;
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

// Attention of 3 heads of 2 over [B, S, 6]: the heads are views of the linears' results.
Tensor attention(const Tensors& t) {
  const auto heads = [&](const Tensor& x) {
    return transpose(reshape(x, {x.size(0), x.size(1), 3, 2}), 1, 2);
  };
  const Tensor scores = matmul(heads(t[0]), heads(t[1]), false, true) * 0.7;
  const Tensor y = matmul(softmax(scores), heads(t[2]));
  return reshape(transpose(y, 1, 2), t[0].shape());
}

void check_attention(Device device) {
  for (const bool biased : {false, true}) {
    for (const Shape& shape : {Shape{2, 5, 6}, Shape{1, 1, 6}, Shape{3, 1, 6}, Shape{1, 4, 6}}) {
      if (device == kSimt && shape[1] < 5) continue;
      SCOPED_TRACE(str(shape.str(), " ", biased));
      const HeadOptions options{shape, biased, device};
      EXPECT_EQ(count(ops({6, 6, 6}, attention, "none", options), "linear"), 3);
      const std::string merged = ops({6, 6, 6}, attention, "merge_linear", options);
      EXPECT_EQ(count(merged, "linear"), 1) << merged;
      // Those of backward, which brings dq, dk and dv to the order of rows.
      EXPECT_LE(count(merged, "copy"), 4) << merged;
      ops({6, 6, 6}, attention, "all,-attention", options);
      // As one op its scores, up to 0.7 * 2 * 26^2, are made again in backward, from a saved sum of
      // the row: so a weight may be 2^-53 of twice that off, its gradient is up to 2 * 2704, and a
      // row or key has 26 for each of up to 5 others. The numbers that are compared are up to 1e3.
      HeadOptions loose = options;
      loose.absolute = 0x1p-53 * 2 * 946 * 5408 * 26 * 5;
      const std::string fused = ops({6, 6, 6}, attention, "all", loose);
      EXPECT_EQ(count(fused, "attention"), 1) << fused;
    }
  }
}
TEST(SideBySide, QueriesKeysAndValuesOfHeadsAreOneProduct) { check_attention(kCpu); }
TEST(SideBySideSimt, QueriesKeysAndValuesOfHeadsAreOneProduct) { check_attention(kSimt); }

TEST(SideBySide, BiasesThatAreNeighboursComeAlong) {
  const HeadOptions biased{.biased = true};
  EXPECT_EQ(count(ops(
                      {4, 2, 3}, [](const Tensors& t) { return sum(t[0]) * t[1] + sum(t[2]); },
                      "merge_linear", biased),
                "linear"),
      3)
      << "sum() wants dense operands";
  EXPECT_EQ(count(ops({4, 4, 4}, product_and_sum, "merge_linear", biased), "linear"), 1);
}

// A view whose rows are others than the product's cannot go with it.
TEST(SideBySide, AViewAcrossRowsStaysWhereItIs) {
  const auto end = [](const Tensors& t) {
    const Shape shape{2 * kBatchRows, 2};
    return transpose(reshape(t[0], shape)) * 2.0 + transpose(reshape(t[1] * t[2], shape));
  };
  EXPECT_EQ(count(ops({4, 4, 4}, end, "merge_linear"), "linear"), 2);
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
