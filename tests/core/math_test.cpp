#include "core/math.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "tests/test_util.h"

namespace sinter {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Function {
  const char* name;
  float (*ours)(float);
  double (*oracle)(double);
};
const Function kFunctions[] = {
    {"exp", [](float x) { return math::exp(x); }, [](double x) { return std::exp(x); }},
    {"expm1", [](float x) { return math::expm1(x); }, [](double x) { return std::expm1(x); }},
    {"log", [](float x) { return math::log(x); }, [](double x) { return std::log(x); }},
    {"tanh", [](float x) { return math::tanh(x); }, [](double x) { return std::tanh(x); }},
};

// Distance of `value` from `exact` in units in the last place of a float near it; 0 where both
// round to the same inf, NaN or signed zero.
double ulps(float value, double exact) {
  const float rounded = float(exact);
  if (std::isnan(exact) || std::isnan(value))
    return std::isnan(exact) == std::isnan(value) ? 0.0 : 1e9;
  if (std::isinf(rounded) || rounded == 0.0f)
    return value == rounded && std::signbit(value) == std::signbit(rounded) ? 0.0 : 1e9;
  int exponent;
  std::frexp(exact, &exponent);
  return std::fabs(value - exact) / std::ldexp(1.0, std::max(exponent - 24, -149));
}

TEST(Math, ErrorIsAtMostTwoUlpOverAllFloats) {
  // Under a sanitizer fewer of them: it looks at how, not at how well.
  constexpr uint64_t kStep = test::kSanitized ? 100003 : 1009, kFloats = uint64_t{1} << 32;
  for (const Function& f : kFunctions) {
    float worst_at = 0;
    double worst = 0;
    for (uint64_t u = 0; u < kFloats; u += kStep) {
      const float x = math::from_bits(uint32_t(u));
      const double error = ulps(f.ours(x), f.oracle(x));
      if (error > worst) {
        worst = error;
        worst_at = x;
      }
    }
    EXPECT_LE(worst, 2.0) << f.name << " at " << worst_at;
  }
}

// 2 ulp above 0. The tail below it has 8, of its series, and x^2: x^2 / 2 is rounded by half an ulp
// of its own, which the power makes a share of the result, twice its ulp where the result is near
// one.
TEST(Math, NormalDistribution) {
  constexpr uint64_t kStep = test::kSanitized ? 100003 : 1009, kFloats = uint64_t{1} << 32;
  float worst_at = 0;
  double worst = 0;
  for (uint64_t u = 0; u < kFloats; u += kStep) {
    const float x = math::from_bits(uint32_t(u));
    const double exact = 0.5 * std::erfc(-double(x) * std::sqrt(0.5)),
                 error = x < -14.1f ? 1e9 * (math::normal_cdf(x) > 6e-45f)  // or 0
                                    : ulps(math::normal_cdf(x), exact),
                 share = error / (x < 0 ? 8 + double(x) * x : 2);
    if (share > worst) {
      worst = share;
      worst_at = x;
    }
  }
  EXPECT_LE(worst, 1.0) << worst_at;
  EXPECT_EQ(math::normal_cdf(0.0f), 0.5f);
  EXPECT_EQ(math::normal_cdf(kInf), 1.0f);
  for (const float x : {-kInf, -3.4e38f, -15.0f}) EXPECT_EQ(math::normal_cdf(x), 0.0f) << x;
  EXPECT_TRUE(std::isnan(math::normal_cdf(kNan)));
}

TEST(Math, ExpBelow0HasTheBitsOfExp) {
  constexpr uint64_t kStep = test::kSanitized ? 100003 : 1009;
  for (uint64_t u = 0x80000000u; u <= 0xff800000u; u += kStep) {
    const float x = math::from_bits(uint32_t(u));
    ASSERT_EQ(math::to_bits(math::exp_below_0(x)), math::to_bits(math::exp(x))) << x;
  }
  EXPECT_EQ(math::exp_below_0(0.0f), 1.0f);
  for (const float x : {-kInf, kNan, -kNan, -3.4e38f}) EXPECT_EQ(math::exp_below_0(x), 0.0f) << x;
}

TEST(Math, SpecialValues) {
  for (const Function& f : kFunctions) {
    for (const float x : {0.0f, -0.0f, 1.0f, -1.0f, kInf, -kInf, kNan, -kNan, 1e-45f, -1e-45f,
             1e-40f, 1.17549435e-38f, 3.4e38f, -3.4e38f, 88.72283f, 88.72284f, -87.33655f,
             -103.2789f, -103.97208f, -103.97209f, 0.6f, 0.9f, 4.0f, 9.01f, 9.02f})
      EXPECT_LE(ulps(f.ours(x), f.oracle(x)), 2.0) << f.name << "(" << x << ") is " << f.ours(x);
  }
  EXPECT_TRUE(std::isnan(math::log(-1.0f)));
  EXPECT_EQ(math::log(0.0f), -kInf);
  EXPECT_EQ(math::exp(89.0f), kInf);
  EXPECT_EQ(math::exp(-104.0f), 0.0f);
}

TEST(Math, PowIsCs) {
  for (const float x : {0.0f, 1e-45f, 1e-40f, 1.17549435e-38f, 0.1f, 0.5f, 0.99999994f, 1.0f,
           1.0000001f, 2.0f, 3.0f, 7.5f, 3.4e38f, kInf, kNan}) {
    for (const double e :
        {0.0, 1e-8, 1.0 / 3, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 20.0, 127.0, 128.0, 149.0, 150.0,
            1e8, 1e8 + 1, 0x1p53 - 1, 0x1p53, 1e16, 1e300, double(kInf), double(kNan)}) {
      for (const auto& [base, exponent] : {std::pair{x, e}, {x, -e}, {-x, e}, {-x, -e}}) {
        const float ours = math::pow(base, exponent);
        EXPECT_LE(ulps(ours, std::pow(double(base), exponent)), 1.0)
            << "pow(" << base << ", " << exponent << ") is " << ours;
      }
    }
  }
  std::mt19937_64 random(1);
  std::uniform_real_distribution<double> log_of_result(-104, 89), exponent(-40, 40);
  for (int i = 0; i < 1'000'000; ++i) {
    const float x = math::from_bits(uint32_t(random()) & 0x7fffffffu);
    double e = exponent(random);
    if (i % 3 == 0) e = std::round(e);
    if (i % 3 == 1) e = log_of_result(random) / std::log(double(x));
    ASSERT_LE(ulps(math::pow(x, e), std::pow(double(x), e)), 0.51) << x << " ^ " << e;
  }
}

// A vectorised loop, its scalar tail and a single call give the same bits.
TEST(Math, SameBitsInEveryLoop) {
  std::vector<float> x(1003), y(x.size());
  for (size_t i = 0; i < x.size(); ++i) x[i] = (float(i) - 400.0f) * 0.037f;
  const auto check = [&](const char* name, auto f) {
    for (size_t i = 0; i < x.size(); ++i) y[i] = f(x[i]);
    for (size_t i = 0; i < x.size(); ++i) {
      volatile float single = x[i];
      const float alone = f(single);
      if (std::isnan(alone)) continue;
      ASSERT_EQ(math::to_bits(y[i]), math::to_bits(alone)) << name << "(" << x[i] << ")";
    }
  };
  check("exp", [](float v) { return math::exp(v); });
  check("expm1", [](float v) { return math::expm1(v); });
  check("log", [](float v) { return math::log(v); });
  check("pow", [](float v) { return math::pow(v, 2.7); });
  check("tanh", [](float v) { return math::tanh(v); });
  check("normal_cdf", [](float v) { return math::normal_cdf(v); });
}

TEST(Math, DoubleIsTheLibrarys) {
  for (const double x : {0.1, 0.7, 2.5}) {
    EXPECT_EQ(math::exp(x), std::exp(x));
    EXPECT_EQ(math::expm1(x), std::expm1(x));
    EXPECT_EQ(math::log(x), std::log(x));
    EXPECT_EQ(math::pow(x, 2.7), std::pow(x, 2.7));
    EXPECT_EQ(math::tanh(x), std::tanh(x));
    EXPECT_EQ(math::normal_cdf(x), 0.5 * std::erfc(-std::sqrt(0.5) * x));
  }
}

TEST(Math, SmallHelpers) {
  EXPECT_EQ(math::abs(-2.5f), 2.5f);
  EXPECT_FALSE(std::signbit(math::abs(-0.0f)));
  EXPECT_EQ(math::copy_sign(3.0f, -0.0f), -3.0f);
  EXPECT_EQ(math::sqrt(2.25f), 1.5f);
  EXPECT_EQ(math::mul_add(2.0f, 3.0f, 4.0f), 10.0f);
  EXPECT_EQ(math::mul_add(2.0, 3.0, 4.0), 10.0);
#if defined(__FMA__)
  const float e = 0x1p-12f;  // (1 + e)^2 - (1 + 2e) is e^2, which only one rounding keeps
  EXPECT_EQ(math::mul_add(1.0f + e, 1.0f + e, -(1.0f + 2 * e)), e * e);
#endif
}

}  // namespace
}  // namespace sinter
