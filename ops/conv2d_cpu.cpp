#include "ops/conv2d_cpu.h"

#include "core/parallel.h"
#include "ops/conv2d.h"

namespace sinter {
namespace {

// f(plane) for `planes` of `products` each, on all threads.
template <class F> void for_conv2d_planes(int64_t planes, int64_t products, F&& f) {
  parallel_for(planes, grain_of(products), [&](int64_t begin, int64_t end) {
    for (int64_t plane = begin; plane < end; ++plane) f(plane);
  });
}

}  // namespace

void conv2d_forward_cpu(const Call& call) {
  const Conv2dSizes z = conv2d_sizes(call);
  const Tensor bias = optional_input(call.in, 2);
  visit_float(call.out[0].dtype(), [&]<class T>(T) {
    using V = compute_t<T>;
    const T *x = call.in[0].data<T>(), *weight = call.in[1].data<T>();
    T* y = call.out[0].data<T>();
    const auto bias_of = [&](int64_t o) {
      if (!bias.defined()) return V(0);
      return bias.dtype() == dtype_of<T> ? V(bias.data<T>()[o]) : bias.data<V>()[o];
    };
    const auto sum_at = [&](int64_t n, int64_t o, int64_t p, int64_t q) {
      V sum = bias_of(o);
      for (int64_t c = 0; c < z.c; ++c) {
        for (int64_t r = 0; r < z.r; ++r) {
          for (int64_t s = 0; s < z.s; ++s) {
            const int64_t h = p * z.stride_h - z.pad_h + r, w = q * z.stride_w - z.pad_w + s;
            if (h < 0 || h >= z.h || w < 0 || w >= z.w) continue;
            sum += V(x[((n * z.c + c) * z.h + h) * z.w + w]) *
                   V(weight[((o * z.c + c) * z.r + r) * z.s + s]);
          }
        }
      }
      return sum;
    };
    for_conv2d_planes(z.n * z.o, z.p * z.q * z.taps(), [&](int64_t plane) {
      for (int64_t p = 0; p < z.p; ++p) {
        for (int64_t q = 0; q < z.q; ++q)
          y[(plane * z.p + p) * z.q + q] = T(sum_at(plane / z.o, plane % z.o, p, q));
      }
    });
  });
}

void conv2d_input_grad_cpu(const Call& call) {
  const Conv2dSizes z = conv2d_input_grad_sizes(call);
  visit_float(call.out[0].dtype(), [&]<class T>(T) {
    using V = compute_t<T>;
    const T *dy = call.in[0].data<T>(), *weight = call.in[1].data<T>();
    T* dx = call.out[0].data<T>();
    const auto sum_at = [&](int64_t n, int64_t c, int64_t h, int64_t w) {
      V sum = 0;
      for (int64_t o = 0; o < z.o; ++o) {
        for (int64_t r = 0; r < z.r; ++r) {
          for (int64_t s = 0; s < z.s; ++s) {
            const int64_t p = (h + z.pad_h - r) / z.stride_h, q = (w + z.pad_w - s) / z.stride_w;
            if (p * z.stride_h - z.pad_h + r != h || q * z.stride_w - z.pad_w + s != w) continue;
            if (p < 0 || p >= z.p || q < 0 || q >= z.q) continue;
            sum += V(dy[((n * z.o + o) * z.p + p) * z.q + q]) *
                   V(weight[((o * z.c + c) * z.r + r) * z.s + s]);
          }
        }
      }
      return sum;
    };
    for_conv2d_planes(z.n * z.c, z.h * z.w * z.o * z.r * z.s, [&](int64_t plane) {
      for (int64_t h = 0; h < z.h; ++h) {
        for (int64_t w = 0; w < z.w; ++w)
          dx[(plane * z.h + h) * z.w + w] = T(sum_at(plane / z.c, plane % z.c, h, w));
      }
    });
  });
}

void conv2d_weight_grad_cpu(const Call& call) {
  const Conv2dSizes z = conv2d_weight_grad_sizes(call);
  visit_float(call.in[0].dtype(), [&]<class T>(T) {
    using V = compute_t<T>;
    const T *dy = call.in[0].data<T>(), *x = call.in[1].data<T>();
    V* dweight = call.out[0].data<V>();
    const auto sum_at = [&](int64_t o, int64_t c, int64_t r, int64_t s) {
      V sum = 0;
      for (int64_t n = 0; n < z.n; ++n) {
        V of_image = 0;  // so that rounding errors grow with N + P Q, not with N P Q
        for (int64_t p = 0; p < z.p; ++p) {
          for (int64_t q = 0; q < z.q; ++q) {
            const int64_t h = p * z.stride_h - z.pad_h + r, w = q * z.stride_w - z.pad_w + s;
            if (h < 0 || h >= z.h || w < 0 || w >= z.w) continue;
            of_image += V(dy[((n * z.o + o) * z.p + p) * z.q + q]) *
                        V(x[((n * z.c + c) * z.h + h) * z.w + w]);
          }
        }
        sum += of_image;
      }
      return sum;
    };
    for_conv2d_planes(z.o * z.c, z.n * z.p * z.q * z.r * z.s, [&](int64_t plane) {
      for (int64_t r = 0; r < z.r; ++r) {
        for (int64_t s = 0; s < z.s; ++s)
          dweight[(plane * z.r + r) * z.s + s] = sum_at(plane / z.c, plane % z.c, r, s);
      }
    });
  });
}

}  // namespace sinter
