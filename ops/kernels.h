// The device kernels of the ops: for each op of the lists (ops/ops.h, ops/fused/fused.h) one
// host function that launches them, per world. It is defined at the end of ops/<op>.cu, which is
// compiled for CUDA and for the emulator; an OpDef names both by SINTER_KERNELS(softmax). And the
// cost that many have.
#pragma once

#include "core/device/cuda_kernels.h"
#include "ops/fused/fused.h"

// Two fields of an OpDef.
#define SINTER_KERNELS(op) .cuda = SINTER_IF_CUDA(on_cuda::op), .simt = on_simt::op

#define SINTER_DECLARE_KERNEL(definition, op, ...) void op(const Call& call);
#define SINTER_NO_KERNEL(...)
namespace sinter::on_cuda {
SINTER_STRUCTURED_OPS(SINTER_DECLARE_KERNEL, SINTER_NO_KERNEL)
SINTER_FUSED_OPS(SINTER_DECLARE_KERNEL)
}  // namespace sinter::on_cuda
namespace sinter::on_simt {
SINTER_STRUCTURED_OPS(SINTER_DECLARE_KERNEL, SINTER_NO_KERNEL)
SINTER_FUSED_OPS(SINTER_DECLARE_KERNEL)
}  // namespace sinter::on_simt
#undef SINTER_DECLARE_KERNEL
#undef SINTER_NO_KERNEL

namespace sinter {
// The cost of an op that does `flops` for each element of its first operand.
template <int64_t flops> Cost cost_per_element(Operands in, Operands out, const Attrs&) {
  return cost_of(flops * in[0].numel(), in, out);
}
}  // namespace sinter
