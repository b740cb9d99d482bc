// The optimizers' updates, in place: sgd_update, adam_update (Kingma and Ba, arXiv 1412.6980;
// AdamW: Loshchilov and Hutter, arXiv 1711.05101) of one parameter, and multi_tensor_update of all
// parameters of a step at once. One mechanism: the first two are lists of one. The last update of a
// step (tail) advances the StepState. Adam reads 16 and writes 12 bytes per f32 parameter.
#include "ops/optim/update.h"

#include <algorithm>

#include "ops/kernels.h"

namespace sinter {
namespace {

constexpr int64_t kUnit = 64;  // elements; threads share the work out in whole units of each tensor

bool update_writes(size_t i, size_t n) {
  const size_t operand = i % kGroupOperands;
  return i + kStepOperands < n ? operand != kGrad && operand != kSkipped : i != n - 2;
}

// What the signature of one parameter's update cannot say.
void check_group(const char* op, const UpdateGroup& group, const UpdateAttrs& attrs) {
  const Tensor& param = group.param;
  SINTER_CHECK(param.dtype() == DType::f32 || param.dtype() == DType::f64, dtype,
      cat(op, ": wrong element type: param is ", param.describe(), "; it must be f32 or f64"),
      "bf16 training updates an f32 master weight");
  SINTER_CHECK(group.adam() || !group.skipped.defined(), shape,
      cat(op, ": only Adam counts skipped steps: param is ", param.describe(), ", skipped is ",
          group.skipped.describe(), "; it must be undefined"));
  const bool wants_state1 = group.adam() || attrs.momentum != 0;
  SINTER_CHECK(wants_state1 == group.state1.defined(), shape,
      cat(op, ": momentum and its buffer go together: param is ", param.describe(), ", buffer is ",
          group.state1.describe(), "; momentum is ", attrs.momentum));
}

void check_groups(const char* op, Operands in, const Attrs& attrs) {
  check_step(op, UpdateEnd(in), attrs.as<UpdateAttrs>());
  for (size_t i = 0; i < update_groups(in.size()); ++i) {
    const UpdateGroup group = update_group(in, i);
    check_group(op, group, attrs.as<UpdateAttrs>());
    check_same_dtype(op, "the first parameter", in[kParam], "a later one", group.param);
    SINTER_CHECK(group.adam() == in[kState2].defined(), shape,
        cat(op, ": optimizers differ: ",
            describe({{"the first", &in[kParam]}, {"a later one", &group.param}}),
            "; all have a second state (Adam), or none has"));
  }
}

void check_sgd(Operands in, const Attrs& attrs) {
  SINTER_CHECK(!in[kState2].defined(), shape,
      cat("sgd_update: only Adam has a second state: it is ", in[kState2].describe(),
          "; it must be undefined"));
  check_groups("sgd_update", in, attrs);
}
void check_adam(Operands in, const Attrs& attrs) {
  SINTER_CHECK(in[kState1].defined() && in[kState2].defined(), shape,
      cat("adam_update: a state is undefined: ",
          describe(
              {{"param", &in[kParam]}, {"exp_avg", &in[kState1]}, {"exp_avg_sq", &in[kState2]}}),
          "; Adam has both"));
  check_groups("adam_update", in, attrs);
}
Tensors infer_multi(Operands in, const Attrs& attrs) {
  const char* op = "multi_tensor_update";
  SINTER_CHECK(in.size() % kGroupOperands == kStepOperands, shape,
      cat(op, ": ", in.size(), " inputs given; it takes ", +kGroupOperands, " per parameter and ",
          kStepOperands, " more"));
  for (size_t i = 0; i < update_groups(in.size()); ++i) {
    const Operands group = in.subspan(i * kGroupOperands, kGroupOperands);
    Tensors one(group.begin(), group.end());
    one.insert(one.end(), in.end() - kStepOperands, in.end());
    kAdamUpdateOp.signature.check(op, one, attrs);
  }
  check_groups(op, in, attrs);
  return {};
}

Cost update_cost(Operands in, Operands, const Attrs& attrs) {
  Cost cost;
  for (size_t i = 0; i < update_groups(in.size()); ++i)
    cost += group_cost(update_group(in, i), attrs.as<UpdateAttrs>());
  return cost;
}

template <class V> void update_typed(const Call& call, bool adam) {
  const size_t groups = update_groups(call.in.size());
  const auto units = [&](size_t i) {
    return (call.in[i * kGroupOperands + kParam].numel() + kUnit - 1) / kUnit;
  };
  int64_t total = 0;
  for (size_t i = 0; i < groups; ++i) total += units(i);
  const int64_t bytes = kUnit * (adam ? 7 : 5) * int64_t(sizeof(V));
  // A thread takes its share of every tensor, as it does of a weight gradient's rows and of the
  // next step's product: what it needs is in its own core's cache.
  const auto update_units = [&](const auto& step_of, int64_t begin, int64_t end) {
    for (size_t i = 0; i < groups; ++i) {
      const UpdateGroup group = update_group(call.in, i);
      const int64_t from = units(i) * begin / total * kUnit,
                    to = std::min(units(i) * end / total * kUnit, group.param.numel());
      if (from >= to) continue;
      UpdatePointers<V>(group).apply(
          step_of(group), from, group.grad.template data<V>() + from, to - from);
    }
  };
  with_update<V>(adam, call.as<UpdateAttrs>(), UpdateEnd(call.in).step(), [&](const auto& step_of) {
    parallel_for(total, grain_of(bytes),
        [&](int64_t begin, int64_t end) { update_units(step_of, begin, end); });
  });
}

void update_cpu(const Call& call) {
  const bool adam = call.in[kState2].defined();
  if (call.in[kParam].dtype() == DType::f64) {
    update_typed<double>(call, adam);
  } else {
    update_typed<float>(call, adam);
  }
  UpdateEnd(call.in).finish(call.as<UpdateAttrs>(), adam);
}

Tensors multi_reference(Operands in, const Attrs& attrs) {
  const auto& a = attrs.as<UpdateAttrs>();
  const size_t groups = update_groups(in.size());
  for (size_t i = 0; i < groups; ++i)
    reference_update(update_group(in, i), UpdateEnd(in), a, a.tail && i + 1 == groups);
  return {};
}

constexpr OpDef update_op(profiler::StaticName name, Formula formula, Signature signature,
    void (*check)(Operands, const Attrs&)) {
  return {.name = name,
      .formula = formula,
      .signature = signature,
      .min_inputs = kGroupOperands + kStepOperands,
      .attrs = attr_type<UpdateAttrs>(),
      .check = check,
      .cost = update_cost,
      .cpu = update_cpu,
      SINTER_KERNELS(update),
      .writes_of = update_writes,
      .strided_of = update_writes};
}

}  // namespace

const OpDef kSgdUpdateOp = update_op("sgd_update",
    "buffer = momentum buffer + g, p -= lr buffer; without momentum p -= lr g",
    kSignature<kSgdUpdateOp>, check_sgd);
const OpDef kAdamUpdateOp = update_op("adam_update",
    "m += (1 - b1)(g - m), v = b2 v + (1 - b2) g^2, p -= lr m' / (sqrt(v') + eps), m' = m / (1 - "
    "b1^t), v' = v / (1 - b2^t)",
    kSignature<kAdamUpdateOp>, check_adam);
const OpDef kMultiTensorUpdateOp = [] {
  OpDef op = update_op(
      "multi_tensor_update", "the update of one parameter, for a list of them", {}, nullptr);
  op.max_inputs = (1 << 17) * int(kGroupOperands) + int(kStepOperands);
  op.infer = infer_multi;
  op.reference = multi_reference;
  return op;
}();

void UpdateEnd::finish(const UpdateAttrs& attrs, bool adam) const {
  if (!attrs.tail) return;
  advance_step_state(step(), losses, rng, adam ? attrs.beta1 : 0, adam ? attrs.beta2 : 0);
}

void check_step(const char* op, const UpdateEnd& end, const UpdateAttrs& attrs) {
  check_step_state(op, end.state);
  SINTER_CHECK(attrs.tail || (!end.losses.defined() && !end.rng.defined()), usage,
      cat(op, ": losses and rng belong to the last update of a step: ",
          describe({{"losses", &end.losses}, {"rng", &end.rng}}), "; tail is 0"));
}

Cost group_cost(const UpdateGroup& group, const UpdateAttrs& attrs) {
  Cost cost{.flops = update_flops(attrs, group.adam()) * group.param.numel()};
  for (const Tensor* t : {&group.param, &group.state1, &group.state2}) {
    cost.bytes_read += bytes_of(*t);
    cost.bytes_written += bytes_of(*t);
  }
  cost.bytes_read += bytes_of(group.grad);
  cost.bytes_written += bytes_of(group.bf16_copy);
  return cost;
}

void reference_update(
    const UpdateGroup& group, const UpdateEnd& end, const UpdateAttrs& attrs, bool tail) {
  UpdateAttrs own = attrs;
  own.tail = tail;
  apply(group.adam() ? kAdamUpdateOp : kSgdUpdateOp,
      {group.param, group.grad, group.state1, group.state2, group.bf16_copy, group.skipped,
          end.state, tail ? end.losses : Tensor(), tail ? end.rng : Tensor()},
      own);
}

void sgd_update(const Tensor& param, const Tensor& grad, const Tensor& momentum,
    const Tensor& bf16_copy, const Tensor& state, const UpdateAttrs& attrs, const Tensor& losses,
    const Tensor& rng) {
  apply(kSgdUpdateOp, {param, grad, momentum, Tensor(), bf16_copy, Tensor(), state, losses, rng},
      attrs);
  if (attrs.tail && rng.defined()) restart_random_ops();
}

void adam_update(const Tensor& param, const Tensor& grad, const Tensor& exp_avg,
    const Tensor& exp_avg_sq, const Tensor& bf16_copy, const Tensor& state,
    const UpdateAttrs& attrs, const Tensor& losses, const Tensor& rng, const Tensor& skipped) {
  apply(kAdamUpdateOp, {param, grad, exp_avg, exp_avg_sq, bf16_copy, skipped, state, losses, rng},
      attrs);
  if (attrs.tail && rng.defined()) restart_random_ops();
}

}  // namespace sinter
