// cat and stack: values, types, bits and gradients. Devices and shapes: by the samples of cat.
#include <gtest/gtest.h>

#include <cmath>

#include "autograd/autograd.h"
#include "ops/ops.h"
#include "tests/test_util.h"

namespace sinter {
namespace {

using Floats = std::vector<float>;

TEST(Cat, PutsTensorsSideBySide) {
  const Tensor a = Tensor::from({1, 2, 3, 4}, {2, 2}), b = Tensor::from({5, 6}, {2, 1});
  EXPECT_EQ(cat({a, b}, 1).to_vector<float>(), (Floats{1, 2, 5, 3, 4, 6}));
  EXPECT_EQ(cat({a, transpose(b)}).to_vector<float>(), (Floats{1, 2, 3, 4, 5, 6}));
  const Tensor labels = cat({Tensor::from<int64_t>({1, 2}, {2}), Tensor::from<int64_t>({3}, {1})});
  EXPECT_EQ(labels.describe(), "i64[3] cpu");
  EXPECT_EQ(labels.to_vector<int64_t>(), (std::vector<int64_t>{1, 2, 3}));
}

TEST(Cat, KeepsEveryBit) {
  const Floats odd =
      cat({Tensor::from({-0.0f, NAN}, {2}), Tensor::from({INFINITY}, {1})}).to_vector<float>();
  EXPECT_TRUE(std::signbit(odd[0]) && std::isnan(odd[1]) && std::isinf(odd[2]));
}

TEST(Cat, TakesMoreTensorsThanOneOpDoes) {
  Tensors rows;
  for (int i = 0; i < 70; ++i)
    rows.push_back(Tensor::full({1, 2}, i, DType::f64).set_requires_grad(true));
  const Tensor all = cat(rows);
  for (int i = 0; i < 70; ++i) EXPECT_EQ(slice(all, 0, i, i + 1).to_vector<double>()[1], i);
  backward(sum(all * all));
  for (int i = 0; i < 70; ++i) EXPECT_EQ(rows[i].grad().to_vector<double>()[0], 2 * i);
}

TEST(Cat, GradientsGoToThoseThatWantOne) {
  Tensor a = sample_tensor({2, 3}, 1).set_requires_grad(true), b = sample_tensor({2, 2}, 2);
  const GradcheckResult result = gradcheck(
      [](const Tensors& in) {
        return Tensors{exp(cat({in[0], in[1], in[0]}, 1))};
      },
      {a, b});
  EXPECT_TRUE(result.ok) << result.message;
  EXPECT_FALSE(b.grad().defined());
}

TEST(Stack, MakesANewDimAtEveryPlace) {
  const Tensor a = Tensor::from({1, 2}, {2}), b = Tensor::from({3, 4}, {2});
  EXPECT_EQ(stack({a, b}).shape(), (Shape{2, 2}));
  EXPECT_EQ(stack({a, b}).to_vector<float>(), (Floats{1, 2, 3, 4}));
  EXPECT_EQ(stack({a, b}, 1).to_vector<float>(), (Floats{1, 3, 2, 4}));
  EXPECT_EQ(stack({a, b}, -1).to_vector<float>(), (Floats{1, 3, 2, 4}));
  EXPECT_EQ(stack({sum(a), sum(b)}).to_vector<float>(), (Floats{3, 7})) << "scalars";
  Tensor x = sample_tensor({3}, 1).set_requires_grad(true);
  EXPECT_TRUE(gradcheck(
      [](const Tensors& in) {
        return Tensors{stack({in[0], exp(in[0])}, 1)};
      },
      {x})
                  .ok);
}

TEST(Stack, RefusesNothingAndOtherShapes) {
  test::expect_error(Error::Kind::shape, {"stack: no tensors given"}, [] { stack({}); });
  test::expect_error(Error::Kind::shape, {"cat: no tensors given"}, [] { cat(Tensors{}); });
  test::expect_error(Error::Kind::shape, {"cat: ", "f32[1, 2]", "f32[1, 3]"}, [] {
    stack({Tensor::ones({2}), Tensor::ones({3})});
  });
}

}  // namespace
}  // namespace sinter
