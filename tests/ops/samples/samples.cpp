#include "tests/ops/samples/samples.h"

#include <map>

#include "ops/fused/fused.h"
#include "ops/optim/update.h"

namespace sinter {
namespace {

using SampleTable = std::map<const OpDef*, std::vector<std::function<std::vector<Sample>()>>>;

SampleTable& sample_table() {
  static SampleTable table;
  return table;
}

}  // namespace

Samples::Samples(const OpDef& op, std::function<std::vector<Sample>()> make) {
  sample_table()[&op].push_back(std::move(make));
}

std::vector<Sample> samples_of(const OpDef& op) {
  std::vector<Sample> all;
  const auto row = sample_table().find(&op);
  if (row == sample_table().end()) return all;
  for (const auto& make : row->second) {
    for (Sample& sample : make()) all.push_back(std::move(sample));
  }
  return all;
}

static bool stays_wide(const OpDef& op, size_t i, size_t n) {
  if (&op == &kWeightGradUpdateOp) return i % kLayerOperands >= 2 || i >= n - kStepOperands;
  if (&op == &kLayerNormBackwardOp || &op == &kBatchNorm2dBackwardOp) return i >= 3;
  if (&op == &kLayerNormWeightGradOp || &op == &kBatchNorm2dWeightGradOp) return i >= 2;
  if (&op == &kAttentionBackwardOp) return i == 5;
  if (&op == &kRmsNormBackwardOp || &op == &kRmsNormWeightGradOp) return i == 2;
  if (&op == &kNormBackwardAddOp) return n == 6 ? i == 3 || i == 4 : i == 2;
  return &op == &kMultiTensorUpdateOp || (&op == &kSoftmaxXentOp && i == 2) ||
         (&op == &kRowChainOp && i == 2);
}

DType operand_type(const OpDef& op, size_t i, size_t n, DType dtype) {
  if (op.attrs == attr_type<UpdateAttrs>() && i + kStepOperands < n) {
    const size_t at = i % (&op == &kWeightGradUpdateOp ? kLayerOperands : kGroupOperands);
    if (&op == &kWeightGradUpdateOp ? at == 6 || at == 11 : at == kSkipped) return DType::f64;
  }
  if (&op == &kClipInPlaceOp && i == 1) return DType::f64;
  return stays_wide(op, i, n) ? wide(dtype) : dtype;
}

Sample fixed_sample(Tensors in, const Attrs& attrs, std::string what) {
  return {.in = std::move(in), .attrs = attrs, .what = std::move(what), .differentiable = false};
}

Sample bad_sample(Tensors in, const Attrs& attrs, std::string what) {
  Sample sample = fixed_sample(std::move(in), attrs, std::move(what));
  sample.bad = true;
  return sample;
}

}  // namespace sinter
