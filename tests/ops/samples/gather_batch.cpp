// Samples of gather_batch.
#include "ops/ops.h"
#include "tests/ops/samples/samples.h"

namespace sinter {
namespace {

Tensor bytes_of(const Shape& shape) {
  Tensor t = Tensor::empty(shape, DType::u8);
  for (int64_t i = 0; i < t.numel(); ++i) t.data<uint8_t>()[i] = uint8_t(i * 37);
  return t;
}

std::vector<Sample> gather_batch_samples() {
  const auto make = [](const Shape& images, const std::vector<int64_t>& index, bool mnist,
                        const char* what) {
    return fixed_sample({bytes_of(images), sample_labels(images[0], 10, 3),
                            Tensor::from(index, {int64_t(index.size())})},
        GatherBatchAttrs{.mnist = mnist}, what);
  };
  Sample few = make({5, 4}, {1}, false, "a label is missing"),
         type = make({5, 4}, {1}, false, "f64 images");
  few.in[1] = sample_labels(4, 10, 3);
  type.in[0] = sample_tensor({5, 4}, 1);
  const auto drawn = [&](int64_t cursor, int64_t rows, const char* what) {
    Sample sample = make({9, 28, 28}, {3, 0, 8, 1, 5, 2}, true, what);
    sample.in.push_back(Tensor::from(std::vector<int64_t>{cursor}, {1}));
    sample.attrs = GatherBatchAttrs{.mnist = true, .rows = rows, .stride = 2};
    return sample;
  };
  Sample long_batch = drawn(0, 7, "more rows than indices"),
         stray = make({9, 4}, {3, 0}, false, "rows without a cursor");
  stray.attrs = GatherBatchAttrs{.rows = 2};
  few.bad = type.bad = long_batch.bad = stray.bad = true;
  return {drawn(0, 2, "from the start of an epoch"), drawn(4, 2, "its last rows"), long_batch,
      stray, make({9, 28, 28}, {3, 0, 3, 8}, false, "images, one twice"),
      make({9, 28, 28}, {3, 0, 7}, true, "normalised"), make({7, 5, 3}, {6, 2}, false, "odd size"),
      make({4, 6}, {}, true, "empty batch"), make({4, 0}, {2, 0, 3}, true, "no pixels"), few, type};
}

const Samples gather_batch_samples_of(kGatherBatchOp, gather_batch_samples);

}  // namespace
}  // namespace sinter
