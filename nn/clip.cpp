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

int64_t divisor(const Tensor& losses, int64_t own, int64_t rows) {
  return losses.autograd().counted.defined() ? rows : rows * (losses.numel() / own);
}

void add_counted(Tensor& sum, const Tensor& losses) {
  const NoGrad no_grad;
  const Tensor& counted = losses.autograd().counted;
  if (counted.defined()) sum = sum.defined() ? sum + counted : counted;
}

void average_counted(
    const std::vector<Tensor>& params, int64_t rows, const Tensor& own, const Tensor& all) {
  const NoGrad no_grad;
  Tensor factor;  // in the type of the gradients, of which there is mostly one
  for (const Tensor& param : params) {
    const Tensor grad = param.grad();
    if (!grad.defined()) continue;
    if (!factor.defined() || factor.dtype() != grad.dtype()) {
      const Tensor n = all.dtype() == grad.dtype() ? all : cast(all, grad.dtype());
      factor = reshape(double(rows) / maximum(n, constant_like(n, 1)), {});
    }
    const Tensor mean = mul(grad, factor);
    mean.autograd().counted = own;
    mean.autograd().counted_of_all = all;
    param.autograd().grad = mean;
  }
}

}  // namespace sinter::nn
