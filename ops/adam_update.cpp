// adam_update: one parameter's step of Adam (Kingma and Ba, arXiv 1412.6980) or AdamW (Loshchilov
// and Hutter, arXiv 1711.05101), in place (formula: ops/update_formulas.h).
#include "ops/kernels.h"
#include "ops/update_op.h"

namespace sinter {
namespace {

constexpr UpdateLayout kLayout{.op = "adam_update", .moments = 2};

Tensors infer(Operands in, const Attrs& attrs) {
  return check_update(kLayout, in, attrs.as<AdamAttrs>().tail), Tensors{};
}

Cost cost(Operands in, Operands, const Attrs& attrs) {
  return update_cost(kLayout, in, update_flops(attrs.as<AdamAttrs>()));
}

void cpu(const Call& call) {
  const auto& attrs = call.as<AdamAttrs>();
  run_update(kLayout, call, [&]<class V>(V) {
    return [&, step = AdamStep<V>(update_state(kLayout, call.in), attrs)](V* p, const V* g,
               std::array<V*, 2> moments, bf16* low,
               int64_t n) { adam_piece(step, p, g, moments[0], moments[1], low, n); };
  });
  if (attrs.tail) finish_step(kLayout, call, attrs.beta1, attrs.beta2);
}

std::vector<Sample> samples() {
  return update_samples(kLayout, [](bool, bool tail) {
    return Attrs(AdamAttrs{.weight_decay = 0.01, .decoupled = tail, .tail = tail});
  });
}

}  // namespace

const OpDef kAdamUpdateOp{.name = "adam_update",
    .min_inputs = 6,
    .max_inputs = 8,
    .attrs = attr_type<AdamAttrs>(),
    .infer = infer,
    .cost = cost,
    .cpu = cpu,
    .cuda = SINTER_IF_CUDA(on_cuda::adam_update),
    .simt = on_simt::adam_update,
    .writes = update_writes(kLayout),
    .strided = update_writes(kLayout),
    .samples = samples};

void adam_update(const Tensor& param, const Tensor& grad, const Tensor& exp_avg,
    const Tensor& exp_avg_sq, const Tensor& low, const Tensor& state, const AdamAttrs& attrs,
    const Tensor& losses, const Tensor& rng) {
  apply(kAdamUpdateOp, {param, grad, exp_avg, exp_avg_sq, low, state, losses, rng}, attrs);
  if (attrs.tail && rng.defined()) restart_random_ops();
}

}  // namespace sinter
