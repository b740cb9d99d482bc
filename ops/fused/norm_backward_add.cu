// norm_backward_add: as the norms' backwards, with one more operand.
#include "ops/fused/fused.h"
#include "ops/rows/row.cuh"

namespace sinter::SINTER_KERNEL_NS {

void norm_backward_add(const Call& call) {
  const auto in = operands_of_norm(call.in);
  const Call of_norm{call.op, in, call.out, call.attrs};
  if (call.in.size() == 6) return run_op<LayerNormBackward>(of_norm);
  run_op<RmsNormBackward>(of_norm);
}

}  // namespace sinter::SINTER_KERNEL_NS
