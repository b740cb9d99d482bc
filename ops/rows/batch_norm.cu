// batch_norm2d and its backwards (formulas: ops/rows/batch_norm.cpp).
#include "ops/rows/block_reduce.cuh"

namespace sinter::SINTER_KERNEL_NS {

// Value i of channel c, images in order, in [N, channels, pixels].
struct ChannelPlace {
  int64_t channels, pixels, c;
  SINTER_DEVICE_FN int64_t operator()(int64_t i) const {
    return (i / pixels * channels + c) * pixels + i % pixels;
  }
};

// A block owns a channel of `count` values, thread t those numbered t, t + threads, .. Reads x
// three times (twice from the cache), writes y and the channel's mean, rstd and running statistics.
// Of an empty batch the mean is 0, and the statistics stay.
template <class T>
SINTER_KERNEL batch_norm2d_channels(In<T> x, In<T> weight, In<T> bias, InOut<T> running_mean,
    InOut<T> running_var, InOut<int64_t> num_batches_tracked, Out<T> y, Out<compute_t<T>> mean,
    Out<compute_t<T>> rstd, int64_t count, int64_t channels, int64_t pixels, compute_t<T> momentum,
    compute_t<T> eps) {
  using V = compute_t<T>;
  auto& scratch = shared<Shared<V, 32>>();
  const int64_t c = block_x();
  const ChannelPlace at{channels, pixels, c};
  const auto value = [&](int64_t i) { return i < count ? V(x[at(i)]) : V(0); };
  const Moments<V> m = block_moments(count > 0 ? count : 1, eps, scratch, value);
  if (thread_x() == 0) {
    mean.put(c, m.mean);
    rstd.put(c, m.rstd);
    if (c == 0) num_batches_tracked.put(0, num_batches_tracked[0] + 1);
    if (count > 0) {
      const V rest = V(1) - momentum, variance = m.squares / (V(count) - V(1));
      running_mean.put(c, T(rest * V(running_mean[c]) + momentum * m.mean));
      running_var.put(c, T(rest * V(running_var[c]) + momentum * variance));
    }
  }
  const V factor = m.rstd * V(weight[c]), b = V(bias[c]);
  for (int64_t i = thread_x(); i < count; i += threads_per_block())
    y.put(at(i), T((V(x[at(i)]) - m.mean) * factor + b));
}

// A block owns a channel of one image. Reads x once, writes y.
template <class T>
SINTER_KERNEL batch_norm2d_eval_planes(In<T> x, In<T> weight, In<T> bias, In<T> running_mean,
    In<T> running_var, Out<T> y, int64_t channels, int64_t pixels, compute_t<T> eps) {
  using V = compute_t<T>;
  const int64_t c = block_x() % channels, first = block_x() * pixels;
  const V scale = V(weight[c]) / math::sqrt(V(running_var[c]) + eps);
  const V shift = V(bias[c]) - V(running_mean[c]) * scale;
  for (int64_t i = first + thread_x(); i < first + pixels; i += threads_per_block())
    y.put(i, T(V(x[i]) * scale + shift));
}

// A block owns a channel. Reads dy twice (once from the cache) and x once, writes dweight, dbias.
template <class T>
SINTER_KERNEL batch_norm2d_weight_grad_channels(In<T> dy, In<T> x, In<compute_t<T>> means,
    In<compute_t<T>> rstds, Out<compute_t<T>> dweight, Out<compute_t<T>> dbias, int64_t count,
    int64_t channels, int64_t pixels) {
  using V = compute_t<T>;
  auto& scratch = shared<Shared<V, 32>>();
  const int64_t c = block_x();
  const ChannelPlace at{channels, pixels, c};
  const V mean = means[c], rstd = rstds[c];
  const V product = block_sum_of(
      count, scratch, [&](int64_t i) { return V(dy[at(i)]) * ((V(x[at(i)]) - mean) * rstd); });
  const V sum = block_sum_of(count, scratch, [&](int64_t i) { return V(dy[at(i)]); });
  if (thread_x() != 0) return;
  dweight.put(c, product);
  dbias.put(c, sum);
}

// A block owns a channel of one image. Reads dy and x once, writes dx.
template <class T>
SINTER_KERNEL batch_norm2d_backward_planes(In<T> dy, In<T> x, In<T> weight, In<compute_t<T>> means,
    In<compute_t<T>> rstds, In<compute_t<T>> dweight, In<compute_t<T>> dbias, Out<T> dx,
    int64_t count, int64_t channels, int64_t pixels) {
  using V = compute_t<T>;
  const int64_t c = block_x() % channels, first = block_x() * pixels;
  const V mean = means[c], rstd = rstds[c];
  const V slope = rstd * dweight[c] / V(count), offset = dbias[c] / V(count);
  const V factor = rstd * V(weight[c]);
  for (int64_t i = first + thread_x(); i < first + pixels; i += threads_per_block())
    dx.put(i, T(factor * (V(dy[i]) - offset - (V(x[i]) - mean) * slope)));
}

void batch_norm2d(const Call& call) {
  const Tensor& y = call.out[0];
  const auto& attrs = call.as<BatchNormAttrs>();
  const int64_t channels = y.size(1), pixels = numel_of_dims(y, 2), count = y.size(0) * pixels;
  visit_float(y.dtype(), [&]<class T>(T) {
    using V = compute_t<T>;
    launch<batch_norm2d_channels<T>>({channels}, block_for(count, 1024), sizeof(Shared<V, 32>),
        in<T>(call.in[0]), in<T>(call.in[1]), in<T>(call.in[2]), in_out<T>(call.in[3]),
        in_out<T>(call.in[4]), in_out<int64_t>(call.in[5]), out<T>(y), out<V>(call.out[1]),
        out<V>(call.out[2]), count, channels, pixels, V(attrs.momentum), V(attrs.eps));
  });
}

void batch_norm2d_eval(const Call& call) {
  const Tensor& y = call.out[0];
  if (y.numel() == 0) return;
  const int64_t channels = y.size(1), pixels = numel_of_dims(y, 2);
  visit_float(y.dtype(), [&]<class T>(T) {
    launch<batch_norm2d_eval_planes<T>>({y.numel() / pixels}, block_for(pixels, 256), 0,
        in<T>(call.in[0]), in<T>(call.in[1]), in<T>(call.in[2]), in<T>(call.in[3]),
        in<T>(call.in[4]), out<T>(y), channels, pixels,
        compute_t<T>(call.as<BatchNormAttrs>().eps));
  });
}

void batch_norm2d_weight_grad(const Call& call) {
  const Tensor& x = call.in[1];
  const int64_t channels = x.size(1), pixels = numel_of_dims(x, 2), count = x.size(0) * pixels;
  visit_float(x.dtype(), [&]<class T>(T) {
    using V = compute_t<T>;
    launch<batch_norm2d_weight_grad_channels<T>>({channels}, block_for(count, 1024),
        sizeof(Shared<V, 32>), in<T>(call.in[0]), in<T>(x), in<V>(call.in[2]), in<V>(call.in[3]),
        out<V>(call.out[0]), out<V>(call.out[1]), count, channels, pixels);
  });
}

void batch_norm2d_backward(const Call& call) {
  const Tensor& dx = call.out[0];
  if (dx.numel() == 0) return;
  const int64_t channels = dx.size(1), pixels = numel_of_dims(dx, 2);
  visit_float(dx.dtype(), [&]<class T>(T) {
    using V = compute_t<T>;
    launch<batch_norm2d_backward_planes<T>>({dx.numel() / pixels}, block_for(pixels, 256), 0,
        in<T>(call.in[0]), in<T>(call.in[1]), in<T>(call.in[2]), in<V>(call.in[3]),
        in<V>(call.in[4]), in<V>(call.in[5]), in<V>(call.in[6]), out<T>(dx), dx.size(0) * pixels,
        channels, pixels);
  });
}

}  // namespace sinter::SINTER_KERNEL_NS
