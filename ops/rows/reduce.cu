// Reductions: sum, mean, max over any dims, sum_rows, and max_backward; one launch each.
#include "ops/ops.h"
#include "ops/rows/reduce.cuh"

namespace sinter::SINTER_KERNEL_NS {

// dx = dy at the first term that equals the maximum y (the first NaN if it is NaN), else 0. A warp
// owns an output and all its terms. Reads dy, y once and x up to once, writes dx.
template <class T>
SINTER_KERNEL max_backward_kernel(In<T> dy, In<T> x, In<T> y, Out<T> dx, Reduction r) {
  using V = compute_t<T>;
  const int64_t o = block_x() * warps_per_block() + warp();
  if (o >= r.outputs) return;
  const int64_t at = r.kept.offset(o);
  const V m = V(y[o]);
  int64_t first = r.terms;
  for (int64_t k = lane(); k < first; k += 32) {
    const V v = V(x[at + r.reduced.offset(k)]);
    if (v == m || (v != v && m != m)) first = k;
  }
  SINTER_UNROLL
  for (int mask = 16; mask > 0; mask >>= 1) {
    const int64_t other = shfl_xor(first, mask);
    first = other < first ? other : first;
  }
  const T g = dy[o];
  for (int64_t k = lane(); k < r.terms; k += 32)
    dx.put(at + r.reduced.offset(k), k == first ? g : T(V(0)));
}

namespace {

Reduction called_reduction(const Call& call, const Shape& x) {
  const Dims& dims = call.as<ReduceAttrs>().dims;
  uint32_t mask = dims.rank() ? 0 : ~0u;
  for (const int64_t dim : dims) mask |= 1u << normalize_dim(call.op.name.c_str(), dim, x.rank());
  return reduction_of(x, mask);
}

template <class R> void reduce_call(const Call& call, bool mean = false) {
  const Tensor &x = call.in[0], &y = call.out[0];
  if (y.numel() == 0) return;
  visit_float(x.dtype(),
      [&]<class T>(T) { reduce<R, T, T>(x, y, called_reduction(call, x.shape()), mean); });
}

}  // namespace

void sum(const Call& call) { reduce_call<SumOf>(call); }
void mean(const Call& call) { reduce_call<SumOf>(call, true); }
void max(const Call& call) { reduce_call<MaxOf>(call); }

void sum_rows(const Call& call) {
  const Tensor &x = call.in[0], &y = call.out[0];
  if (y.numel() == 0) return;
  visit_float(x.dtype(), [&]<class T>(T) {
    reduce<SumOf, T, compute_t<T>>(x, y, reduction_of(x.shape(), all_but_last(x.shape())));
  });
}

void max_backward(const Call& call) {
  const Tensor& x = call.in[1];
  if (x.numel() == 0) return;
  visit_float(x.dtype(), [&]<class T>(T) {
    const Reduction r = called_reduction(call, x.shape());
    launch<max_backward_kernel<T>>({blocks_for(r.outputs, 4)}, 128, 0, in<T>(call.in[0]), in<T>(x),
        in<T>(call.in[2]), out<T>(call.out[0]), r);
  });
}

}  // namespace sinter::SINTER_KERNEL_NS
