// Samples of clip_norm.
#include "ops/fused/fused.h"
#include "tests/ops/samples/samples.h"

namespace sinter {
namespace {

std::vector<Sample> clip_norm_samples() {
  const auto make = [](std::initializer_list<Shape> shapes, double max_norm, const char* what) {
    Sample s = fixed_sample({}, ClipAttrs{max_norm}, what);
    for (const Shape& shape : shapes) s.in.push_back(sample_tensor(shape, s.in.size() + 1));
    return s;
  };
  Sample strided = make({{4, 6}}, 1, "strided");
  strided.in[0] = transpose(sample_tensor({6, 4}, 1));
  strided.bad = true;
  return {make({{77, 333}, {77}, {0, 3}, {1}}, 1, "odd, clipped"),
      make({{17, 33}, {33}}, 1e6, "within"), make({{5}}, 0.5, "one gradient"), strided};
}

const Samples clip_norm_samples_of(kClipNormOp, clip_norm_samples);

}  // namespace
}  // namespace sinter
