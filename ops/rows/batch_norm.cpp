// batch_norm2d over the channels of x[N, C, ..] (Ioffe and Szegedy, arXiv 1502.03167), and its
// backwards. n values of each channel: those of all images and pixels. mean and rstd, one number
// for each channel, are saved for them.
//   y = (x - mean) (rstd weight) + bias      rstd = 1 / sqrt(sum((x - mean)^2) / n + eps)
//   dweight = sum(dy (x - mean) rstd)        dbias = sum(dy)
//   dx = rstd weight (dy - dbias / n - (x - mean) (rstd dweight / n))
//   running_mean = (1 - momentum) running_mean + momentum mean
//   running_var = (1 - momentum) running_var + momentum sum((x - mean)^2) / (n - 1)
//   num_batches_tracked += 1
// Of an empty batch the mean is 0, and the running ones stay.
// batch_norm2d_eval takes them in place of the batch's, as scale and shift of a channel:
//   y = x scale + shift     scale = weight / sqrt(running_var + eps)
//                           shift = bias - running_mean scale
// The variance takes a second pass over x, so that nothing cancels. An image's values are summed in
// 16 lanes and pieces of 2048, images in runs of 32: a sum is off by at most (32 + N / 32 + 150)
// 2^-24 of that of its magnitudes, and the error d of the mean adds only d^2 to the variance.
#include <array>

#include "ops/kernels.h"
#include "ops/ops.h"
#include "ops/rows/row_loops.h"

