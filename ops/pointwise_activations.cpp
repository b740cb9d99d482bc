// The activations among the pointwise ops, and their public functions. A file of their own: they
// take long to compile.
#include "ops/pointwise_op.h"

namespace sinter {

namespace pointwise_detail {
std::vector<const OpDef*> activation_ops() { return ops_of(pointwise::Activations{}); }
}  // namespace pointwise_detail

namespace {
template <class Op>
Tensor run(Op op, const Tensor& a) {
  return apply1(pointwise_op<Op>(), {a}, op);
}

}  // namespace
Tensor relu(const Tensor& x) {
  pointwise::Relu op;
  op.mask = Context::current().grad_enabled && x.requires_grad();
  if (op.mask && x.rank() == 0) return reshape(relu(reshape(x, {1})), {});  // a mask has rows
  return run(op, x);
}
Tensor leaky_relu(const Tensor& x, double slope) {
  pointwise::LeakyRelu op;
  op.slope = slope;
  return run(op, x);
}
Tensor elu(const Tensor& x, double alpha) {
  pointwise::Elu op;
  op.alpha = alpha;
  return run(op, x);
}
Tensor gelu(const Tensor& x) { return run(pointwise::Gelu{}, x); }
Tensor gelu_tanh(const Tensor& x) { return run(pointwise::GeluTanh{}, x); }
Tensor silu(const Tensor& x) { return run(pointwise::Silu{}, x); }
Tensor sigmoid(const Tensor& x) { return run(pointwise::Sigmoid{}, x); }
Tensor tanh(const Tensor& x) { return run(pointwise::Tanh{}, x); }
Tensor softplus(const Tensor& x) { return run(pointwise::Softplus{}, x); }

}  // namespace sinter
