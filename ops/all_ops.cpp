// All ops, from their lists: structured ops in ops/ops.h, pointwise ops in
// ops/pointwise/pointwise.h (pointwise_ops() is that of their steps, chain.cpp), fused ops in
// ops/fused/fused.h.
#include "ops/fused/fused.h"

namespace sinter {

#define SINTER_ADDRESS(op, ...) &op,

std::span<const OpDef* const> fused_ops() {
  static constexpr const OpDef* kList[] = {SINTER_FUSED_OPS(SINTER_ADDRESS)};
  return kList;
}

std::span<const OpDef* const> all_ops() {
  static const std::vector<const OpDef*> ops = [] {
    std::vector<const OpDef*> list{SINTER_STRUCTURED_OPS(SINTER_ADDRESS, SINTER_ADDRESS)};
    for (const auto more : {pointwise_ops(), fused_ops()})
      list.insert(list.end(), more.begin(), more.end());
    return list;
  }();
  return ops;
}

const OpDef* find_op(std::string_view name) {
  for (const OpDef* op : all_ops()) {
    if (op->text() == name) return op;
  }
  return nullptr;
}

}  // namespace sinter
