// merge_linear: `linear` under its own name: the weights of several linears of one input are row
// blocks of one storage, W[n O, I], and their outputs column blocks of one result, so one GEMM
// makes them all.
#include "ops/fused/fused.h"
#include "ops/fused/reference.h"
#include "ops/kernels.h"
#include "ops/ops.h"

namespace sinter {
namespace {}  // namespace

const OpDef kMergeLinearOp{.name = "merge_linear",
    .formula = "y = x W^T + b, W and b of several linears below each other",
    .min_inputs = 2,
    .max_inputs = 3,
    .attrs = attr_type<LinearAttrs>(),
    .infer = infer_of<kMergeLinearOp>,
    .cost = cost_of_reference<kMergeLinearOp>,
    .cpu = [](const Call& call) { kLinearOp.cpu(call); },
    SINTER_KERNELS(merge_linear),
    .strided = 0b11,
    .reference =
        [](Operands in, const Attrs& attrs) {
          return apply(kLinearOp, Tensors(in.begin(), in.end()), attrs);
        }};

}  // namespace sinter
