// pow, elu and relu against the C library in f64: special points, random points, gradients, all
// types.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "autograd/autograd.h"
#include "ops/ops.h"
#include "ops/pointwise/pointwise.h"
#include "tests/closeness.h"

namespace sinter {
namespace {

constexpr Device kAccuracySimt{Device::Type::simt, 0};
constexpr double kInfinite = std::numeric_limits<double>::infinity(),
                 kNotANumber = std::numeric_limits<double>::quiet_NaN();

// The distance of neighbours near x in a type of so many bits, and of that least exponent.
double accuracy_ulp(double x, DType dtype) {
  const int bits = dtype == DType::f64 ? 53 : dtype == DType::f32 ? 24 : 8;
  const int least = dtype == DType::f64 ? -1074 : dtype == DType::f32 ? -149 : -133;
  int exponent;
  std::frexp(x, &exponent);
  return std::ldexp(1.0, std::max(exponent - bits, least));
}
double rounded_to(double x, DType dtype) {
  return dtype == DType::f64 ? x : dtype == DType::f32 ? float(x) : float(bf16(float(x)));
}

// Results of an op and the exact ones: `ulps` of the type apart, the signs of zeros equal.
void expect_ulps(const Tensor& got, std::vector<double> exact, double ulps, const char* what) {
  const std::vector<double> values = got.to_vector<double>();
  std::vector<double> bound;
  for (size_t i = 0; i < exact.size(); ++i) {
    bound.push_back(ulps * accuracy_ulp(exact[i], got.dtype()));
    if (std::isinf(rounded_to(exact[i], got.dtype()))) exact[i] = rounded_to(exact[i], got.dtype());
    if (exact[i] == 0) {
      EXPECT_EQ(std::signbit(values[i]), std::signbit(exact[i])) << what << i;
    }
  }
  EXPECT_TRUE(test::close(values, exact, {.each = bound, .same_nan = true}))
      << what << " " << got.describe();
}

struct ExactFunction {
  std::string name;
  std::function<Tensor(const Tensor&)> op;
  std::function<double(double)> value, slope;
};

// What a type stores of the points; those beyond the results' normal range are left out of the
// gradient, whose three factors round one by one.
void check_at(
    const ExactFunction& f, const std::vector<double>& points, DType dtype, Device device) {
  const Tensor at = cast(Tensor::from(points, {int64_t(points.size())}), dtype);
  const std::vector<double> stored = at.to_vector<double>();
  Tensor x = at.to(device).set_requires_grad(true);
  const Tensor y = f.op(x);
  backward(y, {.gradient = Tensor::full(x.shape(), 0.75, dtype, device)});
  std::vector<double> values, slopes;
  for (const double v : stored) {
    values.push_back(f.value(v));
    slopes.push_back(0.75 * f.slope(v));
  }
  // bf16 rounds what is right to 2 ulp of f32 (x^3: two roundings), then: 2 * 2^-16 of its ulp.
  const double last = dtype == DType::bf16 ? 0.5 : 0, one = dtype == DType::bf16 ? 0x1p-16 : 1;
  const std::string what = str(f.name, " on ", device.str());
  expect_ulps(y, values, last + 2 * one, (what + ": ").c_str());
  expect_ulps(x.grad(), slopes, last + 4 * one, (what + ", gradient: ").c_str());
}

std::vector<double> points_between(double low, double high) {
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> uniform(low, high);
  std::vector<double> points(61);
  for (double& p : points) p = uniform(random);
  return points;
}

void check_accuracy(const ExactFunction& f, const std::vector<double>& special,
    const std::vector<double>& random, Device device) {
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
    check_at(f, special, dtype, device);
    check_at(f, random, dtype, device);
  }
}

void check_pow(Device device) {
  for (const double e : {-kInfinite, -20.0, -2.5, -2.0, -1.0, -0.5, -0.0, 0.0, 0.5, 1.0, 1.5, 2.0,
           2.75, 3.0, 4.0, 7.0, 20.0, kInfinite, kNotANumber}) {
    const auto power = [e](double x) { return std::pow(x, e); };
    const auto slope = [e](double x) { return e == 0 ? 0 : e * std::pow(x, e - 1); };
    check_accuracy({str("pow ", e), [e](const Tensor& x) { return pow(x, e); }, power, slope},
        {0.0, -0.0, 1.0, -1.0, kInfinite, -kInfinite, kNotANumber, 2.0, -2.0, 0.5, -0.5, 3.0, -3.0},
        points_between(-6, 6), device);
  }
}
TEST(UnaryAccuracy, PowIsCs) { check_pow(kCpu); }
TEST(UnaryAccuracySimt, PowIsCs) { check_pow(kAccuracySimt); }

// The exponent is rounded to the type in which the op computes, as PyTorch's; that of the gradient
// is not rounded again.
void check_exponent(Device device) {
  const auto of = [&](double e) {
    return ExactFunction{str("pow ", e), [e](const Tensor& x) { return pow(x, e); },
        [e](double x) { return std::pow(x, double(float(e))); },
        [e](double x) { return float(e) * std::pow(x, double(float(e)) - 1); }};
  };
  check_at(of(0.1), {1e-30, 1e-3, 0.5, 2.0, 1e10, 1e30}, DType::f32, device);
  check_at(of(-0.3), {1e-28, 1e-3, 0.5, 2.0, 1e10, 1e20}, DType::f32, device);
}
TEST(UnaryAccuracy, AnExponentThatIsNoFloat) { check_exponent(kCpu); }
TEST(UnaryAccuracySimt, AnExponentThatIsNoFloat) { check_exponent(kAccuracySimt); }

void check_elu(Device device) {
  std::vector<double> small;
  for (int k = -140; k < 7; ++k) small.push_back(-std::ldexp(1.0, k));
  const ExactFunction f{"elu", [](const Tensor& x) { return elu(x, 2); },
      [](double x) { return x > 0 ? x : 2 * std::expm1(x); },
      [](double x) { return x > 0 ? 1 : 2 * std::exp(x); }};
  check_accuracy(f,
      {0.0, -0.0, 1.0, -1.0, kInfinite, -kInfinite, kNotANumber, 1e-7, -1e-7, -1e-3, -88.0, -104.0},
      points_between(-6, 6), device);
  check_at(f, small, DType::f32, device);
}
TEST(UnaryAccuracy, EluIsExpm1) { check_elu(kCpu); }
TEST(UnaryAccuracySimt, EluIsExpm1) { check_elu(kAccuracySimt); }

// Backward reads y: it must let pass what it would by x, down to the least number of each type.
void check_relu(Device device) {
  std::vector<double> special{kNotANumber, 0.0, -0.0, kInfinite, -kInfinite};
  for (const int k : {-1074, -1022, -149, -133, -126, 0, 100})
    special.insert(special.end(), {std::ldexp(1.0, k), -std::ldexp(1.0, k)});
  check_accuracy(
      {"relu", [](const Tensor& x) { return relu(x); }, [](double x) { return x <= 0 ? 0 : x; },
          [](double x) { return x <= 0 ? 0 : 1; }},
      special, points_between(-6, 6), device);
}
TEST(UnaryAccuracy, ReluByYIsReluByX) { check_relu(kCpu); }
TEST(UnaryAccuracySimt, ReluByYIsReluByX) { check_relu(kAccuracySimt); }

}  // namespace
}  // namespace sinter
