// Gradient clipping by the global norm: squared_norm of every gradient, then clip_in_place by their
// total, which stays on the device.
#include "ops/kernels.h"
#include "ops/ops.h"
#include "ops/rows/row_loops.h"

namespace sinter {
namespace {

constexpr int64_t kPiece =
    8192;  // squares are summed in pieces of this size, whatever the number of threads

void norm_cpu(const Call& call) {
  const int64_t n = call.in[0].numel(), pieces = (n + kPiece - 1) / kPiece;
  visit_float(call.in[0].dtype(), [&]<class T>(T) {
    using V = compute_t<T>;
    const T* x = call.in[0].data<T>();
    V* sums = thread_buffer<V, BufferFor::kernel>(pieces);
    parallel_for(pieces, grain_of(kPiece * int64_t(sizeof(T))), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        sums[i] =
            row_sum<V>(x + i * kPiece, std::min(kPiece, n - i * kPiece), [](V v) { return v * v; });
    });
    call.out[0].data<V>()[0] = row_sum<V>(sums, pieces, [](V v) { return v; });
  });
}

void check_clip(Operands in, const Attrs& attrs) {
  const double max_norm = attrs.as<ClipAttrs>().max_norm;
  SINTER_CHECK(in[1].numel() == 1, shape,
      cat("clip_in_place: one total is wanted: ", describe({{"x", &in[0]}, {"total", &in[1]}}),
          "; total must have 1 element"));
  SINTER_CHECK(max_norm > 0, usage,
      cat("clip_in_place: max_norm out of range: ", max_norm, "; it must be > 0"));
}
Cost clip_cost(Operands in, Operands out, const Attrs&) {
  return cost_of(in[0].numel(), in, out, &kClipInPlaceOp);
}

void clip_cpu(const Call& call) {
  const Tensor& x = call.in[0];
  visit_float(x.dtype(), [&]<class T>(T) {
    using V = compute_t<T>;
    const V total =
        visit_float(call.in[1].dtype(), [&](auto w) { return V(*call.in[1].data<decltype(w)>()); });
    const V norm = math::sqrt(total), limit = V(call.as<ClipAttrs>().max_norm);
    if (norm <= limit) return;
    const V factor = limit / norm;  // a NaN norm reaches the gradients, and so the loss
    T* p = x.data<T>();
    parallel_for(x.numel(), grain_of(2 * sizeof(T)), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) p[i] = T(V(p[i]) * factor);
    });
  });
}

}  // namespace

const OpDef kSquaredNormOp{.name = "squared_norm",
    .formula = "y = sum of x^2",
    .signature = kSignature<kSquaredNormOp>,
    .cost = cost_per_element<2>,
    .cpu = norm_cpu,
    SINTER_KERNELS(squared_norm)};
const OpDef kClipInPlaceOp{.name = "clip_in_place",
    .formula = "x *= min(1, max_norm / sqrt(total))",
    .signature = kSignature<kClipInPlaceOp>,
    .attrs = attr_type<ClipAttrs>(),
    .check = check_clip,
    .cost = clip_cost,
    .cpu = clip_cpu,
    SINTER_KERNELS(clip_in_place),
    .strided = 0b01};

Tensor squared_norm(const Tensor& x) { return apply1(kSquaredNormOp, {x}); }
void clip_in_place(const Tensor& x, const Tensor& total_squared, double max_norm) {
  apply(kClipInPlaceOp, {x, total_squared}, ClipAttrs{max_norm});
}

}  // namespace sinter
