#include "ops/fused/activation.h"

namespace sinter {
namespace {

Attrs act_attrs(Act act) {
  return visit_act(act, [](auto op) { return Attrs(op); });
}

}  // namespace

Tensor act_reference(Act act, const Tensor& z) {
  if (act == Act::none) return z;
  return apply1(*find_op(print_value(act)), {z}, act_attrs(act));
}

Tensor act_backward_reference(Act act, const Tensor& dy, const Tensor& saved) {
  if (act == Act::none) return dy;
  return apply1(*find_op(print_value(act) + "_backward"), {dy, saved}, act_attrs(act));
}

Tensor act_backward_of_input(Act act, const Tensor& dy, const Tensor& z) {
  const bool of_output = act_saves(act) == pointwise::Saves::output;
  return act_backward_reference(act, dy, of_output ? act_reference(act, z) : z);
}

}  // namespace sinter
