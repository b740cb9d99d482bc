// Values, refusals and the order of sums of embedding, beyond what the loops over all ops ask.
#include <gtest/gtest.h>

#include "autograd/autograd.h"
#include "ops/ops.h"
#include "tests/closeness.h"
#include "tests/test_util.h"

namespace sinter {
namespace {

TEST(Embedding, TakesTokensOfBothTypes) {
  const Tensor weight = Tensor::from({0, 1, 10, 11, 20, 21}, {3, 2});
  const Tensor narrow = Tensor::from(std::vector<int32_t>{2, 0, 2}, {3}),
               wide = Tensor::from(std::vector<int64_t>{2, 0, 2}, {3});
  for (const Tensor& tokens : {narrow, wide})
    EXPECT_EQ(
        embedding(tokens, weight).to_vector<float>(), (std::vector<float>{20, 21, 0, 1, 20, 21}));
}

// The token, its place, and how many there are; nothing is read beyond the table.
TEST(Embedding, ATokenOutOfRangeIsNamedOnEachDevice) {
  const Tensor weight = Tensor::ones({5, 3});
  for (const int32_t bad : {5, -1, INT32_MAX, INT32_MIN}) {
    const Tensor tokens = Tensor::from(std::vector<int32_t>{0, bad, 4}, {3});
    test::expect_error(Error::Kind::data,
        {str("embedding: token out of range: ", bad, " at place 1"), "5 rows are 0..4"},
        [&] { embedding(tokens, weight); });
    for (const Device device : test::devices_of_tests()) {
      if (device == kCpu) continue;
      test::expect_error(Error::Kind::data, {str("index out of range: ", bad), "5 rows are 0..4"},
          [&] { embedding(tokens.to(device), weight.to(device)).to(kCpu); });
    }
  }
}

// The sum of a row goes over its tokens from the first to the last, whatever the threads do.
TEST(Embedding, TheGradientOfARowIsASumInTheOrderOfItsTokens) {
  const int64_t n = 1000, rows = 7, d = 5;
  const Tensor tokens = sample_labels(n, rows, 3), dy = cast(sample_tensor({n, d}, 4), DType::f32);
  Tensor weight = Tensor::zeros({rows, d}).set_requires_grad(true);
  backward(embedding(tokens, weight), {.gradient = dy});
  std::vector<float> wanted(size_t(rows * d));
  for (int64_t i = 0; i < n * d; ++i)
    wanted[size_t(tokens.data<int32_t>()[i / d] * d + i % d)] += dy.data<float>()[i];
  EXPECT_EQ(weight.grad().to_vector<float>(), wanted);
}

}  // namespace
}  // namespace sinter
