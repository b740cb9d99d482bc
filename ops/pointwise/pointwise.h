// Every pointwise op of Sinter: one struct each. From the lists at the end follow the CPU loop, the
// backward kernel, the cost, the building block of fused chains, gradcheck, device parity and the
// row in the documents; of an activation also its layer and its place in fused ops. A struct, its
// row and its public name in ops/ops.h are all it takes (a program's own: examples/08_new_op.cpp).
//
// A struct is also the op's attribute type: its data members are the attributes. It gives
//   forward(x..)              the formula, once, for float and double (bf16 computes in float)
//   Facts, in its first line  saves: what backward reads; flops, backward_flops: per element; add,
//                             multiply, compare, exp, log count 1
//   grad(dy, ..)              one partial derivative per input times dy, by what is saved:
//                               inputs: grad(dy, x..)   output: grad(dy, y)   nothing: grad(dy)
//   low, high                 range of test inputs (away from kinks and poles)
//   SINTER_FORMULA            y and the gradients, in a line each, for readers; may be left out
//   SINTER_POINTWISE          its names, and its data members
// An op with a number is a template over the number's type and says which member it is (ScaleOf):
// attributes hold it as a double, kernels in the type they compute in. Formulas use + - * / and
// core/math.h only, without contraction: the same bits on every device.
#pragma once

#include <array>
#include <tuple>

#include "core/math.h"
#include "ops/attrs.h"
#include "ops/formula.h"

