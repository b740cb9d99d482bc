// Device kernels of the arithmetic pointwise ops and their backwards.
#include "ops/pointwise/pointwise_ops.cuh"

namespace sinter::SINTER_KERNEL_NS {
PointwiseKernels arithmetic_kernels(size_t index) {
  return pointwise_table(pointwise::Arithmetic{}, index);
}
}  // namespace sinter::SINTER_KERNEL_NS
