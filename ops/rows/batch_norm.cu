// batch_norm2d and its backwards: a block for a channel, or, where none is summed, for a channel of
// an image.
#include "ops/rows/row.cuh"

namespace sinter::SINTER_KERNEL_NS {

void batch_norm2d(const Call& call) { run_op<BatchNorm>(call); }
void batch_norm2d_eval(const Call& call) { run_op<BatchNormEval>(call); }
void batch_norm2d_backward(const Call& call) { run_op<BatchNormBackward>(call); }
void batch_norm2d_weight_grad(const Call& call) { run_op<BatchNormWeightGrad>(call); }

}  // namespace sinter::SINTER_KERNEL_NS
