// norm_backward_add: as the norms' backwards, with one more operand.
#include "ops/fused/fused.h"
#include "ops/rows/row.cuh"

namespace sinter::SINTER_KERNEL_NS {

void norm_backward_add(const Call& call) {
  if (call.in.size() == 6) return run_op<LayerNormBackward>(call);
  run_op<RmsNormBackward>(call);
}

}  // namespace sinter::SINTER_KERNEL_NS
