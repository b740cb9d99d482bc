// The device kernels of the ops: for each op of the lists (ops/ops.h, ops/fused/fused.h) one
// host function that launches them, per world. It is defined at the end of ops/<op>.cu, which is
// compiled for CUDA and for the emulator. listed() gives an OpDef both, with all else that the
// op's row says. And the cost that many have.
#pragma once

#include "core/device/cuda_kernels.h"
#include "ops/fused/fused.h"
#include "ops/fused/reference.h"

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

namespace sinter {
struct OpRow {
  profiler::StaticName name;
  Kernel cuda = nullptr, simt = nullptr;
};
template <const OpDef& op> inline constexpr OpRow kOpRow{};
#define SINTER_OP_ROW(op, kernel, ...) \
  template <>                          \
  inline constexpr OpRow kOpRow<op>{#kernel, SINTER_IF_CUDA(on_cuda::kernel), on_simt::kernel};
SINTER_STRUCTURED_OPS(SINTER_OP_ROW, SINTER_NO_KERNEL)
SINTER_FUSED_OPS(SINTER_OP_ROW)
#undef SINTER_OP_ROW
#undef SINTER_NO_KERNEL

// `def` with what the row of `op` in its list says, name and kernels: of a structured op operands
// and results, too. What the `def` of a fused op leaves out of shape rule and cost is its
// reference's.
template <const OpDef& op> constexpr OpDef listed(OpDef def) {
  constexpr OpRow row = kOpRow<op>;
  if (def.name.view().empty()) def.name = row.name;
  def.cuda = row.cuda;
  def.simt = row.simt;
  if constexpr (kSignature<op> != nullptr) {
    constexpr Signature signature(kSignature<op>);
    def.signature = signature;
    def.min_inputs = signature.required();
    if (def.max_inputs == 0) def.max_inputs = signature.operands();
    def.writes = signature.writes();
  } else {
    static_assert(!row.name.view().empty(), "the op is in no list");
    if (!def.infer) def.infer = infer_of<op>;
    if (!def.cost) def.cost = cost_of_reference<op>;
  }
  return def;
}

// The cost of an op that does so many FLOPs for each element of its operands, in their order; and
// of one that changes some of them in place.
template <int64_t... flops> int64_t flops_per_element(Operands in) {
  const Tensor* t = in.data();
  int64_t sum = 0;
  ((sum += flops * t++->numel()), ...);
  return sum;
}
template <int64_t... flops> Cost cost_per_element(Operands in, Operands out, const Attrs&) {
  return cost_of(flops_per_element<flops...>(in), in, out);
}
template <const OpDef& op, int64_t... flops>
Cost cost_per_element(Operands in, Operands out, const Attrs&) {
  return cost_of(flops_per_element<flops...>(in), in, out, &op);
}
}  // namespace sinter