// N images, C channels
namespace sinter {
namespace {

struct Channels {
  int64_t images, channels, pixels;
  explicit Channels(const Tensor& x)
      : images(x.size(0)), channels(x.size(1)), pixels(numel_of_dims(x, 2)) {}
  int64_t count() const { return images * pixels; }
  // Where channel c of image n begins.
  int64_t at(int64_t n, int64_t c) const { return (n * channels + c) * pixels; }
};

template <const OpDef& op> void check(Operands in, const Attrs& attrs) {
  const auto& [momentum, eps] = attrs.as<BatchNormAttrs>();
  SINTER_CHECK(eps >= 0 && momentum >= 0 && momentum <= 1, usage,
      cat(op.text(), ": eps is ", eps, ", at least 0; momentum is ", momentum, ", 0 to 1"));
  SINTER_CHECK(&op != &kBatchNorm2dOp || Channels(in[0]).count() != 1, shape,
      cat("batch_norm2d: one value per channel: x is ", in[0].describe(),
          "; a variance takes at least 2 values"),
      "train on batches of at least 2 images, or call eval() first");
}

Cost cost(Operands in, Operands out, const Attrs&) {
  return cost_of(7 * in[0].numel() + 14 * in[1].numel(), in, out, &kBatchNorm2dOp);
}
Cost eval_cost(Operands in, Operands out, const Attrs&) {
  return cost_of(2 * in[0].numel() + 5 * in[1].numel(), in, out);
}
Cost backward_cost(Operands in, Operands out, const Attrs&) {
  return cost_of(5 * in[0].numel() + 4 * in[2].numel(), in, out);
}
Cost weight_grad_cost(Operands in, Operands out, const Attrs&) {
  return cost_of(5 * in[0].numel(), in, out);
}

// f(c) for all channels, on all threads; it goes `passes` times over the channel's values.
template <class F>
void for_channels(const Channels& s, const Tensor& x, int64_t passes, const F& f) {
  const int64_t bytes = passes * s.count() * static_cast<int64_t>(size_of(x.dtype()));
  parallel_for(s.channels, grain_of(bytes), [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) f(c);
  });
}

// The sums over the images of what f(n) gives, in runs of 32.
template <class V, size_t K, class F> std::array<V, K> sum_images(int64_t images, const F& f) {
  std::array<V, K> total{};
  for (int64_t begin = 0; begin < images; begin += 32) {
    std::array<V, K> run{};
    for (int64_t n = begin; n < std::min(begin + 32, images); ++n) {
      const std::array<V, K> image = f(n);
      for (size_t k = 0; k < K; ++k) run[k] += image[k];
    }
    for (size_t k = 0; k < K; ++k) total[k] += run[k];
  }
  return total;
}
// The sum of f(value) over a channel of x.
template <class V, class T, class F>
V sum_channel(const Channels& s, int64_t c, const T* x, const F& f) {
  return sum_images<V, 1>(
      s.images, [&](int64_t n) { return std::array{row_sum<V>(x + s.at(n, c), s.pixels, f)}; })[0];
}

// y = f(x) over a channel.
template <class T, class F>
void map_channel(const Channels& s, int64_t c, const T* x, T* y, const F& f) {
  for (int64_t n = 0; n < s.images; ++n) {
    const T* from = x + s.at(n, c);
    T* to = y + s.at(n, c);
    for (int64_t i = 0; i < s.pixels; ++i) to[i] = T(f(compute_t<T>(from[i])));
  }
}

void cpu(const Call& call) {
  const Tensor& y = call.out[0];
  const Channels s(y);
  const auto& attrs = call.as<BatchNormAttrs>();
  ++*call.in[5].data<int64_t>();
  visit_float(y.dtype(), [&]<class T>(T) {
    using V = compute_t<T>;
    const T *x = call.in[0].data<T>(), *weight = call.in[1].data<T>(), *bias = call.in[2].data<T>();
    T *running_mean = call.in[3].data<T>(), *running_var = call.in[4].data<T>(), *out = y.data<T>();
    const V eps = static_cast<V>(attrs.eps), share = static_cast<V>(attrs.momentum);
    const V count = static_cast<V>(std::max<int64_t>(1, s.count()));
    for_channels(s, y, 4, [&](int64_t c) {
      const V mean = sum_channel<V>(s, c, x, [](V v) { return v; }) / count;
      const V squares = sum_channel<V>(s, c, x, [&](V v) { return (v - mean) * (v - mean); });
      const V rstd = V(1) / math::sqrt(squares / count + eps);
      call.out[1].data<V>()[c] = mean;
      call.out[2].data<V>()[c] = rstd;
      if (s.count() > 0) {
        running_mean[c] = T((V(1) - share) * V(running_mean[c]) + share * mean);
        running_var[c] = T((V(1) - share) * V(running_var[c]) + share * (squares / (count - V(1))));
      }
      const V factor = rstd * V(weight[c]), b = V(bias[c]);
      map_channel(s, c, x, out, [&](V v) { return (v - mean) * factor + b; });
    });
  });
}

void eval_cpu(const Call& call) {
  const Tensor& y = call.out[0];
  const Channels s(y);
  visit_float(y.dtype(), [&]<class T>(T) {
    using V = compute_t<T>;
    const V eps = static_cast<V>(call.as<BatchNormAttrs>().eps);
    for_channels(s, y, 2, [&](int64_t c) {
      const auto of = [&](size_t i) { return V(call.in[i].data<T>()[c]); };
      const V scale = of(1) / math::sqrt(of(4) + eps), shift = of(2) - of(3) * scale;
      map_channel(s, c, call.in[0].data<T>(), y.data<T>(), [&](V v) { return v * scale + shift; });
    });
  });
}

void weight_grad_cpu(const Call& call) {
  const Tensor& x = call.in[1];
  const Channels s(x);
  visit_float(x.dtype(), [&]<class T>(T) {
    using V = compute_t<T>;
    const T *dy = call.in[0].data<T>(), *value = x.data<T>();
    for_channels(s, x, 3, [&](int64_t c) {
      const V mean = call.in[2].data<V>()[c], rstd = call.in[3].data<V>()[c];
      V* products = thread_buffer<V, BufferFor::kernel>(s.pixels);
      const auto sums = sum_images<V, 2>(s.images, [&](int64_t n) {
        const T *g = dy + s.at(n, c), *v = value + s.at(n, c);
        for (int64_t i = 0; i < s.pixels; ++i) products[i] = V(g[i]) * ((V(v[i]) - mean) * rstd);
        const auto same = [](V term) { return term; };
        return std::array{row_sum<V>(products, s.pixels, same), row_sum<V>(g, s.pixels, same)};
      });
      call.out[0].data<V>()[c] = sums[0];
      call.out[1].data<V>()[c] = sums[1];
    });
  });
}

void backward_cpu(const Call& call) {
  const Tensor& dx = call.out[0];
  const Channels s(dx);
  visit_float(dx.dtype(), [&]<class T>(T) {
    using V = compute_t<T>;
    const T *dy = call.in[0].data<T>(), *x = call.in[1].data<T>(), *weight = call.in[2].data<T>();
    const V count = static_cast<V>(s.count());
    for_channels(s, dx, 3, [&](int64_t c) {
      const auto of = [&](size_t i) { return call.in[i].data<V>()[c]; };
      const V mean = of(3), rstd = of(4);
      const V slope = rstd * of(5) / count, offset = of(6) / count, factor = rstd * V(weight[c]);
      for (int64_t n = 0; n < s.images; ++n) {
        const T *g = dy + s.at(n, c), *v = x + s.at(n, c);
        T* to = dx.data<T>() + s.at(n, c);
        for (int64_t i = 0; i < s.pixels; ++i)
          to[i] = T(factor * (V(g[i]) - offset - (V(v[i]) - mean) * slope));
      }
    });
  });
}

// Of y alone: mean and rstd, which the public function does not give, have none. dx takes the sums
// that are the other two.
Tensors backward(const Saved& saved, Operands grads) {
  const Tensor &dy = grads[0], &x = saved.in[0], &mean = saved.out[1], &rstd = saved.out[2];
  const Tensors sums = apply(kBatchNorm2dWeightGradOp, {dy, x, mean, rstd}, {}, Role::wgrad);
  Tensors out(6);
  if (saved.wants(0)) {
    out[0] = apply1(kBatchNorm2dBackwardOp, {dy, x, saved.in[1], mean, rstd, sums[0], sums[1]}, {},
        Role::dgrad);
  }
  if (saved.wants(1)) out[1] = sums[0];
  if (saved.wants(2)) out[2] = sums[1];
  return out;
}

// With constant moments dx is dy scale, and the others are what they are in training.
Tensors eval_backward(const Saved& saved, Operands grads) {
  const Tensor &dy = grads[0], &x = saved.in[0];
  const auto as = [](const Tensor& t, DType dtype) {
    return t.dtype() == dtype ? t : cast(t, dtype);
  };
  const DType type = wide(x.dtype());
  const Tensor rstd = 1 / sqrt(as(saved.in[4], type) + saved.as<BatchNormAttrs>().eps);
  Tensors out(5);
  if (saved.wants(0)) {
    Shape column = x.shape();
    for (int d = 0; d < x.rank(); ++d) column[d] = d == 1 ? x.size(1) : 1;
    out[0] = dy * reshape(as(as(saved.in[1], type) * rstd, x.dtype()), column);
  }
  if (!saved.wants(1) && !saved.wants(2)) return out;
  const Tensors sums =
      apply(kBatchNorm2dWeightGradOp, {dy, x, as(saved.in[3], type), rstd}, {}, Role::wgrad);
  if (saved.wants(1)) out[1] = sums[0];
  if (saved.wants(2)) out[2] = sums[1];
  return out;
}

}  // namespace

