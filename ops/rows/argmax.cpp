// argmax over one dim: the index (i64) of the first maximum; a NaN counts as the largest. No
// gradient.
#include "ops/kernels.h"
#include "ops/ops.h"
#include "ops/rows/row_cpu.h"

namespace sinter {
namespace {

Tensors infer(Operands in, const Attrs& attrs) {
  const Tensor& x = in[0];
  const int dim = normalize_dim("argmax", attrs.as<DimAttrs>().dim, x.rank());
  SINTER_CHECK(x.size(dim) > 0, shape,
      str("argmax: nothing to compare: x is ", x.describe(), "; dim ", dim,
          " must have at least 1 element, it has 0"));
  Shape shape;
  for (int d = 0; d < x.rank(); ++d) {
    if (d != dim) shape.push_back(x.size(d));
  }
  return {Tensor::shape_only(shape, DType::i64, x.device())};
}

void cpu(const Call& call) {
  visit_float(call.in[0].dtype(), [&]<class T>(T) {
    const on_cpu::Argmax<T> argmax(call);
    parallel_for(argmax.rows, grain_of(2 * argmax.cols * int64_t(sizeof(T))),
        [&](int64_t begin, int64_t end) {
          for (int64_t row = begin; row < end; ++row) argmax.template run<on_cpu::OneLane>(row);
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
