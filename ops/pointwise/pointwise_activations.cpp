// The activations among the pointwise ops, and their public functions. A file of their own: they
// take long to compile.
#include "ops/pointwise/pointwise_op.h"

namespace sinter {

namespace pointwise_detail {
std::vector<ChainStep> activation_steps() { return steps_of(pointwise::Activations{}); }
}  // namespace pointwise_detail

namespace {

template <class Op> Tensor run(const Op& op, const Tensor& x) {
  return apply1(pointwise_op<Op>(), {x}, op);
}

}  // namespace

#define SINTER_ACTIVATION(function, Struct, text) \
  Tensor function(const Tensor& x) { return run(pointwise::Struct{}, x); }
#define SINTER_NUMBERED(function, Struct, text)                          \
  Tensor function(const Tensor& x, double number) {                      \
    return run(pointwise::op_with_number<pointwise::Struct>(number), x); \
  }
SINTER_ACTIVATIONS(SINTER_ACTIVATION, SINTER_NUMBERED)
#undef SINTER_ACTIVATION
#undef SINTER_NUMBERED

}  // namespace sinter
