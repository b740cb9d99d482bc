// Comparisons, and numbers beside tensors: every operator on both sides, against the host's own
// arithmetic, on all types and on the emulator.
#include <gtest/gtest.h>

#include <cmath>

#include "autograd/autograd.h"
#include "ops/ops.h"
#include "tests/test_util.h"

namespace sinter {
namespace {

constexpr Device kOnSimt{Device::Type::simt, 0};
using Doubles = std::vector<double>;

struct Operator {
  const char* name;
  Tensor (*tensors)(const Tensor&, const Tensor&);
  Tensor (*right)(const Tensor&, double);
  Tensor (*left)(double, const Tensor&);
  double (*numbers)(double, double);
};
#define SINTER_ROW(symbol)                                                \
  Operator {                                                              \
    #symbol, [](const Tensor& a, const Tensor& b) { return a symbol b; }, \
        [](const Tensor& a, double b) { return a symbol b; },             \
        [](double a, const Tensor& b) { return a symbol b; },             \
        [](double a, double b) { return double(a symbol b); }             \
  }
const Operator kComparisons[] = {
    SINTER_ROW(==), SINTER_ROW(!=), SINTER_ROW(<), SINTER_ROW(<=), SINTER_ROW(>), SINTER_ROW(>=)};
const Operator kArithmetic[] = {SINTER_ROW(+), SINTER_ROW(-), SINTER_ROW(*), SINTER_ROW(/)};
#undef SINTER_ROW

const Doubles kOdd{-INFINITY, -1.5, -0.0, 0, 0.5, 0.5000001, 3, INFINITY, NAN};

TEST(CompareSimt, EveryPairOfOddNumbers) {
  const auto n = int64_t(kOdd.size());
  for (const Device device : {kCpu, kOnSimt}) {
    for (const DType dtype : {DType::f64, DType::f32, DType::bf16}) {
      const Tensor values = cast(Tensor::from(kOdd, {n}), dtype);
      const Doubles rounded = values.to_vector<double>();
      const Tensor a = reshape(values.to(device), {n, 1}), b = values.to(device);
      for (const Operator& op : kComparisons) {
        SCOPED_TRACE(str(op.name, " ", name_of(dtype), " ", device.str()));
        const Tensor result = op.tensors(a, b);
        EXPECT_EQ(result.dtype(), dtype);
        const Doubles got = result.to_vector<double>();
        for (int64_t i = 0; i < n * n; ++i) {
          const double wanted = op.numbers(rounded[i / n], rounded[i % n]);
          EXPECT_EQ(got[i], wanted) << rounded[i / n] << " and " << rounded[i % n];
        }
        for (const double number : {0.0, 0.5, double(INFINITY)}) {
          const Doubles right = op.right(b, number).to_vector<double>(),
                        left = op.left(number, b).to_vector<double>();
          for (int64_t i = 0; i < n; ++i) {
            EXPECT_EQ(right[i], op.numbers(rounded[i], number));
            EXPECT_EQ(left[i], op.numbers(number, rounded[i]));
          }
        }
      }
    }
  }
}

TEST(Compare, IntegersOfAnyTypesGiveF32) {
  const Tensor logits = Tensor::from({0, 2, 1, 5, 4, 3}, {2, 3});
  const Tensor right = argmax(logits) == Tensor::from<int32_t>({1, 2}, {2});
  EXPECT_EQ(right.describe(), "f32[2] cpu");
  EXPECT_EQ(mean(right).item(), 0.5);
  const Tensor large = Tensor::from<int64_t>({(int64_t{1} << 53) - 1}, {1});
  EXPECT_EQ((large < double(int64_t{1} << 53)).item(), 1);
  EXPECT_EQ((Tensor::from<uint8_t>({0, 255}, {2}) != 0).to_vector<int>(), (std::vector<int>{0, 1}));
  EXPECT_EQ((Tensor::from<int32_t>({2, 3}, {2}) < 2.5).to_vector<int>(), (std::vector<int>{1, 0}));
  EXPECT_EQ(eq(large, Tensor::ones({1})).describe(), "f32[1] cpu") << "an integer beside a float";
  test::expect_error(Error::Kind::dtype, {"lt: ", "f32[1] cpu", "f64[1] cpu"},
      [] { lt(Tensor::ones({1}), Tensor::ones({1}, DType::f64)); });
  test::expect_error(Error::Kind::shape, {"eq: ", "undefined"}, [] { eq({}, Tensor::ones({1})); });
}

TEST(Compare, HasNoGradientAndChoosesForWhere) {
  Tensor x = sample_tensor({4, 5}, 1).set_requires_grad(true);
  EXPECT_FALSE((x > 0).requires_grad());
  const auto leaky = [](const Tensors& in) {
    return Tensors{where(in[0] > 0, in[0], 0.1 * in[0]), in[0] * (in[0] <= 0.5)};
  };
  const GradcheckResult result = gradcheck(leaky, {x});
  EXPECT_TRUE(result.ok) << result.message;
  const Tensor taken =
      where(Tensor::from({0.25f, 0, NAN}, {3}), Tensor::ones({3}), Tensor::zeros({3}));
  EXPECT_EQ(taken.to_vector<float>(), (std::vector<float>{1, 0, 1})) << "non-zero takes the first";
}

TEST(NumbersSimt, StandOnBothSidesOfEveryOperator) {
  for (const Device device : {kCpu, kOnSimt}) {
    for (const Shape& shape : {Shape{3, 5}, Shape{0, 4}, Shape{}, Shape{7}}) {
      const Tensor host = sample_tensor(shape, 1, 0.5, 2), x = host.to(device);
      const Doubles values = host.to_vector<double>();
      for (const Operator& op : kArithmetic) {
        SCOPED_TRACE(str(op.name, " ", shape.str(), " ", device.str()));
        const Doubles right = op.right(x, 3).to_vector<double>(),
                      left = op.left(3, x).to_vector<double>();
        ASSERT_EQ(right.size(), values.size());
        for (size_t i = 0; i < values.size(); ++i) {
          EXPECT_EQ(right[i], op.numbers(values[i], 3)) << "rounded once, as the host does it";
          EXPECT_EQ(left[i], op.numbers(3, values[i]));
        }
        if (device != kCpu) continue;
        Tensor leaf = copy(host);
        leaf.set_requires_grad(true);
        const GradcheckResult result = gradcheck(
            [&](const Tensors& in) {
              return Tensors{op.right(in[0], 3), op.left(3, in[0])};
            },
            {leaf});
        EXPECT_TRUE(result.ok) << result.message;
      }
    }
  }
}

TEST(MaximumSimt, AnInfiniteGradientGoesToTheLargerOneAlone) {
  for (const Device device : {kCpu, kOnSimt}) {
    Tensor a = Tensor::from({1, 2, 3}, {3}).to(device), b = Tensor::from({2, 1, 3}, {3}).to(device);
    for (Tensor* t : {&a, &b}) t->set_requires_grad(true);
    backward(maximum(a, b), {.gradient = Tensor::full({3}, INFINITY, DType::f32, device)});
    EXPECT_EQ(a.grad().to_vector<double>(), (Doubles{0, INFINITY, INFINITY}));
    EXPECT_EQ(b.grad().to_vector<double>(), (Doubles{INFINITY, 0, INFINITY}));
  }
}

TEST(Numbers, TakeTheTypeOfTheTensorAndAnyStrides) {
  const Tensor x = cast(sample_tensor({4, 6}, 1), DType::bf16);
  EXPECT_EQ((1 - x).dtype(), DType::bf16);
  EXPECT_EQ((1 - transpose(x)).to_vector<float>(), transpose(1 - x).to_vector<float>());
  EXPECT_EQ((Tensor::ones({1}, DType::bf16) + 0x1p-10).item(), 1) << "the sum is rounded";
  EXPECT_EQ((-Tensor::ones({2})).to_vector<float>(), (std::vector<float>{-1, -1}));
  EXPECT_TRUE(std::isnan((Tensor::from({NAN}, {1}) + 1).item()));
  EXPECT_TRUE(std::isnan((Tensor::ones({1}) + NAN).item()));
  EXPECT_EQ((Tensor::ones({1}) + 2).item(), 3) << "after a NaN, too";
  EXPECT_EQ((1 / (0 * Tensor::ones({1}) - 0.0)).item(), INFINITY);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ((Tensor::ones({1}) + i).item(), i + 1);
}

}  // namespace
}  // namespace sinter
