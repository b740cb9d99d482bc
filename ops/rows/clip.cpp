// Gradient clipping by the global norm: squared_norm of every gradient, then clip_in_place by their
// total, which stays on the device.
#include "ops/rows/clip.h"

#include "ops/kernels.h"

namespace sinter {
namespace {

void norm_cpu(const Call& call) {
  visit_float(call.in[0].dtype(),
      [&]<class T>(T) { call.out[0].data<double>()[0] = sum_of_squares<T>(call.in); });
}

void check_clip(Operands, const Attrs& attrs) {
  const double max_norm = attrs.as<ClipAttrs>().max_norm;
  SINTER_CHECK(max_norm > 0, usage,
      str("clip_in_place: max_norm out of range: ", max_norm, "; it must be > 0"));
}
void clip_cpu(const Call& call) {
  visit_float(call.in[0].dtype(), [&]<class T>(T) {
    scale_by<T>(call.in.first(1), *call.in[1].data<double>(), call.as<ClipAttrs>().max_norm);
  });
}

}  // namespace

const OpDef kSquaredNormOp = listed<kSquaredNormOp>(
    {.formula = "y = sum of x^2", .cost = cost_per_element<2>, .cpu = norm_cpu});
const OpDef kClipInPlaceOp =
    listed<kClipInPlaceOp>({.formula = "x *= min(1, max_norm / sqrt(total))",
        .attrs = attr_type<ClipAttrs>(),
        .check = check_clip,
        .cost = cost_per_element<kClipInPlaceOp, 1>,
        .cpu = clip_cpu,
        .strided = 0b01});

Tensor squared_norm(const Tensor& x) { return apply1(kSquaredNormOp, {x}); }
void clip_in_place(const Tensor& x, const Tensor& total_squared, double max_norm) {
  apply(kClipInPlaceOp, {x, total_squared}, ClipAttrs{max_norm});
}

}  // namespace sinter
