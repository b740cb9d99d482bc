// Samples of accumulate.
#include "ops/ops.h"
#include "tests/ops/samples/samples.h"

namespace sinter {
namespace {

std::vector<Sample> accumulate_samples() {
  return {{{sample_tensor({5, 7}, 1), sample_tensor({5, 7}, 2)}, {}, "odd"},
      {{sample_tensor({4, 6}, 3), transpose(sample_tensor({6, 4}, 4))}, {}, "transposed value"},
      {{sample_tensor({0, 6}, 5), sample_tensor({0, 6}, 6)}, {}, "empty batch"},
      bad_sample({sample_tensor({4, 6}, 7), sample_tensor({6}, 8)}, {}, "shapes differ"),
      bad_sample(
          {transpose(sample_tensor({4, 6}, 7)), sample_tensor({6, 4}, 8)}, {}, "strided target")};
}

const Samples accumulate_samples_of(kAccumulateOp, accumulate_samples);

}  // namespace
}  // namespace sinter
