// sum_rows (ops/rows/reduce.cuh).
#include "ops/rows/reduce.cuh"

namespace sinter::SINTER_KERNEL_NS {

void sum_rows(const Call& call) {
  const Tensor &x = call.in[0], &y = call.out[0];
  if (y.numel() == 0) return;
  visit_float(x.dtype(), [&]<class T>(T) {
    reduce<SumOf, T, compute_t<T>>(x, y, reduction_of(x.shape(), (1u << (x.rank() - 1)) - 1));
  });
}

}  // namespace sinter::SINTER_KERNEL_NS
