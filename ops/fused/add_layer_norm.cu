// add_layer_norm: s = a + b and y = layer_norm(s) (ops/layer_norm.cpp), row by row.
#include "ops/block_reduce.cuh"

namespace sinter::SINTER_KERNEL_NS {

// A block owns a row, thread t its columns t, t + threads, .. Reads a and b three times (twice from
// the cache; s is made again rather than read), weight and bias once; writes s, y, mean and rstd.
template <class T>
SINTER_KERNEL add_layer_norm_rows(In<T> a, In<T> b, In<T> weight, In<T> bias, Out<T> sum, Out<T> y,
    Out<compute_t<T>> mean, Out<compute_t<T>> rstd, int64_t cols, compute_t<T> eps) {
  using V = compute_t<T>;
  auto& scratch = shared<Shared<V, 32>>();
  const int64_t first = block_x() * cols;
  const auto s = [&](int64_t c) { return T(V(a[first + c]) + V(b[first + c])); };
  const Moments<V> row = block_moments(cols, eps, scratch, [&](int64_t c) { return V(s(c)); });
  if (thread_x() == 0) {
    mean.put(block_x(), row.mean);
    rstd.put(block_x(), row.rstd);
  }
  for (int64_t c = thread_x(); c < cols; c += threads_per_block()) {
    const T x = s(c);
    sum.put(first + c, x);
    y.put(first + c, T((V(x) - row.mean) * row.rstd * V(weight[c]) + V(bias[c])));
  }
}

void add_layer_norm(const Call& call) {
  const Tensor& y = call.out[0];
  if (y.numel() == 0) return;
  const int64_t cols = y.size(-1);
  visit_float(y.dtype(), [&]<class T>(T) {
    using V = compute_t<T>;
    launch<add_layer_norm_rows<T>>({y.numel() / cols}, block_for(cols, 512), sizeof(Shared<V, 32>),
        in<T>(call.in[0]), in<T>(call.in[1]), in<T>(call.in[2]), in<T>(call.in[3]),
        out<T>(call.out[3]), out<T>(y), out<V>(call.out[1]), out<V>(call.out[2]), cols,
        V(call.as<LayerNormAttrs>().eps));
  });
}

}  // namespace sinter::SINTER_KERNEL_NS
