// tril: y[.., r, c] = x[.., r, c] if c <= r + diagonal, else 0.   S rows, T columns
#include "ops/ops.h"
#include "ops/pointwise/pointwise_kernels.cuh"

namespace sinter::SINTER_KERNEL_NS {

// Thread: one number of y. Reads the x that stay, writes y once.
template <class N>
SINTER_KERNEL_BOUNDS(kItemBlock)
tril_elements(int64_t n, int64_t S, int64_t T, int64_t diagonal, In<N> x, Out<N> y) {
  for (int64_t i = first_item(); i < n; i += item_step()) {
    const int64_t row = i / T;
    y.put(i, i - row * T <= row % S + diagonal ? x[i] : N(0));
  }
}

void tril(const Call& call) {
  const Tensor &x = call.in[0], &y = call.out[0];
  if (y.numel() == 0) return;
  visit_float(x.dtype(), [&]<class N>(N) {
    launch<tril_elements<N>>(item_grid(y.numel()), kItemBlock, 0, y.numel(), y.size(-2), y.size(-1),
        call.as<TrilAttrs>().diagonal, in<N>(x), out<N>(y));
  });
}

}  // namespace sinter::SINTER_KERNEL_NS
