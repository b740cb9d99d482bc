// Samples of classifier_head.
#include "ops/fused/activation.h"
#include "ops/fused/fused.h"
#include "tests/ops/samples/samples.h"

namespace sinter {
namespace {

std::vector<Sample> classifier_head_samples() {
  const auto make = [](int64_t b, int64_t c, int64_t h, Act act, const char* what,
                        double smoothing = 0, bool bias = true) {
    Tensor saved = sample_tensor({b, h}, 3, -0.9, 0.9);
    if (act == Act::relu) saved = relu(saved);
    const Tensor seed =
        broadcast_to(Tensor::full({1}, b ? 1.0 / static_cast<double>(b) : 1, DType::f64), {b});
    return Sample{.in = {sample_tensor({b, h}, 1, 0, 1), sample_tensor({c, h}, 2, -1, 1),
                      sample_labels(b, c, 5), seed, bias ? sample_tensor({c}, 4) : Tensor(),
                      act == Act::none ? Tensor() : saved},
        .attrs = HeadAttrs{act, smoothing},
        .what = what,
        .differentiable = false};
  };
  Sample per_row = make(33, 10, 40, Act::relu, "a gradient of its own per row"),
         wide = make(4, 65, 6, Act::relu, "too many classes"),
         saved = make(4, 5, 6, Act::relu, "saved of another shape"),
         labels = make(4, 5, 6, Act::relu, "labels differ"),
         gelu = make(4, 5, 6, Act::gelu, "neither relu nor none");
  per_row.in[3] = sample_tensor({33}, 6);
  Sample extreme = make(5, 10, 24, Act::relu, "extreme logits");
  extreme.in[4].data<double>()[2] = 120;
  std::fill_n(extreme.in[0].data<double>(), 24, 0.0);
  saved.in[5] = sample_tensor({5, 6}, 3);
  labels.in[2] = sample_labels(3, 5, 5);
  for (Sample* s : {&wide, &saved, &labels, &gelu}) {
    for (Tensor& t : s->in) t = t.dtype() == DType::f64 ? cast(t, DType::f32) : t;
    s->bad = true;
  }
  return {make(17, 10, 333, Act::relu, "odd"),
      make(97, 33, 77, Act::relu, "ragged, many classes", 0.1),
      make(1, 10, 128, Act::relu, "one row"), make(0, 10, 128, Act::relu, "empty batch"),
      make(64, 16, 128, Act::relu, "whole tiles"),
      make(15, 17, 256, Act::relu, "two chunks, no bias", 0, false),
      make(16, 1, 40, Act::relu, "one class"), make(17, 64, 300, Act::relu, "many classes"),
      make(31, 10, 65, Act::none, "no activation"), per_row, extreme, wide, saved, labels, gelu};
}

const Samples classifier_head_samples_of(kClassifierHeadOp, classifier_head_samples);

}  // namespace
}  // namespace sinter