namespace sinter::pointwise {

enum class Saves { unsaid, nothing, inputs, output };

// What y is, and its gradients, for readers.
#define SINTER_FORMULA(y, gradients)    \
  static constexpr Formula formula = y; \
  static constexpr Formula backward_formula = gradients;

// What the first line of a struct says.
struct Facts {
  Saves saves = Saves::unsaid;
  int flops = -1, backward_flops = -1;
};
template <int kArity, Facts kFacts> struct Nary {
  SINTER_FORMULA({}, {})
  static constexpr int arity = kArity, flops = kFacts.flops, backward_flops = kFacts.backward_flops;
  static constexpr bool has_condition = false;
  static constexpr Saves saves = kFacts.saves;
  static constexpr double low = -2, high = 2;
  bool operator==(const Nary&) const = default;
};
template <Facts kFacts> using Unary = Nary<1, kFacts>;
template <Facts kFacts> using Binary = Nary<2, kFacts>;
template <class T> using Two = std::array<T, 2>;

// The names of an op and of its backward, and its attributes.
#define SINTER_POINTWISE(Struct, text, ...)                       \
  static constexpr const char name[] = text;                      \
  static constexpr const char backward_name[] = text "_backward"; \
  SINTER_FIELDS(Struct, __VA_ARGS__)

struct Add : Binary<Facts{.saves = Saves::nothing, .flops = 1, .backward_flops = 0}> {
  SINTER_POINTWISE(Add, "add")
  SINTER_FORMULA("y = a + b", "da = dy, db = dy")
  template <class T> SINTER_FN T forward(T a, T b) const { return a + b; }
  template <class T> SINTER_FN Two<T> grad(T dy) const { return {dy, dy}; }
};

struct Sub : Binary<Facts{.saves = Saves::nothing, .flops = 1, .backward_flops = 1}> {
  SINTER_POINTWISE(Sub, "sub")
  SINTER_FORMULA("y = a - b", "da = dy, db = -dy")
  template <class T> SINTER_FN T forward(T a, T b) const { return a - b; }
  template <class T> SINTER_FN Two<T> grad(T dy) const { return {dy, -dy}; }
};

struct Mul : Binary<Facts{.saves = Saves::inputs, .flops = 1, .backward_flops = 2}> {
  SINTER_POINTWISE(Mul, "mul")
  SINTER_FORMULA("y = a b", "da = dy b, db = dy a")
  template <class T> SINTER_FN T forward(T a, T b) const { return a * b; }
  template <class T> SINTER_FN Two<T> grad(T dy, T a, T b) const { return {dy * b, dy * a}; }
};

struct Div : Binary<Facts{.saves = Saves::inputs, .flops = 1, .backward_flops = 4}> {
  static constexpr double low = 0.5, high = 2;
  SINTER_POINTWISE(Div, "div")
  SINTER_FORMULA("y = a / b", "da = dy / b, db = -dy a / b^2")
  template <class T> SINTER_FN T forward(T a, T b) const { return a / b; }
  template <class T> SINTER_FN Two<T> grad(T dy, T a, T b) const {
    const T da = dy / b;
    return {da, -da * (a / b)};
  }
};

// NaN in either operand gives NaN, and takes the gradient to both, as in PyTorch.
struct Maximum : Binary<Facts{.saves = Saves::inputs, .flops = 1, .backward_flops = 3}> {
  SINTER_POINTWISE(Maximum, "maximum")
  SINTER_FORMULA("y = max(a, b)", "da = 0 if a < b, db = 0 if b < a, half dy at ties, else dy")
  template <class T> SINTER_FN T forward(T a, T b) const { return a != a ? a : (b <= a ? a : b); }
  template <class T> SINTER_FN Two<T> grad(T dy, T a, T b) const {
    const T half = dy * T(0.5);  // no dy that goes nowhere is multiplied: 0 times inf is NaN
    return {a < b ? T(0) : (a == b ? half : dy), a > b ? T(0) : (a == b ? half : dy)};
  }
};

// condition, a, b; the condition is u8 and has no gradient
struct Where : Nary<3, Facts{.saves = Saves::inputs, .flops = 1, .backward_flops = 2}> {
  SINTER_POINTWISE(Where, "where")
  SINTER_FORMULA(
      "y = a where the condition holds, else b", "da = dy where it holds, db = dy elsewhere")
  static constexpr bool has_condition = true;
  template <class T> SINTER_FN T forward(T condition, T a, T b) const {
    return condition != T(0) ? a : b;
  }
  template <class T> SINTER_FN std::array<T, 3> grad(T dy, T condition, T, T) const {
    return {T(0), condition != T(0) ? dy : T(0), condition != T(0) ? T(0) : dy};
  }
};

struct Neg : Unary<Facts{.saves = Saves::nothing, .flops = 1, .backward_flops = 1}> {
  SINTER_POINTWISE(Neg, "neg")
  SINTER_FORMULA("y = -x", "dx = -dy")
  template <class T> SINTER_FN T forward(T x) const { return -x; }
  template <class T> SINTER_FN T grad(T dy) const { return -dy; }
};

template <class Number>
struct ScaleOf : Unary<Facts{.saves = Saves::nothing, .flops = 1, .backward_flops = 1}> {
  Number factor = Number(1);
  SINTER_POINTWISE(ScaleOf, "scale", factor)
  SINTER_FORMULA("y = factor x", "dx = factor dy")
  static constexpr auto number() { return &ScaleOf::factor; }
  template <class T> SINTER_FN T forward(T x) const { return x * T(factor); }
  template <class T> SINTER_FN T grad(T dy) const { return dy * T(factor); }
};
using Scale = ScaleOf<double>;

struct Abs : Unary<Facts{.saves = Saves::inputs, .flops = 1, .backward_flops = 2}> {
  SINTER_POINTWISE(Abs, "abs")
  SINTER_FORMULA("y = |x|", "dx = dy sign(x)")
  static constexpr double low = 0.1;
  template <class T> SINTER_FN T forward(T x) const {
    return x <= T(0) ? T(0) - x : x;
  }  // 0 for -0
  template <class T> SINTER_FN T grad(T dy, T x) const {
    return x < T(0) ? -dy : (x > T(0) ? dy : T(0));
  }
};

struct Exp : Unary<Facts{.saves = Saves::output, .flops = 1, .backward_flops = 1}> {
  SINTER_POINTWISE(Exp, "exp")
  SINTER_FORMULA("y = e^x", "dx = dy y")
  template <class T> SINTER_FN T forward(T x) const { return math::exp(x); }
  template <class T> SINTER_FN T grad(T dy, T y) const { return dy * y; }
};

struct Log : Unary<Facts{.saves = Saves::inputs, .flops = 1, .backward_flops = 1}> {
  static constexpr double low = 0.3, high = 3;
  SINTER_POINTWISE(Log, "log")
  SINTER_FORMULA("y = ln x", "dx = dy / x")
  template <class T> SINTER_FN T forward(T x) const { return math::log(x); }
  template <class T> SINTER_FN T grad(T dy, T x) const { return dy / x; }
};

struct Sqrt : Unary<Facts{.saves = Saves::output, .flops = 1, .backward_flops = 2}> {
  static constexpr double low = 0.3, high = 3;
  SINTER_POINTWISE(Sqrt, "sqrt")
  SINTER_FORMULA("y = sqrt(x)", "dx = dy / (2 y)")
  template <class T> SINTER_FN T forward(T x) const { return math::sqrt(x); }
  template <class T> SINTER_FN T grad(T dy, T y) const { return dy * T(0.5) / y; }
};

// x^exponent, as C's pow
template <class Number>
struct PowOf : Unary<Facts{.saves = Saves::inputs, .flops = 3, .backward_flops = 5}> {
  Number exponent = Number(2);
  SINTER_POINTWISE(PowOf, "pow", exponent)
  SINTER_FORMULA("y = x^n", "dx = dy n x^(n - 1)")
  static constexpr auto number() { return &PowOf::exponent; }
  static constexpr double low = 0.3;
  // First the exponents that need no logarithm. sqrt(x) is not pow(x, 0.5) at -inf and at -0.
  template <class T> static SINTER_FN T power(T x, double e) {
    if (e == 1) return x;
    if (e == 2) return x * x;
    if (e == 3) return x * x * x;
    if (e == 0.5) return x < T(-3.4e38) ? math::pow(x, e) : math::sqrt(x) + T(0);
    if (e == -1) return T(1) / x;
    if (e == 0) return T(1);
    return math::pow(x, e);
  }
  template <class T> SINTER_FN T forward(T x) const { return power(x, double(T(exponent))); }
  template <class T> SINTER_FN T grad(T dy, T x) const {
    const double e = double(T(exponent));
    return e == 0 ? T(0) : dy * T(e) * power(x, e - 1);
  }
};
using Pow = PowOf<double>;

// NaN stays NaN, as it does not compare <= 0. So y <= 0 exactly where x <= 0, and backward can read
// y, which the next layer mostly keeps for its own backward.
struct Relu : Unary<Facts{.saves = Saves::output, .flops = 1, .backward_flops = 1}> {
  SINTER_POINTWISE(Relu, "relu")
  SINTER_FORMULA("y = max(x, 0)", "dx = 0 where y <= 0, else dy")
  template <class T> SINTER_FN T forward(T x) const { return x <= T(0) ? T(0) : x; }
  template <class T> SINTER_FN T grad(T dy, T y) const { return y <= T(0) ? T(0) : dy; }
};

template <class Number>
struct LeakyReluOf : Unary<Facts{.saves = Saves::inputs, .flops = 2, .backward_flops = 2}> {
  Number slope = Number(0.01);
  SINTER_POINTWISE(LeakyReluOf, "leaky_relu", slope)
  SINTER_FORMULA("y = x where x > 0, else slope x", "dx = dy where x > 0, else slope dy")
  static constexpr auto number() { return &LeakyReluOf::slope; }
  template <class T> SINTER_FN T forward(T x) const { return x <= T(0) ? x * T(slope) : x; }
  template <class T> SINTER_FN T grad(T dy, T x) const { return x <= T(0) ? dy * T(slope) : dy; }
};
using LeakyRelu = LeakyReluOf<double>;

template <class Number>
struct EluOf : Unary<Facts{.saves = Saves::inputs, .flops = 4, .backward_flops = 4}> {
  Number alpha = Number(1);
  SINTER_POINTWISE(EluOf, "elu", alpha)
  SINTER_FORMULA(
      "y = x where x > 0, else alpha (e^x - 1)", "dx = dy where x > 0, else alpha dy e^x")
  static constexpr auto number() { return &EluOf::alpha; }
  template <class T> SINTER_FN T forward(T x) const {
    const T below = T(alpha) * math::expm1(x);
    return x > T(0) ? x : below;
  }
  template <class T> SINTER_FN T grad(T dy, T x) const {
    const T below = dy * T(alpha) * math::exp(x);
    return x > T(0) ? dy : below;
  }
};
using Elu = EluOf<double>;

struct Sigmoid : Unary<Facts{.saves = Saves::output, .flops = 4, .backward_flops = 3}> {
  SINTER_POINTWISE(Sigmoid, "sigmoid")
  SINTER_FORMULA("y = 1 / (1 + e^-x)", "dx = dy y (1 - y)")
  template <class T> static SINTER_FN T value(T x) { return T(1) / (T(1) + math::exp(-x)); }
  template <class T> SINTER_FN T forward(T x) const { return value(x); }
  template <class T> SINTER_FN T grad(T dy, T y) const { return dy * y * (T(1) - y); }
};

struct Tanh : Unary<Facts{.saves = Saves::output, .flops = 5, .backward_flops = 3}> {
  SINTER_POINTWISE(Tanh, "tanh")
  SINTER_FORMULA("y = tanh(x)", "dx = dy (1 - y^2)")
  template <class T> SINTER_FN T forward(T x) const { return math::tanh(x); }
  template <class T> SINTER_FN T grad(T dy, T y) const { return dy * (T(1) - y * y); }
};

// x sigmoid(x)
struct Silu : Unary<Facts{.saves = Saves::inputs, .flops = 5, .backward_flops = 8}> {
  SINTER_POINTWISE(Silu, "silu")
  SINTER_FORMULA("y = x s, s = 1 / (1 + e^-x)", "dx = dy s (1 + x (1 - s)), s = 1 / (1 + e^-x)")
  template <class T> SINTER_FN T forward(T x) const { return x * Sigmoid::value(x); }
  template <class T> SINTER_FN T grad(T dy, T x) const {
    const T s = Sigmoid::value(x);
    return dy * s * (T(1) + x * (T(1) - s));
  }
};

// log(1 + e^x) = max(x, 0) + log(1 + e^-|x|)
struct Softplus : Unary<Facts{.saves = Saves::inputs, .flops = 5, .backward_flops = 5}> {
  SINTER_POINTWISE(Softplus, "softplus")
  SINTER_FORMULA("y = ln(1 + e^x)", "dx = dy / (1 + e^-x)")
  template <class T> SINTER_FN T forward(T x) const {
    const T e = math::exp(x < T(0) ? x : -x);
    // log(1 + e) without losing a small e: scale by e / ((1 + e) - 1), Kahan's correction.
    const T u = T(1) + e, d = u - T(1);
    return (x > T(0) ? x : (x != x ? x : T(0))) + (d == T(0) ? e : math::log(u) * (e / d));
  }
  template <class T> SINTER_FN T grad(T dy, T x) const { return dy * Sigmoid::value(x); }
};

// x Phi(x) = x/2 (1 + erf(x / sqrt 2)); Hendrycks and Gimpel, arXiv 1606.08415
struct Gelu : Unary<Facts{.saves = Saves::inputs, .flops = 8, .backward_flops = 14}> {
  SINTER_POINTWISE(Gelu, "gelu")
  SINTER_FORMULA("y = x Phi(x), Phi(x) = (1 + erf(x / sqrt 2)) / 2",
      "dx = dy (Phi(x) + x phi(x)), phi the normal density")
  template <class T> SINTER_FN T forward(T x) const { return x * math::normal_cdf(x); }
  template <class T> SINTER_FN T grad(T dy, T x) const {
    const T density =
        math::exp_below_0(T(-0.5) * x * x) * T(0.39894228040143267794);  // 1 / sqrt(2 pi)
    return dy * (math::normal_cdf(x) + x * density);
  }
};

// x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), the same source
struct GeluTanh : Unary<Facts{.saves = Saves::inputs, .flops = 12, .backward_flops = 20}> {
  SINTER_POINTWISE(GeluTanh, "gelu_tanh")
  SINTER_FORMULA("y = x/2 (1 + tanh(t)), t = sqrt(2/pi) (x + 0.044715 x^3)",
      "dx = dy ((1 + tanh t) / 2 + x/2 (1 - tanh(t)^2) dt/dx)")
  // (1 + tanh t) / 2 = 1 / (1 + e^-2t), by a power of -|2t|: it cannot overflow, and where the
  // result is small nothing cancels. A tanh and its sum with 1 would take twice as long.
  template <class T> struct Gate {
    T power, inverse, value;
    explicit SINTER_FN Gate(T x) {
      const T twice_t = T(1.59576912160573071176) * (x + T(0.044715) * x * x * x);
      power = math::exp_below_0(-math::abs(twice_t));
      inverse = math::inverse_of_1_to_2(T(1) + power);
      value = twice_t < T(0) ? power * inverse : inverse;
    }
  };
  template <class T> SINTER_FN T forward(T x) const { return x * Gate<T>(x).value; }
  template <class T> SINTER_FN T grad(T dy, T x) const {
    const Gate<T> gate(x);
    const T slope = T(1.59576912160573071176) * (T(1) + T(3 * 0.044715) * x * x);
    return dy * (gate.value + x * (gate.power * gate.inverse * gate.inverse) * slope);
  }
};

// Comparisons: 1 or 0 of the operands' type; with NaN all are 0. Their derivative is 0 where they
// have one, and the public functions (ops/pointwise/compare.cpp) ask for none.
struct Compare : Binary<Facts{.saves = Saves::nothing, .flops = 1, .backward_flops = 1}> {
  template <class T> SINTER_FN Two<T> grad(T) const { return {T(0), T(0)}; }
  bool operator==(const Compare&) const = default;
};
struct Eq : Compare {
  SINTER_POINTWISE(Eq, "eq")
  SINTER_FORMULA("y = 1 where a = b, else 0", "da = 0, db = 0")
  template <class T> SINTER_FN T forward(T a, T b) const { return T(a == b); }
};
struct Lt : Compare {
  SINTER_POINTWISE(Lt, "lt")
  SINTER_FORMULA("y = 1 where a < b, else 0", "da = 0, db = 0")
  template <class T> SINTER_FN T forward(T a, T b) const { return T(a < b); }
};
struct Le : Compare {
  SINTER_POINTWISE(Le, "le")
  SINTER_FORMULA("y = 1 where a <= b, else 0", "da = 0, db = 0")
  template <class T> SINTER_FN T forward(T a, T b) const { return T(a <= b); }
};

// x tanh(log(1 + e^x)) = x n / (n + 2), n = e^x (e^x + 2); arXiv 1908.08681
struct Mish : Unary<Facts{.saves = Saves::inputs, .flops = 7, .backward_flops = 16}> {
  SINTER_POINTWISE(Mish, "mish")
  SINTER_FORMULA(
      "y = x tanh(ln(1 + e^x))", "dx = dy (t + x (1 - t^2) / (1 + e^-x)), t = tanh(ln(1 + e^x))")
  // Beyond 20 it is x to the last bit, and n would overflow.
  template <class T> SINTER_FN T forward(T x) const {
    const T e = math::exp(x), n = e * (e + T(2));
    return x > T(20) ? x : x * (n / (n + T(2)));
  }
  template <class T> SINTER_FN T grad(T dy, T x) const {
    const T e = math::exp(x), n = e * (e + T(2));
    const T t = n / (n + T(2)), rest = T(2) / (n + T(2));  // the tanh, and 1 less it
    const T slope = t + x * rest * (T(2) - rest) * (e / (e + T(1)));
    return x > T(20) ? dy : dy * slope;
  }
};

// The lists. A row is a public function (ops/ops.h) and its struct; that of an activation ends with
// the name of its layer in print (nn/activations.h). The kinds say what the function takes: x; x
// and the op's number; a and b; a condition, a and b; a and b to compare. Each ACTIVATION is an
// Act, too, which fused ops apply behind a product (ops/fused/fused.h).
// clang-format off
#define SINTER_ARITHMETIC(UNARY, NUMBERED, BINARY, TERNARY, COMPARISON) \
  BINARY(add, Add) BINARY(sub, Sub) BINARY(mul, Mul) BINARY(div, Div) BINARY(maximum, Maximum) \
  TERNARY(where, Where) UNARY(neg, Neg) NUMBERED(scale, Scale) UNARY(abs, Abs) UNARY(exp, Exp) \
  UNARY(log, Log) UNARY(sqrt, Sqrt) NUMBERED(pow, Pow) \
  COMPARISON(eq, Eq) COMPARISON(lt, Lt) COMPARISON(le, Le)
#define SINTER_ACTIVATIONS(ACTIVATION, NUMBERED) \
  ACTIVATION(relu, Relu, "ReLU") \
  ACTIVATION(gelu, Gelu, "GELU") \
  ACTIVATION(gelu_tanh, GeluTanh, "GELU(tanh)") \
  ACTIVATION(silu, Silu, "SiLU") \
  ACTIVATION(sigmoid, Sigmoid, "Sigmoid") \
  ACTIVATION(tanh, Tanh, "Tanh") \
  ACTIVATION(softplus, Softplus, "Softplus") \
  ACTIVATION(mish, Mish, "Mish") \
  NUMBERED(leaky_relu, LeakyRelu, "LeakyReLU") \
  NUMBERED(elu, Elu, "ELU")
// clang-format on

template <class, class... Op> struct ListOf {  // the first type stands before the first comma
  using type = std::tuple<Op...>;
};
#define SINTER_STRUCT(function, Struct, ...) , Struct
using Arithmetic = ListOf<void SINTER_ARITHMETIC(
    SINTER_STRUCT, SINTER_STRUCT, SINTER_STRUCT, SINTER_STRUCT, SINTER_STRUCT)>::type;
using Activations = ListOf<void SINTER_ACTIVATIONS(SINTER_STRUCT, SINTER_STRUCT)>::type;
#undef SINTER_STRUCT
using List = decltype(std::tuple_cat(Arithmetic{}, Activations{}));
// The place of Op in a list; the list's length if it is not there.
template <class Op, class... Other> constexpr size_t index_in(std::tuple<Other...>) {
  size_t i = 0;
  static_cast<void>(((std::is_same_v<Op, Other> ? true : (++i, false)) || ...));
  return i;
}
template <class Op> inline constexpr size_t kPlace = index_in<Op>(List{});
template <class Op> inline constexpr bool kIsListed = kPlace<Op> < std::tuple_size_v<List>;

// Facts that follow: values that backward reads beside dy, gradients that it gives, the element
// type of input i (a condition is u8).
template <class Op>
inline constexpr int kSavedValues = Op::saves == Saves::inputs    ? Op::arity
                                    : Op::saves == Saves::nothing ? 0
                                                                  : 1;
template <class Op> inline constexpr int kGrads = Op::arity - (Op::has_condition ? 1 : 0);
template <class Op, class T, size_t I>
using Element = std::conditional_t<Op::has_condition && I == 0, uint8_t, T>;

// The op with its number, if it has one, as a C.
template <class C, class Op> Op with_number(const Op& op) { return op; }
template <class C, template <class> class Op> Op<C> with_number(const Op<double>& op) {
  Op<C> converted;
  converted.*Op<C>::number() = static_cast<C>(op.*Op<double>::number());
  return converted;
}
template <class Op> constexpr bool kHasNumber = requires { Op::number(); };
// The op with that number, if it has one.
template <class Op, class C> SINTER_FN auto op_with_number(C number) {
  using Typed = decltype(with_number<C>(Op{}));
  Typed op;
  if constexpr (kHasNumber<Op>) {
    constexpr auto member = Typed::number();
    op.*member = number;
  }
  return op;
}

}  // namespace sinter::pointwise
