// exp, expm1, log, pow, tanh, Phi of one scalar, for the CPU's loops and for CUDA kernels: the same
// bits on every device and in every loop. The float forms are branch-free polynomials of + - * /,
// selects and bit casts (no libm, no fused multiply-add), so that a plain loop over them
// vectorises; they are right for NaN, infinities, signed zeros and denormals. The double forms are
// the C library's. Errors over all 2^32 floats against double, in ulp: exp 0.99, expm1 1.58, log
// 0.85, tanh 1.34; of pow over 30 million pairs: 0.51. Coefficients: minimax fits
// (Lawson's reweighted least squares on 400 Chebyshev nodes), rounded to float from the lowest
// upwards, the rest fitted again after each rounding. Needs contraction off: -ffp-contract=off, or
// --fmad=false for nvcc.
#pragma once

#include <cmath>
#include <cstdint>

#include "core/device/side.h"

namespace sinter::math {

SINTER_FN uint32_t to_bits(float x) { return __builtin_bit_cast(uint32_t, x); }
SINTER_FN float from_bits(uint32_t u) { return __builtin_bit_cast(float, u); }

// a * b + c with one rounding where the hardware has that, else with two: for sums whose bits need
// not agree between devices.
SINTER_FN float mul_add(float a, float b, float c) {
#if SINTER_FUSES_MULTIPLY_ADD
  return ::fmaf(a, b, c);
#else
  return a * b + c;
#endif
}
SINTER_FN double mul_add(double a, double b, double c) {
#if SINTER_FUSES_MULTIPLY_ADD
  return ::fma(a, b, c);
#else
  return a * b + c;
#endif
}

SINTER_FN float abs(float x) { return from_bits(to_bits(x) & 0x7fffffffu); }
SINTER_FN double abs(double x) { return std::fabs(x); }
SINTER_FN float copy_sign(float magnitude, float sign) {
  return from_bits((to_bits(magnitude) & 0x7fffffffu) | (to_bits(sign) & 0x80000000u));
}
// NaN in either operand gives NaN, unlike fmaxf.
template <class T> SINTER_FN T max_or_nan(T a, T b) { return b > a || b != b ? b : a; }
SINTER_FN float sqrt(float x) { return std::sqrt(x); }
SINTER_FN double sqrt(double x) { return std::sqrt(x); }

inline constexpr float kLog2e = 1.44269504f;
inline constexpr float kLn2High =
    0.693145752f;  // 16 bits, so that its product with an exponent is exact
inline constexpr float kLn2Low = 1.42860677e-6f;

SINTER_FN double exp(double x) { return std::exp(x); }
SINTER_FN double expm1(double x) { return std::expm1(x); }
SINTER_FN double log(double x) { return std::log(x); }
SINTER_FN double pow(double x, double e) { return std::pow(x, e); }
SINTER_FN double tanh(double x) { return std::tanh(x); }
SINTER_FN double normal_cdf(double x) { return 0.5 * std::erfc(-0.70710678118654752440 * x); }

// e^x = (1 + p) * low * high; the two powers of 2 are normal numbers, so that only the result
// overflows or becomes denormal. x = n ln 2 + r with |r| <= ln(2) / 2; exp(r) = 1 + p = 1 + r + r^2
// q(r), |error| <= 2^-28.2.
SINTER_FN float exp_series(float r) {
  const float q =
      (((0.001382011f * r + 0.008368685f) * r + 0.041668274f) * r + 0.16666521f) * r + 0.49999994f;
  return r + r * r * q;
}
struct ExpParts {
  float p, low, high;
};
SINTER_FN ExpParts exp_parts(float x) {
  x = x > 110.0f ? 110.0f : x;  // beyond either bound the result is inf or 0 anyway; NaN passes
  x = x < -110.0f ? -110.0f : x;
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: the sum's low bits are the nearest integer
  const float shifted = x * kLog2e + kRound;
  const float n = shifted - kRound;
  const float r = (x - n * kLn2High) - n * kLn2Low;
  const uint32_t exponent = to_bits(shifted) - to_bits(kRound);
  const uint32_t half = static_cast<uint32_t>(static_cast<int32_t>(exponent) >> 1);
  return {exp_series(r), from_bits((half + 127u) << 23), from_bits((exponent - half + 127u) << 23)};
}
SINTER_FN float exp(float x) {
  const ExpParts e = exp_parts(x);
  return (1.0f + e.p) * e.low * e.high;
}
// exp(x) for x <= 0, the same bits in fewer operations: (1 + p) 2^(n + 64) is a normal number,
// whose exponent is added to that of 1 + p, as the sum's low bits, n + 64, are all that the shift
// leaves. NaN counts as -inf.
SINTER_FN double exp_below_0(double x) { return x > -1e3 ? exp(x) : 0; }
SINTER_FN float exp_below_0(float x) {
  x = x > -110.0f ? x : -110.0f;
  constexpr float kRound = 12582976.0f;  // 1.5 * 2^23 + 64
  const float shifted = x * kLog2e + kRound, n = shifted - kRound;
  const float power = 1.0f + exp_series((x - n * kLn2High) - n * kLn2Low);
  return from_bits(to_bits(power) + (to_bits(shifted) << 23)) * 5.42101086e-20f;  // 2^-64
}
// 1 / x for 1 <= x <= 2.
SINTER_FN double inverse_of_1_to_2(double x) { return 1 / x; }
SINTER_FN float inverse_of_1_to_2(float x) { return sinter::inverse_of_1_to_2(x); }
// Where e^x is near 1, p is the result; 1 + p would round it to the ulp of 1.
SINTER_FN float expm1(float x) {
  const ExpParts e = exp_parts(x);
  const float power = e.low * e.high;
  const float large = (1.0f + e.p) * e.low * e.high;  // where 1 is less than an ulp
  return copy_sign(x > 20.0f ? large : (power - 1.0f) + power * e.p, x);  // so that -0 stays -0
}

// x = 2^k (1 + f) with sqrt(1/2) <= 1 + f < sqrt(2), where x is positive and finite.
struct LogParts {
  float k, f;
};
SINTER_FN LogParts log_parts(float x) {
  constexpr uint32_t kSqrtHalf = 0x3f3504f3u;
  const bool denormal = x < 1.17549435e-38f;
  const uint32_t bits = to_bits(denormal ? x * 8388608.0f : x) - kSqrtHalf;
  return {static_cast<float>(static_cast<int32_t>(bits) >> 23) - (denormal ? 23.0f : 0.0f),
      from_bits((bits & 0x007fffffu) + kSqrtHalf) - 1.0f};
}
// With s = f / (2 + f): log(1 + f) = f - (f^2/2 - s (f^2/2 + R(s^2))), |error| <= 2^-29 s.
SINTER_FN float log(float x) {
  const auto [k, f] = log_parts(x);
  const float s = f / (2.0f + f);
  const float z = s * s;
  const float half_square = 0.5f * f * f;
  const float series = z * ((0.2987146f * z + 0.39977568f) * z + 0.66666776f);
  float y = k * kLn2High - ((half_square - (s * (half_square + series) + k * kLn2Low)) - f);
  const float kInf = from_bits(0x7f800000u);
  y = x == 0.0f ? -kInf : y;
  y = x < 0.0f ? from_bits(0x7fc00000u) : y;
  return x < kInf ? y : x;
}

// |x|^e, in double: a float cannot hold e log|x|, of which the result wants 25 bits behind the
// point. The series end where the next term is below 2^-39 of log|x| (2^-32 of any e log|x| whose
// power is finite) and 2^-31 of the power.
SINTER_FN float pow_of_magnitude(float x, double e) {
  constexpr double kLn2 = 0.69314718055994530942;
  const float a = abs(x);
  const LogParts parts = log_parts(a);
  const double f = parts.f;
  const double s = f / (2.0 + f), z = s * s;  // log(1 + f) = 2 atanh(s)
  double series = 1.0 / 13;
  series = series * z + 1.0 / 11;
  series = series * z + 1.0 / 9;
  series = series * z + 1.0 / 7;
  series = series * z + 1.0 / 5;
  series = series * z + 1.0 / 3;
  double y = e * (parts.k * kLn2 + 2 * (s + s * z * series));
  const float kInf = from_bits(0x7f800000u);
  y = a == 0.0f ? -e * kInf : y;
  y = a < kInf ? y : e * a;           // inf, NaN
  y = a == 1.0f && e == e ? 0.0 : y;  // for e = inf, too
  y = y > 150.0 ? 150.0 : y;  // beyond either bound the result is inf or 0 anyway; NaN passes
  y = y < -150.0 ? -150.0 : y;
  constexpr double kRound = 6755399441055744.0;  // 1.5 * 2^52: the low bits are the nearest integer
  const double shifted = y * (1 / kLn2) + kRound;
  const double r = y - (shifted - kRound) * kLn2;
  double p = 1.0 / 40320;
  p = p * r + 1.0 / 5040;
  p = p * r + 1.0 / 720;
  p = p * r + 1.0 / 120;
  p = p * r + 1.0 / 24;
  p = p * r + 1.0 / 6;
  p = p * r + 0.5;
  p = p * r + 1.0;
  p = p * r + 1.0;
  const uint64_t n = __builtin_bit_cast(uint64_t, shifted) << 52;
  return static_cast<float>(p * __builtin_bit_cast(double, n + 0x3ff0000000000000u));
}

// C's pow: 1 if e is 0 or x is 1, even beside NaN; the sign of x if e is odd; NaN for a finite x <
// 0 and an e that is not whole.
SINTER_FN float pow(float x, double e) {
  const bool even_or_inf = !(e > -9007199254740992.0 && e < 9007199254740992.0);  // 2^53, or NaN
  const int64_t integer = even_or_inf ? 0 : static_cast<int64_t>(e);
  const bool whole = even_or_inf || e == static_cast<double>(integer);
  const float magnitude = pow_of_magnitude(x, e);
  float y = whole && integer % 2 != 0 ? copy_sign(magnitude, x) : magnitude;
  y = x < 0.0f && x > from_bits(0xff800000u) && !whole ? from_bits(0x7fc00000u) : y;
  return e == 0 || x == 1.0f ? 1.0f : y;
}

// Below 0.6 x + x^3 P(x^2), |error| <= 2^-28.4; above 1 - 2 / (exp(2x) + 1).
SINTER_FN float tanh(float x) {
  const float a = abs(x);
  const float z = x * x;
  const float p =
      (((-0.005896692f * z + 0.020797933f) * z - 0.053784627f) * z + 0.13331936f) * z - 0.333333f;
  const float small = a + a * z * p;
  const float large = 1.0f - 2.0f / (exp(a + a) + 1.0f);
  return copy_sign(a < 0.6f ? small : large, x);  // so that -0 stays -0
}

// The standard normal distribution, Phi(x) = (1 + erf(x / sqrt 2)) / 2. Below 1.2 1/2 + x P(x^2),
// |error| <= 2^-29; above the tail is e^(-x^2/2) G(t), t = 1 / (1 + p |x|): 2^-23 near 1.2 and
// 2^-22 far out, relative, beside what the rounding of x^2/2 makes of the power.
SINTER_FN float normal_cdf(float x) {
  const float z = x * x;
  const float p =
      ((((-6.7366477e-06f * z + 0.00011066386f) * z - 0.0011831498f) * z + 0.009971746f) * z -
          0.06649004f) *
          z +
      0.39894226f;
  const float a = abs(x);
  const float t = 1.0f / (1.0f + 0.49705127f * a);
  const float g =
      (((((0.119102746f * t - 0.307323f) * t + 0.17148404f) * t + 0.11676091f) * t + 0.20335828f) *
              t +
          0.197873f) *
          t +
      1.453012e-05f;
  const float tail = exp_below_0(-0.5f * x * x) * g;
  const float far = x < 0.0f ? tail : 1.0f - tail;
  return a < 1.2f ? 0.5f + x * p : far;
}

}  // namespace sinter::math
