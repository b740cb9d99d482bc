// pad_slice: dx = dy inside zeros along one dim.
#include "ops/ops.h"
#include "ops/pointwise/pointwise_kernels.cuh"

namespace sinter::SINTER_KERNEL_NS {

// dx[o, j] = dy[o, j - skip] for skip <= j < skip + part, else 0; o the dims before the padded one,
// j those from it on, in units of N elements, one to a thread. Reads dy once, writes dx once.
template <class T, int N>
SINTER_KERNEL_BOUNDS(kItemBlock)
pad_slice_units(int64_t units, int64_t whole, int64_t skip, int64_t part, In<T> dy, Out<T> dx) {
  for (int64_t i = first_item(); i < units; i += item_step()) {
    const int64_t o = i / whole, j = i - o * whole - skip;
    Vec<T, N> v{};
    if (j >= 0 && j < part) v = dy.template load_vec<N>((o * part + j) * N);
    dx.store_vec(i * N, v);
  }
}

void pad_slice(const Call& call) {
  const auto& attrs = call.as<PadSliceAttrs>();
  const Tensor &dy = call.in[0], &dx = call.out[0];
  const int64_t n = dx.numel();
  if (n == 0) return;
  const int dim = normalize_dim("pad_slice", attrs.dim, dy.rank());
  const int64_t inner = numel_of_dims(dy, dim + 1);
  const int64_t whole = attrs.size * inner, skip = attrs.begin * inner, part = dy.size(dim) * inner;
  visit_all(dx.dtype(), [&]<class T>(T) {
    constexpr int N = kVec<T>;
    const bool wide = whole % N == 0 && skip % N == 0 && part % N == 0 && is_aligned<T, N>(dx) &&
                      is_aligned<T, N>(dy);
    with_width<N>(wide, [&]<int M>() {
      launch<pad_slice_units<T, M>>(item_grid(n / M), kItemBlock, 0, n / M, whole / M, skip / M,
          part / M, in<T>(dy), out<T>(dx));
    });
  });
}

}  // namespace sinter::SINTER_KERNEL_NS
