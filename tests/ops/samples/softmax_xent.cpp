// Samples of softmax_xent.
#include "ops/fused/fused.h"
#include "tests/ops/samples/samples.h"

namespace sinter {
namespace {

std::vector<Sample> softmax_xent_samples() {
  const auto make = [](Tensor logits, double smoothing, bool grad, const char* what) {
    const int64_t rows = logits.size(0), classes = logits.size(1);
    Sample s = fixed_sample({std::move(logits), sample_labels(rows, classes, 2)},
        SoftmaxXentAttrs{smoothing, grad}, what);
    if (grad)
      s.in.push_back(
          broadcast_to(Tensor::full({1}, rows ? 1.0 / double(rows) : 1, DType::f64), {rows}));
    return s;
  };
  Tensor extreme = sample_tensor({5, 10}, 3);
  double* z = extreme.data<double>();
  z[2] = 120;                    // one certain class
  std::fill_n(z + 10, 10, 3.0);  // all equal
  z[25] = std::numeric_limits<double>::quiet_NaN();
  z[33] = std::numeric_limits<double>::infinity();
  std::fill_n(z + 40, 10, -std::numeric_limits<double>::infinity());
  Sample per_row = make(sample_tensor({17, 77}, 4), 0.1, true, "a gradient of its own per row");
  per_row.in[2] = sample_tensor({17}, 5);
  Sample ignored = make(sample_tensor({19, 7}, 8), 0.1, true, "rows without a label");
  for (const int64_t r : {0, 3, 4, 17, 18}) ignored.in[1].data<int32_t>()[r] = kNoLabel;
  Sample counts = make(sample_tensor({4, 5}, 1), 0, true, "counts differ"),
         no_gradient = make(sample_tensor({4, 5}, 1), 0, true, "no gradient");
  counts.in[1] = sample_labels(3, 5, 2);
  no_gradient.in.pop_back();
  counts.bad = no_gradient.bad = true;
  return {make(sample_tensor({97, 10}, 1), 0, true, "odd"),
      make(sample_tensor({1, 333}, 1), 0, true, "one row"),
      make(sample_tensor({17, 77}, 1), 0.1, true, "smoothed"),
      make(sample_tensor({0, 10}, 1), 0, true, "empty batch"),
      make(sample_tensor({17, 10}, 1), 0, false, "loss only"),
      make(sample_tensor({9, 6}, 6), 0.3, false, "loss only, smoothed"),
      make(sample_tensor({16, 1}, 1), 0, true, "one class"), make(extreme, 0, true, "extreme rows"),
      per_row, ignored, counts, no_gradient};
}

const Samples softmax_xent_samples_of(kSoftmaxXentOp, softmax_xent_samples);

}  // namespace
}  // namespace sinter
