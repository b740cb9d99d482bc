// The list of the fused ops; ops/all_ops.cpp appends it to its own.
#include "ops/fused/fused.h"

namespace sinter {

std::span<const OpDef* const> fused_ops() {
  static constexpr const OpDef* kList[] = {&kLinearActOp, &kInputGradActOp, &kWeightBiasGradOp,
      &kWeightGradUpdateOp, &kMultiTensorUpdateOp, &kSoftmaxXentOp, &kClassifierHeadOp,
      &kMergeLinearOp, &kGluOp, &kGluBackwardOp, &kGatedLinearOp, &kGatedLinearBackwardOp,
      &kNarrowMlpOp, &kPointwiseChainOp, &kClipNormOp};
  return kList;
}

}  // namespace sinter
