// Gradient clipping by the global norm: squared_norm of every gradient, then clip_in_place by their
// total, which stays on the device.
#include "ops/rows/clip.h"

#include "ops/kernels.h"

namespace sinter {
namespace {

void norm_cpu(const Call& call) {
  visit_float(call.in[0].dtype(),
      [&]<class T>(T) { call.out[0].data<compute_t<T>>()[0] = sum_of_squares<T>(call.in); });
}

void check_clip(Operands in, const Attrs& attrs) {
  const double max_norm = attrs.as<ClipAttrs>().max_norm;
  SINTER_CHECK(in[1].numel() == 1, shape,
      cat("clip_in_place: one total is wanted: ", describe({{"x", &in[0]}, {"total", &in[1]}}),
          "; total must have 1 element"));
  SINTER_CHECK(max_norm > 0, usage,
      cat("clip_in_place: max_norm out of range: ", max_norm, "; it must be > 0"));
}
void clip_cpu(const Call& call) {
  visit_float(call.in[0].dtype(), [&]<class T>(T) {
    using V = compute_t<T>;
    const V total =
        visit_float(call.in[1].dtype(), [&]<class W>(W) { return V(*call.in[1].data<W>()); });
    scale_by<T>(call.in.first(1), on_cpu::clip_factor(total, V(call.as<ClipAttrs>().max_norm)));
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
