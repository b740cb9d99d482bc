// Comparisons, and the resident numbers that stand beside a tensor in an expression.
#include <bit>
#include <map>
#include <tuple>

#include "core/context.h"
#include "core/device/cuda.h"
#include "ops/ops.h"
#include "ops/pointwise/pointwise_op.h"

namespace sinter {
namespace {

// Numbers that a thread keeps; then it begins anew.
constexpr size_t kKeptConstants = 256;

// An operand as the op takes it: off the tape, and integers as f64.
Tensor comparable(const Tensor& t, bool as_f64) {
  const Tensor values = t.requires_grad() ? detach(t) : t;
  return as_f64 && t.dtype() != DType::f64 ? cast(values, DType::f64) : values;
}

template <class Op> Tensor compare(const Tensor& a, const Tensor& b) {
  const char* name = Op::name;
  check_defined(name, "a", a);
  check_defined(name, "b", b);
  const bool integers = !is_float(a.dtype()) || !is_float(b.dtype());
  const Tensor result =
      apply1(pointwise_op<Op>(), {comparable(a, integers), comparable(b, integers)}, Op{});
  return integers ? cast(result, DType::f32) : result;
}

}  // namespace

#define SINTER_NONE(...)
#define SINTER_COMPARISON(function, Struct) \
  Tensor function(const Tensor& a, const Tensor& b) { return compare<pointwise::Struct>(a, b); }
SINTER_ARITHMETIC(SINTER_NONE, SINTER_NONE, SINTER_NONE, SINTER_NONE, SINTER_COMPARISON)
#undef SINTER_NONE
#undef SINTER_COMPARISON
Tensor ne(const Tensor& a, const Tensor& b) { return 1 - eq(a, b); }
Tensor gt(const Tensor& a, const Tensor& b) { return lt(b, a); }
Tensor ge(const Tensor& a, const Tensor& b) { return le(b, a); }

namespace {
// By its bits: NaN has no place in an order, and -0 is not 0.
using KeptConstants = std::map<std::tuple<uint64_t, DType, Device>, Tensor>;
KeptConstants& kept_constants() {
  static thread_local KeptConstants kept;
  static const bool hooked = [] {  // the card takes its memory back
    cuda::at_reset([] { kept_constants().clear(); });
    return true;
  }();
  (void)hooked;
  return kept;
}
}  // namespace

Tensor constant(double value, DType dtype, Device device) {
  KeptConstants& kept = kept_constants();
  // Not within a captured step, whose graph would then have one number twice.
  if (kept.size() > kKeptConstants && !Context::current().host_reads_forbidden) kept.clear();
  Tensor& scalar = kept[{std::bit_cast<uint64_t>(value), dtype, device}];
  if (!scalar.defined()) {
    scalar = Tensor::full({}, value, dtype, device);
    scalar.autograd().constant =
        visit_all(dtype, [&](auto zero) { return double(decltype(zero)(value)); });
  }
  return scalar;
}
Tensor constant_like(const Tensor& x, double value) {
  check_defined("constant_like", "x", x);
  return constant(value, is_float(x.dtype()) ? x.dtype() : DType::f64, x.device());
}
Tensor masked_fill(const Tensor& x, const Tensor& mask, double value) {
  check_defined("masked_fill", "x", x);
  return where(mask, constant_like(x, value), x);
}

}  // namespace sinter
