// Samples of gather_batch.
#include "ops/ops.h"
#include "tests/ops/samples/samples.h"

namespace sinter {
namespace {

Tensor bytes_of(const Shape& shape) {
  Tensor t = Tensor::empty(shape, DType::u8);
  for (int64_t i = 0; i < t.numel(); ++i) t.data<uint8_t>()[i] = static_cast<uint8_t>(i * 37);
  return t;
}

std::vector<Sample> gather_batch_samples() {
  const auto make = [](const Shape& images, const std::vector<int64_t>& index, bool mnist,
                        const char* what) {
    return Sample{.in = {bytes_of(images), sample_labels(images[0], 10, 3),
                      Tensor::from(index, {static_cast<int64_t>(index.size())})},
        .attrs = GatherBatchAttrs{.mnist = mnist},
        .what = what,
        .differentiable = false};
  };
  Sample few = make({5, 4}, {1}, false, "a label is missing"),
         type = make({5, 4}, {1}, false, "f64 images");
  few.in[1] = sample_labels(4, 10, 3);
  type.in[0] = sample_tensor({5, 4}, 1);
  few.bad = type.bad = true;
  return {make({9, 28, 28}, {3, 0, 3, 8}, false, "images, one twice"),
      make({9, 28, 28}, {3, 0, 7}, true, "normalised"), make({7, 5, 3}, {6, 2}, false, "odd size"),
      make({4, 6}, {}, true, "empty batch"), few, type};
}

const Samples gather_batch_samples_of(kGatherBatchOp, gather_batch_samples);

}  // namespace
}  // namespace sinter
