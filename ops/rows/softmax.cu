// softmax, log_softmax over the last dim and their backwards: by a warp for rows that it holds in
// registers, by a block for longer ones.
#include "ops/rows/row.cuh"

namespace sinter::SINTER_KERNEL_NS {

void softmax(const Call& call) { run_softmax<Softmax>(call); }
void log_softmax(const Call& call) { run_softmax<LogSoftmax>(call); }
void softmax_backward(const Call& call) { run_softmax<SoftmaxBackward>(call); }
void log_softmax_backward(const Call& call) { run_softmax<LogSoftmaxBackward>(call); }

}  // namespace sinter::SINTER_KERNEL_NS
