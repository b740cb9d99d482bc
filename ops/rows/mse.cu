// mse: the mean of (x - target)^2 over each row, and its backward.
#include "ops/rows/row_sum.cuh"

// B rows, D values per row
namespace sinter::SINTER_KERNEL_NS {

// loss[b] = sum_i (x[b, i] - target[b, i])^2 / n. Half a warp owns one row. Reads both once, writes
// one value a row.
template <class T>
SINTER_KERNEL_BOUNDS(kItemBlock)
mse_rows(int64_t rows, int64_t n, In<T> x, In<T> target, Out<compute_t<T>> loss) {
  using V = compute_t<T>;
  const int64_t b = half_warp_row();
  if (b / 2 * 2 >= rows) return;  // whole warps
  const bool here = b < rows;
  const V sum = half_warp_sum<V>(n, [&](int64_t i) {
    return here ? square_of_difference(V(x[b * n + i]), V(target[b * n + i])) : V(0);
  });
  if (here && (lane() & 15) == 0) loss.put(b, sum / static_cast<V>(n));
}

// dx[b, i] = dloss[b] factor (x[b, i] - target[b, i]), factor = 2 / n. A thread owns N elements of
// one row. Reads all once, writes dx once.
template <class T, class D, int N>
SINTER_KERNEL_BOUNDS(kItemBlock)
mse_gradient(int64_t units, int64_t units_per_row, int64_t step, compute_t<T> factor, In<D> dloss,
    In<T> x, In<T> target, Out<T> dx) {
  using V = compute_t<T>;
  for (int64_t i = first_item(); i < units; i += item_step()) {
    const V g = static_cast<V>(dloss[i / units_per_row * step]) * factor;
    Vec<T, N> v = x.template load_vec<N>(i * N);
    const Vec<T, N> t = target.template load_vec<N>(i * N);
    SINTER_UNROLL
    for (int k = 0; k < N; ++k) v[k] = T(mse_gradient(g, V(v[k]), V(t[k])));
    dx.store_vec(i * N, v);
  }
}

void mse(const Call& call) {
  const Tensor &x = call.in[0], &target = call.in[1], &loss = call.out[0];
  const int64_t rows = loss.numel();
  if (rows == 0) return;
  visit_float(x.dtype(), [&]<class T>(T) {
    launch<mse_rows<T>>(half_warp_grid(rows), kItemBlock, 0, rows, x.numel() / rows, in<T>(x),
        in<T>(target), out<compute_t<T>>(loss));
  });
}

void mse_backward(const Call& call) {
  const Tensor &dloss = call.in[0], &x = call.in[1], &target = call.in[2], &dx = call.out[0];
  const int64_t n = dx.numel();
  if (n == 0) return;
  const int64_t cols = n / x.size(0), step = dloss.strides()[0];
  visit_float(x.dtype(), [&]<class T>(T) {
    visit_float(dloss.dtype(), [&]<class D>(D) {
      using V = compute_t<T>;
      constexpr int N = kVec<T>;
      const V factor = V(2) / static_cast<V>(cols);
      const bool wide =
          cols % N == 0 && is_aligned<T, N>(x) && is_aligned<T, N>(target) && is_aligned<T, N>(dx);
      with_width<N>(wide, [&]<int M>() {
        launch<mse_gradient<T, D, M>>(item_grid(n / M), kItemBlock, 0, n / M, cols / M, step,
            factor, in<D>(dloss), in<T>(x), in<T>(target), out<T>(dx));
      });
    });
  });
}

}  // namespace sinter::SINTER_KERNEL_NS
