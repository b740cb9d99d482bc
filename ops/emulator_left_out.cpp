// What stands in place of the emulator's kernels in a build without them (SINTER_EMULATOR=OFF):
// most of a build's time is theirs, and who trains on the CPU needs none.
#if !SINTER_EMULATOR

#include "ops/fused/product_chain.h"
#include "ops/pointwise/pointwise_device.h"

namespace sinter::on_simt {
namespace {

void left_out(const Call& call) {
  throw Error(Error::Kind::not_built,
      str(call.op.label_of(call.attrs), ": simt: the emulator's kernels are not in this build"),
      "cmake -DSINTER_EMULATOR=ON build/release && ninja -C build/release");
}

}  // namespace

PointwiseKernels arithmetic_kernels(size_t) { return {left_out, left_out}; }
PointwiseKernels activation_kernels(size_t) { return {left_out, left_out}; }
#define SINTER_LEFT_OUT(definition, op, ...) \
  void op(const Call& call) { left_out(call); }
#define SINTER_NO_KERNEL(...)
SINTER_STRUCTURED_OPS(SINTER_LEFT_OUT, SINTER_NO_KERNEL)
SINTER_FUSED_OPS(SINTER_LEFT_OUT)
void convolution_with_end(const Call& call) { left_out(call); }
#undef SINTER_LEFT_OUT
#undef SINTER_NO_KERNEL

}  // namespace sinter::on_simt

#endif  // !SINTER_EMULATOR
