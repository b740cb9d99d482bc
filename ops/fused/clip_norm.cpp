// clip_norm: n gradients, all scaled in place by min(1, max_norm / norm of all): the norm is taken
// in one pass over every tensor, then the scaling in another, if any is needed. Squares are summed
// in pieces of fixed size: the same bits for any number of threads.
#include "core/math.h"
#include "ops/fused/fused.h"
#include "ops/fused/reference.h"
#include "ops/kernels.h"
#include "ops/ops.h"
#include "ops/rows/row_loops.h"

namespace sinter {
namespace {

constexpr int64_t kPiece = 8192;

// Not the reference's: the gradients are read and written in place.
Cost cost(Operands in, Operands out, const Attrs&) {
  int64_t n = 0;
  for (const Tensor& t : in) n += t.numel();
  return cost_of(3 * n, in, out, &kClipNormOp);
}

// f(tensor, first element, elements, number of the piece) for the pieces of all tensors, on all
// threads.
template <class T, class F> void for_pieces(Operands in, int64_t pieces, const F& f) {
  parallel_for(pieces, grain_of(kPiece * int64_t(sizeof(T))), [&](int64_t begin, int64_t end) {
    int64_t piece = 0;
    for (const Tensor& t : in) {
      for (int64_t at = 0; at < t.numel(); at += kPiece, ++piece) {
        if (piece >= begin && piece < end)
          f(t.data<T>() + at, std::min(kPiece, t.numel() - at), piece);
      }
    }
  });
}

void cpu(const Call& call) {
  int64_t pieces = 0;
  for (const Tensor& t : call.in) pieces += (t.numel() + kPiece - 1) / kPiece;
  visit_float(call.in[0].dtype(), [&]<class T>(T) {
    using V = compute_t<T>;
    V* sums = thread_buffer<V, BufferFor::kernel>(pieces);
    for_pieces<T>(call.in, pieces, [&](const T* p, int64_t n, int64_t piece) {
      sums[piece] = row_sum<V>(p, n, [](V v) { return v * v; });
    });
    const V norm = math::sqrt(row_sum<V>(sums, pieces, [](V v) { return v; })),
            limit = V(call.as<ClipAttrs>().max_norm);
    if (norm <= limit) return;
    const V factor = limit / norm;  // NaN norms reach the gradients and so the loss
    for_pieces<T>(call.in, pieces, [&](T* p, int64_t n, int64_t) {
      for (int64_t i = 0; i < n; ++i) p[i] = T(V(p[i]) * factor);
    });
  });
}

Tensors reference(Operands in, const Attrs& attrs) {
  const Tensor total = squared_norm(in[0]);
  for (const Tensor& t : in.subspan(1)) accumulate(total, squared_norm(t));
  for (const Tensor& t : in) clip_in_place(t, total, attrs.as<ClipAttrs>().max_norm);
  return {};
}

}  // namespace

const OpDef kClipNormOp{.name = "clip_norm",
    .formula = "every g *= min(1, max_norm / |all g|)",
    .min_inputs = 1,
    .max_inputs = 1 << 20,
    .attrs = attr_type<ClipAttrs>(),
    .infer = infer_of<kClipNormOp>,
    .cost = cost,
    .cpu = cpu,
    SINTER_KERNELS(clip_norm),
    .writes_of = [](size_t, size_t) { return true; },
    .reference = reference};

}  // namespace sinter
