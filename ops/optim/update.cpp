// The optimizers' updates, in place: of one parameter an op for each optimizer, and
// multi_tensor_update of all parameters of a step at once. One mechanism: one parameter is a list
// of one. The last update of a step (tail) advances the StepState. Adam reads 16 and writes 12
// bytes per f32 parameter.
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

std::string names_of_states(const OptimizerRow& row, const UpdateAttrs& attrs) {
  std::string names;
  for (const OptimizerState& state : row.states.first(row.used_states(attrs)))
    names += str(names.empty() ? "" : ", ", state.name);
  return names.empty() ? "none" : names;
}

// What the signature of one parameter's update cannot say.
void check_group(
    const char* op, const OptimizerRow& row, const UpdateGroup& group, const UpdateAttrs& attrs) {
  const size_t used = row.used_states(attrs);
  SINTER_CHECK(group.state1.defined() == (used > 0) && group.state2.defined() == (used > 1), shape,
      str(op, ": wrong states: ",
          describe({{"param", &group.param}, {row.states[0].name, &group.state1},
              {row.states.size() > 1 ? row.states[1].name : "a second state", &group.state2}}),
          "; the states of ", row.name,
          row.may_lack_states ? str(" with momentum ", attrs.momentum) : "", ": ",
          names_of_states(row, attrs)));
  SINTER_CHECK(row.counts_steps || !group.skipped.defined(), shape,
      str(op, ": skipped steps are not counted: ",
          describe({{"param", &group.param}, {"skipped", &group.skipped}}), "; of ", row.name,
          " it must be undefined"));
}

template <class O> void check_one(Operands in, const Attrs& attrs) {
  const auto& a = attrs.as<UpdateAttrs>();
  check_step(O::update_name, UpdateEnd(in), a);
  check_group(O::update_name, optimizer_row(kind_of(O())), update_group(in, 0), a);
}
Tensors infer_multi(Operands in, const Attrs& attrs) {
  const char* op = "multi_tensor_update";
  const auto& a = attrs.as<UpdateAttrs>();
  SINTER_CHECK(in.size() % kGroupOperands == kStepOperands, shape,
      str(op, ": ", in.size(), " inputs given; it takes ", +kGroupOperands, " per parameter and ",
          kStepOperands, " more"));
  check_step(op, UpdateEnd(in), a);
  for (size_t i = 0; i < update_groups(in.size()); ++i) {
    const Operands group = in.subspan(i * kGroupOperands, kGroupOperands);
    Tensors one(group.begin(), group.end());
    one.insert(one.end(), in.end() - kStepOperands, in.end());
    kAdamUpdateOp.signature.check(op, one, attrs);
    check_group(op, optimizer_row(a.optimizer), update_group(in, i), a);
    check_same_dtype(op, "the first parameter", in[kParam], "a later one", group[kParam]);
  }
  return {};
}

Cost cost_of_groups(const OptimizerRow& row, Operands in, const Attrs& attrs) {
  Cost cost;
  for (size_t i = 0; i < update_groups(in.size()); ++i)
    cost += group_cost(row, update_group(in, i), attrs.as<UpdateAttrs>());
  return cost;
}
template <class O> Cost cost_of_one(Operands in, Operands, const Attrs& attrs) {
  return cost_of_groups(optimizer_row(kind_of(O())), in, attrs);
}
Cost cost_of_multi(Operands in, Operands, const Attrs& attrs) {
  return cost_of_groups(optimizer_row(attrs.as<UpdateAttrs>().optimizer), in, attrs);
}

template <class V> void update_typed(const Call& call, const OptimizerRow& row) {
  const size_t groups = update_groups(call.in.size());
  const auto units = [&](size_t i) {
    return (call.in[i * kGroupOperands + kParam].numel() + kUnit - 1) / kUnit;
  };
  int64_t total = 0;
  for (size_t i = 0; i < groups; ++i) total += units(i);
  const int64_t bytes = kUnit * int64_t((3 + 2 * row.states.size()) * sizeof(V));
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
  const StepState& state = UpdateEnd(call.in).step();
  with_update<V>(row.kind, call.as<UpdateAttrs>(), state, [&](const auto& step_of) {
    parallel_for(total, grain_of(bytes),
        [&](int64_t begin, int64_t end) { update_units(step_of, begin, end); });
  });
}

void update_cpu(const Call& call) {
  const OptimizerRow& row = optimizer_of(call);
  if (call.in[kParam].dtype() == DType::f64) {
    update_typed<double>(call, row);
  } else {
    update_typed<float>(call, row);
  }
  UpdateEnd(call.in).finish(row, call.as<UpdateAttrs>());
}

Tensors multi_reference(Operands in, const Attrs& attrs) {
  const auto& a = attrs.as<UpdateAttrs>();
  const size_t groups = update_groups(in.size());
  for (size_t i = 0; i < groups; ++i)
    reference_update(update_group(in, i), UpdateEnd(in), a, a.tail && i + 1 == groups);
  return {};
}

