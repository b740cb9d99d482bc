// Samples of merge_linear.
#include "ops/fused/fused.h"
#include "ops/ops.h"
#include "tests/ops/samples/samples.h"

namespace sinter {
namespace {

std::vector<Sample> merge_linear_samples() {
  std::vector<Sample> all = samples_of(kLinearOp);
  std::erase_if(all, [](const Sample& s) { return s.bad; });  // linear's messages name linear
  return all;
}

const Samples merge_linear_samples_of(kMergeLinearOp, merge_linear_samples);

}  // namespace
}  // namespace sinter
