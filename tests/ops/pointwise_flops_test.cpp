// The FLOPs that pointwise structs state, against a count: forward and grad are called with a
// number that counts what is done to it. Add, multiply, divide, compare, negate, exp, log and sqrt
// count 1.
#include "core/math.h"

namespace sinter {

struct Counted {
  double value = 0;
  static inline int count = 0;
  Counted() = default;
  explicit constexpr Counted(double v) : value(v) {}
  explicit operator double() const { return value; }
  static Counted one(double v) {
    ++count;
    return Counted(v);
  }
  Counted operator-() const { return one(-value); }
  friend Counted operator+(Counted a, Counted b) { return one(a.value + b.value); }
  friend Counted operator-(Counted a, Counted b) { return one(a.value - b.value); }
  friend Counted operator*(Counted a, Counted b) { return one(a.value * b.value); }
  friend Counted operator/(Counted a, Counted b) { return one(a.value / b.value); }
  friend bool operator<(Counted a, Counted b) { return ++count, a.value < b.value; }
  friend bool operator<=(Counted a, Counted b) { return ++count, a.value <= b.value; }
  friend bool operator>(Counted a, Counted b) { return ++count, a.value > b.value; }
  friend bool operator==(Counted a, Counted b) { return ++count, a.value == b.value; }
  friend bool operator!=(Counted a, Counted b) { return ++count, a.value != b.value; }
};

}  // namespace sinter

// Before the structs, which name these functions in full.
namespace sinter::math {
#define SINTER_COUNTED(name, flops)       \
  inline Counted name(Counted x) {        \
    Counted::count += flops;              \
    return Counted(std::name(double(x))); \
  }
SINTER_COUNTED(exp, 1)
SINTER_COUNTED(log, 1)
SINTER_COUNTED(sqrt, 1)
SINTER_COUNTED(abs, 1)
SINTER_COUNTED(expm1, 2)  // e^x - 1
SINTER_COUNTED(tanh, 5)   // (e - 1) / (e + 1), e = e^2x
#undef SINTER_COUNTED
inline Counted exp_below_0(Counted x) { return exp(x); }
inline Counted inverse_of_1_to_2(Counted x) { return Counted(1) / x; }
inline Counted normal_cdf(Counted x) {  // (1 + erf(x / sqrt 2)) / 2: an exp and a short series
  Counted::count += 7;
  return Counted(0.5 * std::erfc(-std::sqrt(0.5) * double(x)));
}
inline Counted pow(Counted x, double e) {  // e^(e log x)
  Counted::count += 3;
  return Counted(std::pow(double(x), e));
}
}  // namespace sinter::math

#include <gtest/gtest.h>

#include <algorithm>
#include <string_view>
#include <tuple>

#include "ops/pointwise/pointwise.h"

namespace sinter::pointwise {
namespace {

// Where a struct states less, or more, than is done: forward, backward.
struct Less {
  int forward = 0, backward = 0;
};
Less less_of(std::string_view name) {
  if (name == "maximum") return {1, 1};   // the questions for NaN and for a tie
  if (name == "softplus") return {6, 0};  // Kahan's correction, and the question for NaN
  if (name == "silu") return {0, 1};      // a sign, as also
  if (name == "abs") return {1, 0};
  if (name == "gelu_tanh") return {1, 2};  // and the product of the side below 0
  if (name == "eq" || name == "lt" || name == "le") return {0, -1};  // zeros are stored
  return {};
}

// The most over operands of both signs: one branch of a leaky_relu multiplies.
template <size_t... I, class F> int count_of(std::index_sequence<I...>, const F& f) {
  int most = 0;
  for (const double sign : {1.0, -1.0}) {
    Counted::count = 0;
    f(Counted(sign * (0.7 + 0.1 * double(I)))...);
    most = std::max(most, Counted::count);
  }
  return most;
}
template <class Op> void expect_counted(Op op) {
  SCOPED_TRACE(Op::name);
  if constexpr (kHasNumber<Op>) op.*Op::number() = 2.5;  // no exponent with a shortcut
  const int forward =
      count_of(std::make_index_sequence<Op::arity>(), [&](auto... x) { op.forward(x...); });
  const int backward =
      count_of(std::make_index_sequence<1 + kSavedValues<Op>>(), [&](auto... x) { op.grad(x...); });
  const Less less = less_of(Op::name);
  EXPECT_EQ(Op::flops, forward - less.forward);
  EXPECT_EQ(Op::backward_flops, backward - less.backward);
}

TEST(PointwiseFlops, AreThoseOfTheFormulas) {
  std::apply([](const auto&... op) { (expect_counted(op), ...); }, List{});
}

}  // namespace
}  // namespace sinter::pointwise
