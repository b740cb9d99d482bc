// The arithmetic pointwise ops and their public functions.
#include "ops/pointwise/pointwise_op.h"

namespace sinter {

namespace pointwise_detail {
std::vector<ChainStep> arithmetic_steps() { return steps_of(pointwise::Arithmetic{}); }
}  // namespace pointwise_detail

namespace {

template <class Op> Tensor run(const Op& op, Tensors in) {
  return apply1(pointwise_op<Op>(), std::move(in), op);
}

// A condition is u8; another non-zero number is one, too.
Tensor as_bytes(const Tensor& condition) {
  if (!condition.defined() || condition.dtype() == DType::u8) return condition;
  return cast(condition != 0, DType::u8);
}

}  // namespace

#define SINTER_UNARY(function, Struct) \
  Tensor function(const Tensor& x) { return run(pointwise::Struct{}, {x}); }
#define SINTER_NUMBERED(function, Struct)                                  \
  Tensor function(const Tensor& x, double number) {                        \
    return run(pointwise::op_with_number<pointwise::Struct>(number), {x}); \
  }
#define SINTER_BINARY(function, Struct) \
  Tensor function(const Tensor& a, const Tensor& b) { return run(pointwise::Struct{}, {a, b}); }
#define SINTER_TERNARY(function, Struct)                                       \
  Tensor function(const Tensor& condition, const Tensor& a, const Tensor& b) { \
    return run(pointwise::Struct{}, {as_bytes(condition), a, b});              \
  }
#define SINTER_ELSEWHERE(function, Struct)  // ops/pointwise/compare.cpp
SINTER_ARITHMETIC(SINTER_UNARY, SINTER_NUMBERED, SINTER_BINARY, SINTER_TERNARY, SINTER_ELSEWHERE)
#undef SINTER_UNARY
#undef SINTER_NUMBERED
#undef SINTER_BINARY
#undef SINTER_TERNARY
#undef SINTER_ELSEWHERE

}  // namespace sinter
