// pad_slice: the adjoint of slice, dy inside zeros along one dim.
#include <cstring>

#include "core/parallel.h"
#include "ops/kernels.h"

namespace sinter {
namespace {

Tensors infer(Operands in, const Attrs& attrs) {
  const auto& a = attrs.as<PadSliceAttrs>();
  const int d = normalize_dim("pad_slice", a.dim, in[0].rank());
  SINTER_CHECK(a.begin >= 0 && a.begin + in[0].size(d) <= a.size, shape,
      cat("pad_slice: out of range: dy is ", in[0].describe(), "; begin ", a.begin, " of dim ", d,
          ", which has ", a.size));
  Shape shape = in[0].shape();
  shape[d] = a.size;
  return {Tensor::shape_only(shape, in[0].dtype(), in[0].device())};
}

void cpu(const Call& call) {
  const auto& a = call.as<PadSliceAttrs>();
  const Tensor &dy = call.in[0], &dx = call.out[0];
  const int d = normalize_dim("pad_slice", a.dim, dy.rank());
  const int64_t outer = numel_of_dims(dy, 0, d),
                inner = numel_of_dims(dy, d + 1) * int64_t(size_of(dy.dtype()));
  const int64_t part = dy.size(d) * inner, whole = a.size * inner, skip = a.begin * inner;
  if (whole == 0) return;
  parallel_for(outer, grain_of(whole), [&](int64_t begin, int64_t end) {
    for (int64_t o = begin; o < end; ++o) {
      char* to = static_cast<char*>(dx.raw()) + o * whole;
      std::memset(to, 0, size_t(skip));
      if (part) std::memcpy(to + skip, static_cast<const char*>(dy.raw()) + o * part, size_t(part));
      std::memset(to + skip + part, 0, size_t(whole - skip - part));
    }
  });
}

Tensors backward(const Saved& saved, Operands grads) {
  const auto& a = saved.as<PadSliceAttrs>();
  return {slice(grads[0], a.dim, a.begin, a.begin + saved.in[0].size(int(a.dim)))};
}

}  // namespace

const OpDef kPadSliceOp{.name = "pad_slice",
    .formula = "dx = dy inside zeros",
    .signature = kSignature<kPadSliceOp>,
    .attrs = attr_type<PadSliceAttrs>(),
    .infer = infer,
    .cost = cost_per_element<0>,
    .cpu = cpu,
    SINTER_KERNELS(pad_slice),
    .backward = backward};

}  // namespace sinter
