// cat and pad_slice: y = pieces side by side along one dim, in one launch.
#include "ops/shape/cat.h"

#include "ops/pointwise/pointwise_kernels.cuh"

namespace sinter::SINTER_KERNEL_NS {

// The pieces, as a kernel argument. `end`: where each ends in a row of y, in units of N elements.
template <class T> struct CatInputs {
  In<T> x[kMostCatInputs];
  int64_t end[kMostCatInputs];
};

// y[o, j] = x_s[o, j - begin_s] for begin_s <= j < end_s, in units of N elements, one to a thread;
// 0 where there is no x_s. Reads every x once, writes y once.
template <class T, int N>
SINTER_KERNEL_BOUNDS(kItemBlock)
cat_units(int64_t units, int64_t row, CatInputs<T> inputs, Out<T> y) {
  for (int64_t i = first_item(); i < units; i += item_step()) {
    const int64_t o = i / row, j = i - o * row;
    int s = 0;
    int64_t begin = 0;
    SINTER_NO_UNROLL
    while (j >= inputs.end[s]) begin = inputs.end[s++];
    const int64_t part = inputs.end[s] - begin;
    Vec<T, N> v{};
    if (inputs.x[s]) v = inputs.x[s].template load_vec<N>((o * part + j - begin) * N);
    y.store_vec(i * N, v);
  }
}

void concat(const Call& call) {
  const Tensor& y = call.out[0];
  if (y.numel() == 0) return;
  const SideBySide side(call);
  visit_all(y.dtype(), [&]<class T>(T) {
    constexpr int N = kVec<T>;
    bool wide = is_aligned<T, N>(y);
    for (const auto& [x, length] : side.pieces())
      wide = wide && length % N == 0 && (!x || is_aligned<T, N>(*x));
    with_width<N>(wide, [&]<int M>() {
      CatInputs<T> inputs;
      int64_t end = 0;
      size_t s = 0;
      for (const auto& [x, length] : side.pieces()) {
        if (x) inputs.x[s] = in<T>(*x);
        inputs.end[s++] = (end += length) / M;
      }
      launch<cat_units<T, M>>(
          item_grid(y.numel() / M), kItemBlock, 0, y.numel() / M, side.row / M, inputs, out<T>(y));
    });
  });
}
void pad_slice(const Call& call) { concat(call); }

}  // namespace sinter::SINTER_KERNEL_NS
