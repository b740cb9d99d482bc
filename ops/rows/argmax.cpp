// argmax over one dim: the index (i64) of the first maximum; a NaN counts as the largest. No
// gradient.
#include "core/parallel.h"
#include "ops/kernels.h"
#include "ops/ops.h"
#include "ops/rows/row_cpu.h"

namespace sinter {
namespace {

Tensors infer(Operands in, const Attrs& attrs) {
  const Tensor& x = in[0];
  const int dim = normalize_dim("argmax", attrs.as<DimAttrs>().dim, x.rank());
  SINTER_CHECK(x.size(dim) > 0, shape,
      cat("argmax: nothing to compare: x is ", x.describe(), "; dim ", dim,
          " must have at least 1 element, it has 0"));
  Shape shape;
  for (int d = 0; d < x.rank(); ++d) {
    if (d != dim) shape.push_back(x.size(d));
  }
  return {Tensor::shape_only(shape, DType::i64, x.device())};
}

void cpu(const Call& call) {
  const Tensor& x = call.in[0];
  const int dim = normalize_dim("argmax", call.as<DimAttrs>().dim, x.rank());
  const int64_t n = x.size(dim), inner = numel_of_dims(x, dim + 1);
  visit_float(x.dtype(), [&]<class T>(T) {
    using V = compute_t<T>;
    parallel_for(
        call.out[0].numel(), grain_of(2 * n * int64_t(sizeof(T))), [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) {
            const T* p = x.data<T>() + i / inner * n * inner + i % inner;
            int64_t best = 0;
            V m = V(p[0]);
            for (int64_t j = 1; j < n; ++j) {
              const V v = V(p[j * inner]);
              if (!on_cpu::is_larger(v, m)) continue;
              best = j;
              m = v;
            }
            call.out[0].data<int64_t>()[i] = best;
          }
        });
  });
}

}  // namespace

const OpDef kArgmaxOp =
    listed<kArgmaxOp>({.formula = "y = the index of the first maximum along a dim",
        .attrs = attr_type<DimAttrs>(),
        .infer = infer,
        .cost = cost_per_element<1>,
        .cpu = cpu});

Tensor argmax(const Tensor& x, int64_t dim) { return apply1(kArgmaxOp, {x}, DimAttrs{dim}); }

}  // namespace sinter
