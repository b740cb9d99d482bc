// softmax_xent: by a warp for rows that it holds in registers, by a block for longer ones, which
// reads z three times, from the cache, and once more with label smoothing.
#include "ops/fused/fused.h"
#include "ops/rows/row.cuh"

namespace sinter::SINTER_KERNEL_NS {

void softmax_xent(const Call& call) {
  const auto& attrs = call.as<SoftmaxXentAttrs>();
  run_xent<XentRows>(call, attrs.label_smoothing, attrs.low);
}

}  // namespace sinter::SINTER_KERNEL_NS
