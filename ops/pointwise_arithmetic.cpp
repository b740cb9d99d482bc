// The arithmetic pointwise ops and their public functions.
#include "ops/pointwise_op.h"

namespace sinter {

namespace pointwise_detail {
std::vector<const OpDef*> arithmetic_ops() { return ops_of(pointwise::Arithmetic{}); }
}  // namespace pointwise_detail

namespace {
template <class Op>
Tensor run(Op op, const Tensor& a) {
  return apply1(pointwise_op<Op>(), {a}, op);
}
template <class Op>
Tensor run(Op op, const Tensor& a, const Tensor& b) {
  return apply1(pointwise_op<Op>(), {a, b}, op);
}

}  // namespace

Tensor add(const Tensor& a, const Tensor& b) { return run(pointwise::Add{}, a, b); }
Tensor sub(const Tensor& a, const Tensor& b) { return run(pointwise::Sub{}, a, b); }
Tensor mul(const Tensor& a, const Tensor& b) { return run(pointwise::Mul{}, a, b); }
Tensor div(const Tensor& a, const Tensor& b) { return run(pointwise::Div{}, a, b); }
Tensor maximum(const Tensor& a, const Tensor& b) { return run(pointwise::Maximum{}, a, b); }
Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b) {
  const bool bytes = !condition.defined() || condition.dtype() == DType::u8;
  const Tensor taken = bytes ? condition : cast(condition != 0, DType::u8);
  return apply1(pointwise_op<pointwise::Where>(), {taken, a, b}, pointwise::Where{});
}
Tensor neg(const Tensor& x) { return run(pointwise::Neg{}, x); }
Tensor abs(const Tensor& x) { return run(pointwise::Abs{}, x); }
Tensor exp(const Tensor& x) { return run(pointwise::Exp{}, x); }
Tensor log(const Tensor& x) { return run(pointwise::Log{}, x); }
Tensor sqrt(const Tensor& x) { return run(pointwise::Sqrt{}, x); }
Tensor pow(const Tensor& x, double exponent) {
  pointwise::Pow op;
  op.exponent = exponent;
  return run(op, x);
}
Tensor scale(const Tensor& x, double factor) {
  pointwise::Scale op;
  op.factor = factor;
  return run(op, x);
}

}  // namespace sinter
