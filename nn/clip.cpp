#include "nn/clip.h"

#include "autograd/autograd.h"
#include "ops/ops.h"
#include "profiler/phase.h"

namespace sinter::nn {

GradNorm clip_grad_norm(const std::vector<Tensor>& params, double max_norm) {
  SINTER_CHECK(max_norm > 0, usage,
      sinter::str("clip_grad_norm: max_norm must be above 0: found ", max_norm));
  const NoGrad no_grad;
  const profiler::PhaseScope phase(Phase::optimizer);
  Tensor total;
  for (const Tensor& param : params) {
    const Tensor grad = param.grad();
    if (!grad.defined()) continue;
    const Tensor squared = squared_norm(grad);
    if (total.defined()) accumulate(total, squared);
    if (!total.defined()) total = squared;
  }
  for (const Tensor& param : params) {
    if (const Tensor grad = param.grad(); grad.defined()) clip_in_place(grad, total, max_norm);
  }
  return {total};
}

}  // namespace sinter::nn
