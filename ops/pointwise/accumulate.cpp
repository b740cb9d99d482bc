// accumulate: into += value, in place: the sum of gradients that reach one tensor on several ways.
// No gradient.
#include "ops/kernels.h"
#include "ops/ops.h"
#include "ops/pointwise/pointwise_loops.h"

namespace sinter {
namespace {

Cost cost(Operands in, Operands out, const Attrs&) {
  return cost_of(in[0].numel(), in, out, &kAccumulateOp);
}

void cpu(const Call& call) {
  const Tensor &into = call.in[0], &value = call.in[1];
  visit_float(into.dtype(), [&]<class T>(T) {
    visit_float(value.dtype(), [&]<class From>(From) {
      using V = compute_t<T>;
      pointwise_rows<1, From, T>(into.shape(), {&value, &into}, sizeof(From) + 2 * sizeof(T),
          [](const From* from, T* to, int64_t n) {
            for (int64_t i = 0; i < n; ++i) to[i] = T(V(to[i]) + V(from[i]));
          });
    });
  });
}

}  // namespace

const OpDef kAccumulateOp{.name = "accumulate",
    .formula = "into += value",
    .signature = kSignature<kAccumulateOp>,
    .cost = cost,
    .cpu = cpu,
    SINTER_KERNELS(accumulate),
    .strided = 0b11};

void accumulate(const Tensor& into, const Tensor& value) { apply(kAccumulateOp, {into, value}); }

}  // namespace sinter
