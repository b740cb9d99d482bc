// layer_norm over the last dim and its backwards (formulas: ops/rows/layer_norm.cpp).
#include "ops/rows/block_reduce.cuh"

namespace sinter::SINTER_KERNEL_NS {

// A block owns a row, thread t its columns t, t + threads, .. Reads x three times (twice from the
// cache), weight and bias once; writes y and the row's mean and rstd.
template <class T>
SINTER_KERNEL layer_norm_rows(In<T> x, In<T> weight, In<T> bias, Out<T> y, Out<compute_t<T>> mean,
    Out<compute_t<T>> rstd, int64_t cols, compute_t<T> eps) {
  using V = compute_t<T>;
  auto& scratch = shared<Shared<V, 32>>();
  const int64_t first = block_x() * cols;
  const Moments<V> row =
      block_moments(cols, eps, scratch, [&](int64_t c) { return V(x[first + c]); });
  if (thread_x() == 0) {
    mean.put(block_x(), row.mean);
    rstd.put(block_x(), row.rstd);
  }
  for (int64_t c = thread_x(); c < cols; c += threads_per_block())
    y.put(first + c, T((V(x[first + c]) - row.mean) * row.rstd * V(weight[c]) + V(bias[c])));
}

// A block owns a row. Reads dy, x and weight three times (twice from the cache), writes dx.
template <class T>
SINTER_KERNEL layer_norm_backward_rows(In<T> dy, In<T> x, In<T> weight, In<compute_t<T>> means,
    In<compute_t<T>> rstds, Out<T> dx, int64_t cols) {
  using V = compute_t<T>;
  auto& scratch = shared<Shared<V, 32>>();
  const int64_t first = block_x() * cols;
  const V mean = means[block_x()], rstd = rstds[block_x()];
  const auto g = [&](int64_t c) { return V(dy[first + c]) * V(weight[c]); };
  const auto n = [&](int64_t c) { return (V(x[first + c]) - mean) * rstd; };
  const V sum = block_sum_of(cols, scratch, g) / V(cols);
  const V product = block_sum_of(cols, scratch, [&](int64_t c) { return g(c) * n(c); }) / V(cols);
  for (int64_t c = thread_x(); c < cols; c += threads_per_block())
    dx.put(first + c, T(rstd * (g(c) - sum - n(c) * product)));
}

// A block owns 32 columns, a lane one of them, warp w the rows w, w + warps, .. Reads dy and x
// once, writes dweight.
template <class T>
SINTER_KERNEL layer_norm_weight_grad_columns(In<T> dy, In<T> x, In<compute_t<T>> mean,
    In<compute_t<T>> rstd, Out<compute_t<T>> dweight, int64_t rows, int64_t cols) {
  using V = compute_t<T>;
  auto& sums = shared<SharedTile<V, 32, 32>>();  // [warp, lane]
  const int64_t c = block_x() * 32 + lane();
  if (c < cols) {
    V sum = 0;
    for (int64_t r = warp(); r < rows; r += warps_per_block())
      sum = sum + V(dy[r * cols + c]) * ((V(x[r * cols + c]) - mean[r]) * rstd[r]);
    sums.put(warp(), lane(), sum);
  }
  block_sync();
  if (warp() != 0 || c >= cols) return;
  V sum = sums(0, lane());
  for (int w = 1; w < warps_per_block(); ++w) sum = sum + sums(w, lane());
  dweight.put(c, sum);
}

void layer_norm(const Call& call) {
  const Tensor& y = call.out[0];
  if (y.numel() == 0) return;
  const int64_t cols = y.size(-1);
  visit_float(y.dtype(), [&]<class T>(T) {
    using V = compute_t<T>;
    launch<layer_norm_rows<T>>({y.numel() / cols}, block_for(cols, 512), sizeof(Shared<V, 32>),
        in<T>(call.in[0]), in<T>(call.in[1]), in<T>(call.in[2]), out<T>(y), out<V>(call.out[1]),
        out<V>(call.out[2]), cols, V(call.as<LayerNormAttrs>().eps));
  });
}

void layer_norm_backward(const Call& call) {
  const Tensor& dx = call.out[0];
  if (dx.numel() == 0) return;
  const int64_t cols = dx.size(-1);
  visit_float(dx.dtype(), [&]<class T>(T) {
    using V = compute_t<T>;
    launch<layer_norm_backward_rows<T>>({dx.numel() / cols}, block_for(cols, 512),
        sizeof(Shared<V, 32>), in<T>(call.in[0]), in<T>(call.in[1]), in<T>(call.in[2]),
        in<V>(call.in[3]), in<V>(call.in[4]), out<T>(dx), cols);
  });
}

void layer_norm_weight_grad(const Call& call) {
  const Tensor &dy = call.in[0], &dweight = call.out[0];
  const int64_t cols = dweight.numel();
  if (cols == 0) return;
  visit_float(dy.dtype(), [&]<class T>(T) {
    using V = compute_t<T>;
    const int64_t rows = dy.numel() / cols;
    launch<layer_norm_weight_grad_columns<T>>({blocks_for(cols, 32)}, block_for(32 * rows, 512),
        sizeof(SharedTile<V, 32, 32>), in<T>(dy), in<T>(call.in[1]), in<V>(call.in[2]),
        in<V>(call.in[3]), out<V>(dweight), rows, cols);
  });
}

}  // namespace sinter::SINTER_KERNEL_NS