const OpDef kBatchNorm2dOp{.name = "batch_norm2d",
    .formula = "y = (x - mean) / sqrt(var + eps) weight + bias, by channels of this batch",
    .signature = kSignature<kBatchNorm2dOp>,
    .attrs = attr_type<BatchNormAttrs>(),
    .check = check<kBatchNorm2dOp>,
    .cost = cost,
    .cpu = cpu,
    SINTER_KERNELS(batch_norm2d),
    .backward = backward,
    .saves_in = 0b11,
    .saves_out = 0b110};
const OpDef kBatchNorm2dEvalOp{.name = "batch_norm2d_eval",
    .formula = "y = x scale + shift, by the running mean and variance of a channel",
    .signature = kSignature<kBatchNorm2dEvalOp>,
    .attrs = attr_type<BatchNormAttrs>(),
    .check = check<kBatchNorm2dEvalOp>,
    .cost = eval_cost,
    .cpu = eval_cpu,
    SINTER_KERNELS(batch_norm2d_eval),
    .backward = eval_backward,
    .saves_in = 0b11011};
const OpDef kBatchNorm2dBackwardOp{.name = "batch_norm2d_backward",
    .formula = "dx = rstd weight (dy - mean(dy) - n mean(dy n)), n = (x - mean) rstd, by channels",
    .signature = kSignature<kBatchNorm2dBackwardOp>,
    .cost = backward_cost,
    .cpu = backward_cpu,
    SINTER_KERNELS(batch_norm2d_backward)};
const OpDef kBatchNorm2dWeightGradOp{.name = "batch_norm2d_weight_grad",
    .formula = "dweight = sum(dy (x - mean) rstd), dbias = sum(dy), by channels",
    .signature = kSignature<kBatchNorm2dWeightGradOp>,
    .cost = weight_grad_cost,
    .cpu = weight_grad_cpu,
    SINTER_KERNELS(batch_norm2d_weight_grad)};

Tensor batch_norm2d(const Tensor& x, const Tensor& weight, const Tensor& bias,
    const Tensor& running_mean, const Tensor& running_var, const Tensor& num_batches_tracked,
    const BatchNormAttrs& attrs) {
  return apply(
      kBatchNorm2dOp, {x, weight, bias, running_mean, running_var, num_batches_tracked}, attrs)[0];
}

Tensor batch_norm2d_eval(const Tensor& x, const Tensor& weight, const Tensor& bias,
    const Tensor& running_mean, const Tensor& running_var, double eps) {
  return apply1(
      kBatchNorm2dEvalOp, {x, weight, bias, running_mean, running_var}, BatchNormAttrs{.eps = eps});
}

}  // namespace sinter
