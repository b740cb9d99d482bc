#include "ops/fused/activation.h"

namespace sinter {

Tensors act_reference(Act act, const Tensor& z, bool mask) {
  if (act == Act::none) return {z};
  const OpDef& op = *find_op(kActNames[static_cast<size_t>(act)]);
  if (act != Act::relu)
    return apply(op, {z}, visit_act(act, [](auto attrs) { return Attrs(attrs); }));
  pointwise::Relu relu;
  relu.mask = mask;
  return apply(op, {z}, relu);
}

Tensor act_backward_reference(Act act, const Tensor& dy, const Tensor& saved) {
  if (act == Act::none) return dy;
  pointwise::Relu masked;
  masked.mask = true;
  const Attrs attrs =
      act == Act::relu ? Attrs(masked) : visit_act(act, [](auto op) { return Attrs(op); });
  return apply1(
      *find_op(cat(kActNames[static_cast<size_t>(act)], "_backward")), {dy, saved}, attrs);
}

Tensor act_backward_of_input(Act act, const Tensor& dy, const Tensor& z) {
  if (act == Act::relu) return act_backward_reference(act, dy, act_reference(act, z, true)[1]);
  const bool reads_output = act == Act::sigmoid || act == Act::tanh;
  return act_backward_reference(act, dy, reads_output ? act_reference(act, z)[0] : z);
}

}  // namespace sinter
