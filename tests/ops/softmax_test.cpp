#include <gtest/gtest.h>

#include "autograd/autograd.h"
#include "ops/ops.h"
#include "tests/closeness.h"
#include "tests/test_util.h"

namespace sinter {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

TEST(Softmax, KnownValues) {
  const Tensor x = Tensor::from({0, std::log(2.0f), std::log(5.0f), 7, 7, 7}, {2, 3});
  const Tensor wanted = Tensor::from<double>({0.125, 0.25, 0.625, 1 / 3., 1 / 3., 1 / 3.}, {2, 3});
  EXPECT_TRUE(test::close(softmax(x), wanted, {.absolute = 1e-7}));
  EXPECT_TRUE(test::close(log_softmax(x), log(wanted), {.absolute = 5e-7}));
}

TEST(Softmax, ExtremeValues) {
  const Tensor large = Tensor::from({1000, 999, -kInf, -3e38f}, {1, 4});
  const auto p = softmax(large).to_vector<double>(), logp = log_softmax(large).to_vector<double>();
  EXPECT_NEAR(p[0], 1 / (1 + std::exp(-1.0)), 1e-7);
  EXPECT_EQ(p[2], 0);
  EXPECT_EQ(p[3], 0);
  EXPECT_NEAR(logp[1], -1 - std::log1p(std::exp(-1.0)), 1e-6);
  EXPECT_EQ(logp[2], -kInf);
  // A NaN or +inf spoils its own row only.
  EXPECT_TRUE(test::close(log_softmax(Tensor::from({NAN, 1, 2, 3, kInf, 1}, {3, 2})),
      {NAN, NAN, -1.3132617, -0.3132617, NAN, NAN}, {.absolute = 1e-6, .same_nan = true}));
}

TEST(Softmax, WideRows) {
  const Tensor x = cast(sample_tensor({3, 5003}, 1, -9, 9), DType::f32);
  EXPECT_TRUE(test::close(softmax(x), softmax(cast(x, DType::f64)), {.of_each = 64 * 0x1p-23}));
}

TEST(Softmax, OverAnyDimIsThatOfTheTransposed) {
  Tensor x = sample_tensor({3, 4, 5}, 1).set_requires_grad(true);
  for (const int64_t dim : {0, 1, 2, -1, -2, -3}) {
    for (const auto& f : {softmax, log_softmax}) {
      const Tensor y = f(x, dim, false),
                   moved = transpose(f(transpose(x, dim, -1), -1, false), dim, -1);
      EXPECT_EQ(y.to_vector<double>(), moved.to_vector<double>()) << dim;
      const GradcheckResult result =
          gradcheck([&](const Tensors& in) { return Tensors{f(in[0], dim, false)}; }, {x});
      EXPECT_TRUE(result.ok) << result.message;
    }
    const Tensor totals = sum(softmax(x, dim), dim);
    EXPECT_TRUE(test::close(totals, Tensor::ones(totals.shape()), {.absolute = 1e-15}));
  }
  EXPECT_EQ(softmax(Tensor::ones({0, 3}), 0).numel(), 0);
  EXPECT_THROW(softmax(x, 3), Error);
}

// On each device, by warps and by blocks: what lies above the diagonal is not read, not by backward
// either.
TEST(Softmax, CausalReadsNothingAboveTheDiagonal) {
  for (const Device device : test::devices_of_tests()) {
    for (const int64_t cols : {7, 70, 1030}) {
      SCOPED_TRACE(str(device.str(), " ", cols));
      const int64_t rows = 5;
      const Tensor clean = cast(sample_tensor({2, rows, cols}, 1), DType::f32),
                   dy = cast(sample_tensor({2, rows, cols}, 2), DType::f32);
      Tensor x = copy(clean), g = copy(dy);
      for (int64_t i = 0; i < x.numel(); ++i) {
        if (i % cols > i / cols % rows) x.data<float>()[i] = g.data<float>()[i] = NAN;
      }
      for (const bool log : {false, true}) {
        const auto run = [&](const Tensor& of, const Tensor& grad) {
          Tensor leaf = of.to(device);
          leaf.set_requires_grad(true);
          const Tensor y = log ? log_softmax(leaf, -1, true) : softmax(leaf, -1, true);
          backward(y, {.gradient = grad.to(device)});
          return std::pair{y.to_vector<float>(), leaf.grad().to_vector<float>()};
        };
        const auto [y, dx] = run(x, g);
        const auto [wanted, gradient] = run(clean, dy);
        EXPECT_EQ(y, wanted);
        EXPECT_EQ(dx, gradient);
        for (size_t i = 0; i < y.size(); ++i) {
          if (int64_t(i) % cols <= int64_t(i) / cols % rows) continue;
          ASSERT_EQ(y[i], log ? -kInf : 0) << i;
          ASSERT_EQ(dx[i], 0) << i;
        }
      }
    }
  }
}

TEST(Softmax, ACausalRowThatIsMaskedAsAWholeIsZeroAndHasNoGradient) {
  for (const Device device : test::devices_of_tests()) {
    Tensor x = Tensor::from({-kInf, 1, -kInf, -kInf}, {2, 2}).to(device);
    x.set_requires_grad(true);
    const Tensor p = softmax(x, -1, true);
    backward(p, {.gradient = Tensor::from({1, 2, 3, 4}, {2, 2}).to(device)});
    EXPECT_EQ(p.to_vector<float>(), (std::vector<float>{0, 0, 0, 0}));
    EXPECT_EQ(x.grad().to_vector<float>(), (std::vector<float>{0, 0, 0, 0}));
    EXPECT_EQ(log_softmax(x, -1, true).to_vector<float>(),
        (std::vector<float>{-kInf, -kInf, -kInf, -kInf}));
  }
}

TEST(Softmax, CausalIsOfTheLastDim) {
  const Tensor x = Tensor::ones({3, 4});
  test::expect_error(Error::Kind::usage, {"softmax: causal is of the last dim: dim 0", "f32[3, 4]"},
      [&] { softmax(x, 0, true); });
  test::expect_error(Error::Kind::shape, {"softmax: causal wants two dims", "f32[4]"},
      [&] { softmax(Tensor::ones({4}), -1, true); });
}

TEST(Nll, KnownValuesAndSmoothing) {
  const Tensor logp = Tensor::from({-1, -2, -3, -4, -5, -6}, {2, 3}),
               labels = Tensor::from<int32_t>({2, 0}, {2});
  EXPECT_EQ(nll(logp, labels).to_vector<float>(), (std::vector<float>{3, 4}));
  EXPECT_TRUE(test::close(
      nll(logp, labels, 0.3), {0.7 * 3 + 0.1 * 6, 0.7 * 4 + 0.1 * 15}, {.absolute = 1e-6}));
}

TEST(Nll, GradientOfTheMeanLossIsSoftmaxMinusOneHot) {
  Tensor z = sample_tensor({4, 5}, 1).set_requires_grad(true);
  const Tensor labels = Tensor::from<int32_t>({1, 4, 0, 1}, {4});
  backward(cross_entropy(z, labels));
  auto wanted = softmax(detach(z)).to_vector<double>();
  for (int b = 0; b < 4; ++b) wanted[b * 5 + labels.data<int32_t>()[b]] -= 1;
  for (double& v : wanted) v /= 4;
  EXPECT_TRUE(test::close(z.grad(), wanted, {.absolute = 1e-15}));
}

TEST(Nll, TakesPyTorchsI64Labels) {
  const Tensor x = sample_tensor({4, 5}, 1), labels = Tensor::from<int64_t>({1, 4, 0, 1}, {4});
  Tensor a = copy(x), b = copy(x);
  a.set_requires_grad(true);
  b.set_requires_grad(true);
  const Tensor from_wide = cross_entropy(a, labels, 0.1);
  backward(from_wide);
  const Tensor from_narrow = cross_entropy(b, cast(labels, DType::i32), 0.1);
  backward(from_narrow);
  EXPECT_EQ(from_wide.to_vector<double>(), from_narrow.to_vector<double>());
  EXPECT_EQ(a.grad().to_vector<double>(), b.grad().to_vector<double>());
  for (const int64_t bad : {int64_t{5}, int64_t{-1}, (int64_t{1} << 32) + 1, -(int64_t{1} << 32)}) {
    SCOPED_TRACE("not taken for another label");
    test::expect_error(Error::Kind::data, {"label out of range"}, [&] {
      nll(x, Tensor::from<int64_t>({0, 1, 2, bad}, {4}));
    });
  }
}

// By plain loops: the rows that count, as if there were no others.
TEST(Nll, ARowThatIsIgnoredHasNoLossAndNoGradientAndTheMeanIsOfTheOthers) {
  for (const Device device : test::devices_of_tests()) {
    for (const DType type : {DType::f64, DType::f32}) {
      if (device != kCpu && type == DType::f64) continue;
      for (const double smoothing : {0.0, 0.1}) {
        const int64_t rows = 70, classes = 5;
        const Tensor z = cast(sample_tensor({rows, classes}, 1), type),
                     labels = sample_labels(rows, classes, 2);
        for (const int64_t ignored : {int64_t{3}, int64_t{-100}}) {
          if (ignored < 0) labels.data<int32_t>()[4] = labels.data<int32_t>()[69] = -100;
          Tensor leaf = z.to(device);
          leaf.set_requires_grad(true);
          const Tensor losses = cross_entropy(leaf, labels.to(device), smoothing, ignored);
          backward(losses);
          std::vector<double> wanted, dz;
          int64_t counted = 0;
          for (int64_t r = 0; r < rows; ++r) counted += labels.data<int32_t>()[r] != ignored;
          for (int64_t r = 0; r < rows; ++r) {
            const int32_t label = labels.data<int32_t>()[r];
            const std::vector<double> x = slice(z, 0, r, r + 1).to_vector<double>();
            double sum = 0, loss = 0;
            for (const double v : x) sum += std::exp(v);
            for (int c = 0; c < classes; ++c) {
              const double target = smoothing / double(classes) + (c == label ? 1 - smoothing : 0);
              loss -= target * (x[size_t(c)] - std::log(sum));
              dz.push_back(
                  label == ignored ? 0 : (std::exp(x[size_t(c)]) / sum - target) / double(counted));
            }
            wanted.push_back(label == ignored ? 0 : loss);
          }
          // A few roundings of numbers up to 5.
          const double bound = type == DType::f64 ? 1e-14 : 1e-14 * 0x1p29;
          EXPECT_TRUE(test::close(losses, wanted, {.absolute = bound}));
          EXPECT_TRUE(test::close(leaf.grad(), dz, {.absolute = bound}));
          EXPECT_EQ(losses.autograd().counted.item(), double(counted));
          EXPECT_TRUE(
              test::close(nll(log_softmax(z.to(device)), labels.to(device), smoothing, ignored),
                  wanted, {.absolute = bound}));
        }
      }
    }
  }
}

TEST(Nll, OfNoRowsThatCountTheMeanIsZero) {
  Tensor z = sample_tensor({3, 5}, 1).set_requires_grad(true);
  const Tensor labels = Tensor::from<int64_t>({-100, -100, -100}, {3});
  const Tensor losses = cross_entropy(z, labels, 0, -100);
  backward(losses);
  EXPECT_EQ(losses.to_vector<double>(), std::vector<double>(3, 0));
  EXPECT_EQ(z.grad().to_vector<double>(), std::vector<double>(15, 0));
  // Of another label that is none, the message is that of before.
  test::expect_error(
      Error::Kind::data, {"label out of range: -1 in row 1", "5 classes are 0..4"}, [&] {
        cross_entropy(z, Tensor::from<int64_t>({-100, -1, 2}, {3}), 0, -100);
      });
}

TEST(Nll, LabelOutOfRangeNamesValueRowAndRange) {
  for (const int32_t bad : {7, 5, -1}) {
    test::expect_error(Error::Kind::data,
        {str("nll: label out of range: ", bad, " in row 2 of i32[3] cpu; 5 classes are 0..4")},
        [&] {
          nll(Tensor::zeros({3, 5}), Tensor::from<int32_t>({0, 4, bad}, {3}));
        });
  }
}

TEST(CrossEntropy, RefusesByItsOwnNameAndNamesEveryTypeThatWorks) {
  const Tensor logits = sample_tensor({3, 5}, 1);
  test::expect_error(Error::Kind::dtype,
      {"cross_entropy: wrong element type: logits is f64[3, 5] cpu, labels is f32[3] cpu; it must "
       "be i32 or i64",
          "hint: cast(labels, DType::i32)"},
      [&] { cross_entropy(logits, Tensor::zeros({3})); });
  test::expect_error(Error::Kind::shape, {"cross_entropy: wrong rank: labels is f64[3, 5]"},
      [&] { cross_entropy(logits, logits); });
  test::expect_error(Error::Kind::shape,
      {"cross_entropy: wrong rank: scores are f64[2, 3, 5] cpu, labels i32[2, 3] cpu",
          "hint: reshape(scores, {-1, C})"},
      [&] {
        cross_entropy(sample_tensor({2, 3, 5}, 1), Tensor::zeros({2, 3}, DType::i32));
      });
  test::expect_error(Error::Kind::data, {"label out of range: -100", "hint: an ignore_index"},
      [&] { cross_entropy(logits, Tensor::full({3}, -100, DType::i32)); });
  test::expect_error(Error::Kind::dtype, {"nll: wrong element type", "i32 or i64"},
      [&] { nll(logits, Tensor::zeros({3})); });
  const Tensor labels = Tensor::from<int32_t>({0, 4, 1}, {3});
  EXPECT_EQ(cross_entropy(logits, cast(labels, DType::i64)).to_vector<double>(),
      cross_entropy(logits, labels).to_vector<double>());
}

TEST(Mse, KnownValuesAndGradient) {
  Tensor x = Tensor::from({1, 2, 3, 5}, {2, 2}).set_requires_grad(true),
         t = Tensor::from({1, 4, 0, 5}, {2, 2}).set_requires_grad(true);
  const Tensor loss = mse(x, t);
  EXPECT_EQ(loss.to_vector<float>(), (std::vector<float>{2, 4.5}));
  backward(loss);
  EXPECT_EQ(x.grad().to_vector<float>(), (std::vector<float>{0, -1, 1.5, 0}));
  EXPECT_EQ(t.grad().to_vector<float>(), (std::vector<float>{0, 1, -1.5, 0}));
}

}  // namespace
}  // namespace sinter
