#include "ops/fused/update.h"

namespace sinter {
namespace {

UpdateLayout layout_of(const char* op, const UpdateAttrs& attrs) {
  return {.op = op, .moments = attrs.adam ? 2 : 1, .optional_moments = !attrs.adam};
}
Tensors plain_operands(
    const UpdateGroup& group, const UpdateEnd& end, const UpdateAttrs& attrs, bool tail) {
  Tensors in{group.param, group.grad.defined() ? group.grad : group.param, group.state1};
  if (attrs.adam) in.push_back(group.state2);
  in.insert(
      in.end(), {group.low, end.state, tail ? end.losses : Tensor(), tail ? end.rng : Tensor()});
  return in;
}

}  // namespace

void check_group(
    const char* op, const UpdateGroup& group, const UpdateEnd& end, const UpdateAttrs& attrs) {
  check_update(layout_of(op, attrs), plain_operands(group, end, attrs, true), attrs.tail);
  SINTER_CHECK(attrs.adam || (attrs.momentum != 0) == group.state1.defined(), shape,
      cat(op, ": momentum and its buffer go together: param is ", group.param.describe(),
          ", buffer is ", group.state1.describe(), "; momentum is ", attrs.momentum));
  SINTER_CHECK(attrs.adam || !group.state2.defined(), shape,
      cat(op, ": only adam has a second state: ",
          describe({{"param", &group.param}, {"state2", &group.state2}}), "; adam is 0"));
}

Cost group_cost(const UpdateGroup& group, const UpdateAttrs& attrs) {
  const int64_t per_parameter =
      attrs.adam ? update_flops(adam_attrs(attrs)) : update_flops(sgd_attrs(attrs));
  Cost cost{.flops = per_parameter * group.param.numel()};
  for (const Tensor* t : {&group.param, &group.state1, &group.state2}) {
    cost.bytes_read += bytes_of(*t);
    cost.bytes_written += bytes_of(*t);
  }
  cost.bytes_read += bytes_of(group.grad);
  cost.bytes_written += bytes_of(group.low);
  return cost;
}

void reference_update(
    const UpdateGroup& group, const UpdateEnd& end, const UpdateAttrs& attrs, bool tail) {
  UpdateAttrs own = attrs;
  own.tail = tail;
  Tensors in = plain_operands(group, end, attrs, tail);
  attrs.adam ? apply(kAdamUpdateOp, std::move(in), adam_attrs(own))
             : apply(kSgdUpdateOp, std::move(in), sgd_attrs(own));
}

UpdateGroup sample_group(const Shape& shape, const UpdateAttrs& attrs, bool low, uint64_t seed) {
  UpdateGroup g{.param = sample_tensor(shape, seed),
      .grad = sample_tensor(shape, seed + 1),
      .state1 = {},
      .state2 = {},
      .low = {}};
  if (attrs.adam || attrs.momentum != 0) g.state1 = sample_tensor(shape, seed + 2, -1, 1);
  if (attrs.adam) g.state2 = sample_tensor(shape, seed + 3, 0.1, 1);
  if (low) g.low = cast(g.param, DType::bf16);
  return g;
}

Tensor sample_step_state(const UpdateAttrs& attrs) {
  const Tensor state = make_step_state();
  reset_step_state(host_step_state(state), attrs.beta1, attrs.beta2);
  host_step_state(state).lr = 0.1;
  return state;
}

}  // namespace sinter
