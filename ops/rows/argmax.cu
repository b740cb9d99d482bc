// argmax over one dim: the index of the first maximum; the first NaN, if there is one.
#include "ops/ops.h"
#include "ops/pointwise/pointwise_kernels.cuh"
#include "ops/rows/row_formulas.h"

namespace sinter::SINTER_KERNEL_NS {

// index[o, c] over x[o, 0..n, c]. kLanes threads own one result: a warp, each lane the elements
// lane, lane + 32, .. (inner = 1, so that reads run together), or one thread (inner > 1: neighbours
// do). Reads x once.
template <class T, int kLanes>
SINTER_KERNEL_BOUNDS(kItemBlock)
argmax_lanes(int64_t results, int64_t n, int64_t inner, In<T> x, Out<int64_t> index) {
  using V = compute_t<T>;
  const int64_t task = first_item() / kLanes;
  if (task >= results) return;  // whole warps, if lanes meet
  const int64_t o = task / inner, base = o * n * inner + task - o * inner,
                first = kLanes == 1 ? 0 : lane();
  V best = V(x[base]);
  int64_t at = 0;
  for (int64_t j = first; j < n; j += kLanes) {
    const V v = V(x[base + j * inner]);
    if (is_larger(v, best)) {
      best = v;
      at = j;
    }
  }
  if constexpr (kLanes > 1) {
    SINTER_UNROLL
    for (int mask = 16; mask > 0; mask >>= 1) {
      const V v = shfl_xor(best, mask);
      const int64_t j = shfl_xor(at, mask);
      if (is_larger(v, best) || (!is_larger(best, v) && j < at)) {
        best = v;
        at = j;
      }
    }
  }
  if (kLanes == 1 || lane() == 0) index.put(task, at);
}

void argmax(const Call& call) {
  const Tensor &x = call.in[0], &index = call.out[0];
  const int64_t results = index.numel();
  if (results == 0) return;
  const int dim = normalize_dim("argmax", call.as<DimAttrs>().dim, x.rank());
  const int64_t n = x.size(dim), inner = numel_of_dims(x, dim + 1);
  visit_float(x.dtype(), [&]<class T>(T) {
    if (inner == 1) {
      launch<argmax_lanes<T, 32>>({blocks_for(results, kItemBlock / 32)}, kItemBlock, 0, results, n,
          inner, in<T>(x), out<int64_t>(index));
    } else {
      launch<argmax_lanes<T, 1>>({blocks_for(results, kItemBlock)}, kItemBlock, 0, results, n,
          inner, in<T>(x), out<int64_t>(index));
    }
  });
}

}  // namespace sinter::SINTER_KERNEL_NS
