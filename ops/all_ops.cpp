// The list of all ops. A new structured op gets its row here; pointwise ops come from the list in
// ops/pointwise.h, fused ones from ops/fused/fused_ops.cpp.
#include "ops/fused/fused.h"
#include "ops/gather_batch.h"
#include "ops/structured.h"

namespace sinter {

namespace pointwise_detail {
std::vector<const OpDef*> arithmetic_ops();  // pointwise_arithmetic.cpp
std::vector<const OpDef*> activation_ops();  // pointwise_activations.cpp
}  // namespace pointwise_detail

std::span<const OpDef* const> pointwise_ops() {
  static const std::vector<const OpDef*> ops = [] {
    std::vector<const OpDef*> list = pointwise_detail::arithmetic_ops();
    const std::vector<const OpDef*> activations = pointwise_detail::activation_ops();
    list.insert(list.end(), activations.begin(), activations.end());
    return list;
  }();
  return ops;
}

std::span<const OpDef* const> all_ops() {
  static const std::vector<const OpDef*> ops = [] {
    std::vector<const OpDef*> list{
        &kLinearOp,
        &kMatmulOp,
        &kSumRowsOp,
        &kSumOp,
        &kMeanOp,
        &kMaxOp,
        &kMaxBackwardOp,
        &kArgmaxOp,
        &kSoftmaxOp,
        &kSoftmaxBackwardOp,
        &kLogSoftmaxOp,
        &kLogSoftmaxBackwardOp,
        &kNllOp,
        &kNllBackwardOp,
        &kMseOp,
        &kMseBackwardOp,
        &kDropoutOp,
        &kGatherRowsOp,
        &kGatherBatchOp,
        &kScatterAddRowsOp,
        &kCopyOp,
        &kCastOp,
        &kAccumulateOp,
        &kReshapeOp,
        &kTransposeOp,
        &kSliceOp,
        &kPadSliceOp,
        &kBroadcastToOp,
        &kLowPrecisionOp,
        &kDetachOp,
        &kSgdUpdateOp,
        &kAdamUpdateOp,
        &kSquaredNormOp,
        &kClipInPlaceOp,
    };
    list.insert(list.end(), pointwise_ops().begin(), pointwise_ops().end());
    const auto fused = fused_ops();
    list.insert(list.end(), fused.begin(), fused.end());
    return list;
  }();
  return ops;
}

}  // namespace sinter