// Of one parameter.
template <class O> constexpr OpDef update_op(Signature signature) {
  return {.name = profiler::StaticName(O::update_name),
      .formula = O::formula,
      .signature = signature,
      .min_inputs = kGroupOperands + kStepOperands,
      .attrs = attr_type<UpdateAttrs>(),
      .check = check_one<O>,
      .cost = cost_of_one<O>,
      .cpu = update_cpu,
      .cuda = kOpRow<kMultiTensorUpdateOp>.cuda,
      .simt = kOpRow<kMultiTensorUpdateOp>.simt,
      .writes_of = update_writes};
}

#define SINTER_ROW(op, signature, Struct)                                            \
  {OptimizerKind::Struct, optim::Struct::name, &op, optim::Struct::states,           \
      MayLackStates<optim::Struct::Step<float>, float>, optim::Struct::counts_steps, \
      optim::Struct::has_sign, optim::Struct::flops},
constexpr OptimizerRow kRows[] = {SINTER_OPTIMIZERS(SINTER_ROW, SINTER_NOTHING)};
#undef SINTER_ROW

}  // namespace

#define SINTER_UPDATE_OP(op, signature, Struct) \
  const OpDef op = update_op<optim::Struct>(kSignature<op>);
SINTER_OPTIMIZERS(SINTER_UPDATE_OP, SINTER_NOTHING)
#undef SINTER_UPDATE_OP

const OpDef kMultiTensorUpdateOp = listed<kMultiTensorUpdateOp>({.name = "multi_tensor_update",
    .formula = "the update of one parameter, for a list of them",
    .min_inputs = kGroupOperands + kStepOperands,
    .max_inputs = (1 << 17) * int(kGroupOperands) + int(kStepOperands),
    .attrs = attr_type<UpdateAttrs>(),
    .infer = infer_multi,
    .cost = cost_of_multi,
    .cpu = update_cpu,
    .writes_of = update_writes,
    .reference = multi_reference});

const OptimizerRow& optimizer_row(OptimizerKind kind) { return kRows[size_t(kind)]; }
const OptimizerRow* optimizer_of(const OpDef& op) {
  const auto* row = std::ranges::find(kRows, &op, &OptimizerRow::op);
  return row == std::end(kRows) ? nullptr : row;
}
std::span<const std::string_view> names_of(OptimizerKind) {
#define SINTER_NAME(op, signature, Struct) optim::Struct::name,
  static constexpr std::string_view kNames[] = {SINTER_OPTIMIZERS(SINTER_NAME, SINTER_NOTHING)};
#undef SINTER_NAME
  return kNames;
}

void UpdateEnd::finish(const OptimizerRow& row, const UpdateAttrs& attrs) const {
  if (!attrs.tail) return;
  const bool counts = row.counts_steps;
  advance_step_state(step(), losses, rng, counts ? attrs.beta1 : 0, counts ? attrs.beta2 : 0);
}

void check_step(const char* op, const UpdateEnd& end, const UpdateAttrs& attrs) {
  check_step_state(op, end.state);
  SINTER_CHECK(attrs.tail || (!end.losses.defined() && !end.rng.defined()), usage,
      str(op, ": losses and rng belong to the last update of a step: ",
          describe({{"losses", &end.losses}, {"rng", &end.rng}}), "; tail is 0"));
}

Cost group_cost(const OptimizerRow& row, const UpdateGroup& group, const UpdateAttrs& attrs) {
  Cost cost{.flops = row.flops(attrs) * group.param.numel()};
  for (const Tensor* t : {&group.param, &group.state1, &group.state2}) {
    cost.bytes_read += bytes_of(*t);
    cost.bytes_written += bytes_of(*t);
  }
  cost.bytes_read += bytes_of(group.grad);
  cost.bytes_written += bytes_of(group.bf16_copy);
  return cost;
}

namespace {
// attrs of an op of one parameter: it does not ask whose formula is meant.
void apply_update(const UpdateGroup& g, const Tensor& state, UpdateAttrs attrs,
    const Tensor& losses, const Tensor& rng) {
  const OpDef& op = *optimizer_row(attrs.optimizer).op;
  attrs.optimizer = UpdateAttrs().optimizer;
  apply(
      op, {g.param, g.grad, g.state1, g.state2, g.bf16_copy, g.skipped, state, losses, rng}, attrs);
}
}  // namespace

void reference_update(
    const UpdateGroup& group, const UpdateEnd& end, const UpdateAttrs& attrs, bool tail) {
  UpdateAttrs own = attrs;
  own.tail = tail;
  apply_update(group, end.state, own, tail ? end.losses : Tensor(), tail ? end.rng : Tensor());
}

void update_parameter(const UpdateGroup& group, const Tensor& state, const UpdateAttrs& attrs,
    const Tensor& losses, const Tensor& rng) {
  apply_update(group, state, attrs, losses, rng);
  if (attrs.tail && rng.defined()) restart_random_ops(rng.device());
}

}  // namespace sinter
