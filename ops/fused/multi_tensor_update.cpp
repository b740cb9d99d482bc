// multi_tensor_update: the optimizer's update of all parameters of a step as one op: n groups of
// (param, grad, state1, state2, low), then StepState, losses, rng. In place, one pass over all
// elements; the formulas are those of the plain updates, so the result is the same to the bit. Adam
// reads 16 and writes 12 bytes per f32 parameter.
#include <algorithm>

#include "ops/fused/update.h"
#include "ops/kernels.h"

namespace sinter {
namespace {

constexpr size_t kGroup = 5, kEnd = 3;
constexpr int64_t kUnit = 64;  // elements; threads share the work out in whole units of each tensor

size_t groups_in(size_t n) { return n < kEnd ? 0 : (n - kEnd) / kGroup; }
UpdateGroup group_at(Operands in, size_t i) {
  const auto at = in.subspan(i * kGroup);
  return {at[0], at[1], at[2], at[3], at[4]};
}
UpdateEnd end_of(Operands in) { return {in, in.size() - kEnd}; }

bool writes_of(size_t i, size_t n) {
  const size_t groups = groups_in(n);
  return i < groups * kGroup ? i % kGroup != 1 : i != n - 2;
}

Tensors infer(Operands in, const Attrs& attrs) {
  SINTER_CHECK(in.size() % kGroup == kEnd, shape,
      cat("multi_tensor_update: operands are missing: ", in.size(), " given; it takes ", kGroup,
          " per parameter and ", kEnd, " more"));
  for (size_t i = 0; i < groups_in(in.size()); ++i) {
    const UpdateGroup group = group_at(in, i);
    SINTER_CHECK(group.grad.defined(), shape,
        cat("multi_tensor_update: the gradient of parameter ", i, " is undefined"));
    check_group("multi_tensor_update", group, end_of(in), attrs.as<UpdateAttrs>());
    check_same_dtype(
        "multi_tensor_update", "the first parameter", in[0], "a later one", group.param);
  }
  return {};
}

Cost cost(Operands in, Operands, const Attrs& attrs) {
  Cost cost;
  for (size_t i = 0; i < groups_in(in.size()); ++i)
    cost += group_cost(group_at(in, i), attrs.as<UpdateAttrs>());
  return cost;
}

template <class V>
void run(const Call& call) {
  const auto& attrs = call.as<UpdateAttrs>();
  const size_t groups = groups_in(call.in.size());
  const auto units = [&](size_t i) { return (call.in[i * kGroup].numel() + kUnit - 1) / kUnit; };
  int64_t total = 0;
  for (size_t i = 0; i < groups; ++i) total += units(i);
  with_update<V>(attrs, end_of(call.in).step(), [&](const auto& piece) {
    parallel_for(total, grain_of(kUnit * (attrs.adam ? 7 : 5) * static_cast<int64_t>(sizeof(V))),
        [&](int64_t begin, int64_t end) {
          int64_t first = 0;  // of this group
          for (size_t i = 0; i < groups && first < end; first += units(i), ++i) {
            const UpdateGroup group = group_at(call.in, i);
            const int64_t from = std::max(begin - first, int64_t{0}) * kUnit,
                          to = std::min((end - first) * kUnit, group.param.numel());
            if (from < to)
              UpdatePointers<V>(group).apply(
                  piece, from, group.grad.template data<V>() + from, to - from);
          }
        });
  });
}

void cpu(const Call& call) {
  call.in[0].dtype() == DType::f64 ? run<double>(call) : run<float>(call);
  end_of(call.in).finish(call.as<UpdateAttrs>());
}

Tensors reference(Operands in, const Attrs& attrs) {
  const auto& a = attrs.as<UpdateAttrs>();
  const size_t groups = groups_in(in.size());
  for (size_t i = 0; i < groups; ++i)
    reference_update(group_at(in, i), end_of(in), a, a.tail && i + 1 == groups);
  return {};
}

std::vector<Sample> samples() {
  const auto make = [](const std::vector<Shape>& shapes, const UpdateAttrs& attrs, bool low,
                        const char* what) {
    Sample s{.in = {}, .attrs = attrs, .what = what, .differentiable = false};
    uint64_t seed = 1;
    for (const Shape& shape : shapes) {
      const UpdateGroup g = sample_group(shape, attrs, low, seed += 10);
      s.in.insert(s.in.end(), {g.param, g.grad, g.state1, g.state2, g.low});
    }
    s.in.insert(s.in.end(), {sample_step_state(attrs), Tensor(), Tensor()});
    if (attrs.tail)
      s.in[s.in.size() - 2] = sample_tensor({17}, 5), s.in.back() = Tensor::zeros({3}, DType::i64);
    return s;
  };
  const std::vector<Shape> odd{{77, 333}, {77}, {0, 3}, {1}, {10, 77}, {10}};
  const UpdateAttrs adam{.adam = true, .tail = true},
      sgd{.momentum = 0.9, .weight_decay = 0.01, .nesterov = true};
  Sample bad_grad = make({{5, 7}}, adam, false, "grad of another shape"),
         missing = make({{5, 7}}, sgd, false, "an operand is missing");
  bad_grad.in[1] = sample_tensor({7, 5}, 2);
  missing.in.pop_back();
  bad_grad.bad = missing.bad = true;
  return {make(odd, adam, false, "adam"),
      make(odd, {.adam = true, .weight_decay = 0.01, .decoupled = true}, true, "adamw with copies"),
      make(odd, sgd, false, "sgd, nesterov"),
      make(odd, {.momentum = 0.9, .tail = true}, true, "sgd with momentum, copies and tail"),
      make({{333}}, {}, false, "plain sgd, one parameter"), bad_grad, missing};
}

}  // namespace

const OpDef kMultiTensorUpdateOp{.name = "multi_tensor_update",
    .min_inputs = kGroup + kEnd,
    .max_inputs = 1 << 20,
    .attrs = attr_type<UpdateAttrs>(),
    .infer = infer,
    .cost = cost,
    .cpu = cpu,
    .cuda = SINTER_IF_CUDA(on_cuda::multi_tensor_update),
    .simt = on_simt::multi_tensor_update,
    .writes_of = writes_of,
    .samples = samples,
    .reference = reference};

}  // namespace sinter
