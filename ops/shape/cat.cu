// cat: y = the inputs side by side along one dim, in one launch.
#include "ops/ops.h"
#include "ops/pointwise/pointwise_kernels.cuh"

namespace sinter::SINTER_KERNEL_NS {

// The inputs, as a kernel argument. `end`: where each ends in a row of y, in units of N elements; a
// row is the dims from the one of cat on.
template <class T> struct CatInputs {
  In<T> x[kMostCatInputs];
  int64_t end[kMostCatInputs];
};

// y[o, j] = x_s[o, j - begin_s] for begin_s <= j < end_s, in units of N elements, one to a thread.
// Reads every x once, writes y once.
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
    y.store_vec(i * N, inputs.x[s].template load_vec<N>((o * part + j - begin) * N));
  }
}

template <class T, int N> void cat_as(const Call& call, int64_t row) {
  const Tensor& y = call.out[0];
  CatInputs<T> inputs;
  int64_t end = 0;
  for (size_t i = 0; i < call.in.size(); ++i) {
    const Tensor& x = call.in[i];
    end += x.numel() / (y.numel() / row);
    inputs.x[i] = in<T>(x);
    inputs.end[i] = end / N;
  }
  const int64_t units = y.numel() / N;
  launch<cat_units<T, N>>(item_grid(units), kItemBlock, 0, units, row / N, inputs, out<T>(y));
}

void concat(const Call& call) {
  const Tensor& y = call.out[0];
  if (y.numel() == 0) return;
  // Elements of y from the dim of cat on.
  const int64_t row = numel_of_dims(y, normalize_dim("cat", call.as<DimAttrs>().dim, y.rank()));
  visit_all(y.dtype(), [&]<class T>(T) {
    constexpr int N = kVec<T>;
    bool whole = is_aligned<T, N>(y);
    for (const Tensor& x : call.in)
      whole = whole && is_aligned<T, N>(x) && x.numel() / (y.numel() / row) % N == 0;
    if (whole) {
      cat_as<T, N>(call, row);
    } else {
      cat_as<T, 1>(call, row);
    }
  });
}

}  // namespace sinter::SINTER_KERNEL_NS
