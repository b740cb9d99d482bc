#include "ops/fused/activation.h"

namespace sinter {
namespace {

using pointwise::Saves;

// With a bit mask only relu has any to save.
Attrs act_attrs(Act act, bool mask) {
  return visit_act(act, [&]<class Op>(Op op) {
    if constexpr (Op::saves == Saves::mask) op.mask = mask;
    return Attrs(op);
  });
}

}  // namespace

Tensors act_reference(Act act, const Tensor& z, bool mask) {
  if (act == Act::none) return {z};
  return apply(*find_op(print_value(act)), {z}, act_attrs(act, mask));
}

Tensor act_backward_reference(Act act, const Tensor& dy, const Tensor& saved) {
  if (act == Act::none) return dy;
  return apply1(*find_op(print_value(act) + "_backward"), {dy, saved}, act_attrs(act, true));
}

Tensor act_backward_of_input(Act act, const Tensor& dy, const Tensor& z) {
  const Saves saves = act_saves(act);
  if (saves == Saves::inputs) return act_backward_reference(act, dy, z);
  return act_backward_reference(act, dy, act_reference(act, z, saves == Saves::mask).back());
}

}  // namespace sinter
