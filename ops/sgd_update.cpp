// sgd_update: one parameter's step of stochastic gradient descent, in place (formula:
// ops/update_formulas.h).
#include "ops/kernels.h"
#include "ops/update_op.h"

namespace sinter {
namespace {

constexpr UpdateLayout kLayout{.op = "sgd_update", .moments = 1, .optional_moments = true};

Tensors infer(Operands in, const Attrs& attrs) {
  const auto& a = attrs.as<SgdAttrs>();
  check_update(kLayout, in, a.tail);
  SINTER_CHECK((a.momentum != 0) == in[2].defined(), shape,
      cat("sgd_update: momentum and its buffer go together: param is ", in[0].describe(),
          ", buffer is ", in[2].describe(), "; momentum is ", a.momentum));
  return {};
}

Cost cost(Operands in, Operands, const Attrs& attrs) {
  return update_cost(kLayout, in, update_flops(attrs.as<SgdAttrs>()));
}

void cpu(const Call& call) {
  const auto& attrs = call.as<SgdAttrs>();
  run_update(kLayout, call, [&]<class V>(V) {
    return [&, step = SgdStep<V>(update_state(kLayout, call.in), attrs)](V* p, const V* g,
               std::array<V*, 2> moments, bf16* low,
               int64_t n) { sgd_piece(step, p, g, moments[0], low, n); };
  });
  if (attrs.tail) finish_step(kLayout, call, 0, 0);
}

std::vector<Sample> samples() {
  return update_samples(kLayout, [](bool moments, bool tail) {
    return Attrs(SgdAttrs{.momentum = moments ? 0.9 : 0,
        .weight_decay = 0.01,
        .nesterov = moments && tail,
        .tail = tail});
  });
}

}  // namespace

const OpDef kSgdUpdateOp{.name = "sgd_update",
    .min_inputs = 5,
    .max_inputs = 7,
    .attrs = attr_type<SgdAttrs>(),
    .infer = infer,
    .cost = cost,
    .cpu = cpu,
    .cuda = SINTER_IF_CUDA(on_cuda::sgd_update),
    .simt = on_simt::sgd_update,
    .writes = update_writes(kLayout),
    .strided = update_writes(kLayout),
    .samples = samples};

void sgd_update(const Tensor& param, const Tensor& grad, const Tensor& momentum, const Tensor& low,
    const Tensor& state, const SgdAttrs& attrs, const Tensor& losses, const Tensor& rng) {
  apply(kSgdUpdateOp, {param, grad, momentum, low, state, losses, rng}, attrs);
  if (attrs.tail && rng.defined()) restart_random_ops();
}

}  // namespace sinter
