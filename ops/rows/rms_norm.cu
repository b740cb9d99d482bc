// rms_norm over the last dim and its backwards (formulas: ops/rows/row_formulas.h).
#include "ops/rows/reduce.cuh"
#include "ops/rows/row.cuh"

namespace sinter::SINTER_KERNEL_NS {

// dweight of a column is the sum of these over its rows.
template <class T> struct RmsNormTerms {
  using V = compute_t<T>;
  In<T> dy, x;
  In<V> rstd;
  int64_t cols;
  SINTER_DEVICE_FN V operator()(int64_t i) const { return V(dy[i]) * (V(x[i]) * rstd[i / cols]); }
};

void rms_norm(const Call& call) { run_op<RmsNorm>(call); }
void rms_norm_backward(const Call& call) { run_op<RmsNormBackward>(call); }

void rms_norm_weight_grad(const Call& call) {
  const Tensor &dy = call.in[0], &dweight = call.out[0];
  if (dweight.numel() == 0) return;
  visit_float(dy.dtype(), [&]<class T>(T) {
    using V = compute_t<T>;
    const RmsNormTerms<T> terms{in<T>(dy), in<T>(call.in[1]), in<V>(call.in[2]), dweight.numel()};
    reduce_by_columns<SumOf, V>(terms, dweight, reduction_of(dy.shape(), all_but_last(dy.shape())));
  });
}

}  // namespace sinter::SINTER_KERNEL_NS
