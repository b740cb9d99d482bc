// Device kernels of the activations and their backwards.
#include "ops/pointwise/pointwise_ops.cuh"

namespace sinter::SINTER_KERNEL_NS {
PointwiseKernels activation_kernels(size_t index) {
  return pointwise_table(pointwise::Activations{}, index);
}
}  // namespace sinter::SINTER_KERNEL_NS
