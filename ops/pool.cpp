// max_pool2d and avg_pool2d over [N, C, H, W] and their backwards. Output (p, q) is of the window
// of kernel_h x kernel_w elements from (p stride_h - pad_h, q stride_w - pad_w) on; a window begins
// before the end of x and ends behind its beginning, so that it holds an element.
//   max_pool2d   y = the maximum; index = its place in the window, row by row. Padding never wins.
//                dx = the sum of dy over the windows whose maximum it was
//   avg_pool2d   y = the sum / (kernel_h kernel_w), padding counts as zeros
//                dx = the sum of dy over the windows that hold it / (kernel_h kernel_w)
#include "ops/pool.h"

#include "ops/kernels.h"
#include "ops/pool_rows.h"
#include "ops/row_loops.h"

// P, Q: rows and columns of y
namespace sinter {
namespace {

// A dim of the output. `axis` and its `size` are of x.
int64_t pooled_size(
    const char* op, const Tensor& x, int dim, int64_t kernel, int64_t stride, int64_t pad) {
  const char* axis = dim == 2 ? "height" : "width";
  SINTER_CHECK(kernel >= 1 && stride >= 1 && pad >= 0 && pad <= kernel / 2, shape,
      cat(op, ": no such window over ", x.describe(), ": along the ", axis, " the kernel is ",
          kernel, ", the stride ", stride, ", the padding ", pad,
          "; kernel and stride must be at least 1, the padding 0..", kernel / 2,
          ", half of the kernel"));
  SINTER_CHECK(x.size(dim) >= 1 && kernel - pad - pad <= x.size(dim), shape,
      cat(op, ": the window does not fit: x is ", x.describe(), "; its ", axis, " ", x.size(dim),
          " with ", pad, " of padding on both sides must be at least the kernel's ", kernel),
      "a smaller kernel, or more padding");
  return (x.size(dim) - (kernel - pad - pad)) / stride + 1;
}
Shape pooled_shape(const char* op, const Tensor& x, const Pool2dAttrs& a) {
  check_rank(op, "x", x, 4);
  return {x.size(0), x.size(1), pooled_size(op, x, 2, a.kernel_h, a.stride_h, a.pad_h),
      pooled_size(op, x, 3, a.kernel_w, a.stride_w, a.pad_w)};
}

Tensors max_infer(Operands in, const Attrs& attrs) {
  const Tensor& x = in[0];
  const auto& a = attrs.as<Pool2dAttrs>();
  check_floating("max_pool2d", "x", x);
  const Shape shape = pooled_shape("max_pool2d", x, a);
  SINTER_CHECK(a.kernel_h <= 255 && a.kernel_w <= 255 / a.kernel_h, shape,
      cat("max_pool2d: the window is too large over ", x.describe(), ": ", a.kernel_h, " x ",
          a.kernel_w, "; at most 255 elements, for the place of the maximum is a byte"));
  return {Tensor::shape_only(shape, x.dtype(), x.device()),
      Tensor::shape_only(shape, DType::u8, x.device())};
}
Tensors avg_infer(Operands in, const Attrs& attrs) {
  const Tensor& x = in[0];
  check_floating("avg_pool2d", "x", x);
  const Shape shape = pooled_shape("avg_pool2d", x, attrs.as<Pool2dAttrs>());
  return {Tensor::shape_only(shape, x.dtype(), x.device())};
}
Tensor infer_dx(const char* op, const Tensor& dy, const Attrs& attrs) {
  const auto& a = attrs.as<Pool2dBackwardAttrs>();
  check_floating(op, "dy", dy);
  check_rank(op, "dy", dy, 4);
  const Tensor dx =
      Tensor::shape_only({dy.size(0), dy.size(1), a.height, a.width}, dy.dtype(), dy.device());
  const Shape pooled = pooled_shape(op, dx, a);
  SINTER_CHECK(dy.shape() == pooled, shape,
      cat(op, ": the gradient does not fit: dy is ", dy.describe(), "; pooling ", dx.shape().str(),
          " gives ", pooled.str()));
  return dx;
}
Tensors max_infer_backward(Operands in, const Attrs& attrs) {
  const char* op = "max_pool2d_backward";
  const Tensor dx = infer_dx(op, in[0], attrs);
  check_dtype(op, "index", in[1], DType::u8);
  check_same_shape(op, "dy", in[0], "index", in[1]);
  return {dx};
}
Tensors avg_infer_backward(Operands in, const Attrs& attrs) {
  return {infer_dx("avg_pool2d_backward", in[0], attrs)};
}

int64_t area(const Pool2dAttrs& a) { return a.kernel_h * a.kernel_w; }

// A comparison, or an addition, for each element of a window; padding counted, too.
Cost cost(Operands in, Operands out, const Attrs& attrs) {
  return cost_of(area(attrs.as<Pool2dAttrs>()) * out[0].numel(), in, out);
}
Cost max_backward_cost(Operands in, Operands out, const Attrs&) {
  return cost_of(in[0].numel(), in, out);
}
Cost avg_backward_cost(Operands in, Operands out, const Attrs& attrs) {
  return cost_of(area(attrs.as<Pool2dBackwardAttrs>()) * in[0].numel(), in, out);
}

// Windows of 2 x 2 side by side, without padding: no element is in two.
bool is_halving(const PoolPlane& plane) {
  const Pool2dAttrs& a = plane.window;
  return a.kernel_h == 2 && a.kernel_w == 2 && a.stride_h == 2 && a.stride_w == 2 && a.pad_h == 0 &&
         a.pad_w == 0;
}
// And every element is in one.
bool is_halving_of_even(const PoolPlane& plane) {
  return is_halving(plane) && plane.height % 2 == 0 && plane.width % 2 == 0;
}

// For all planes, by elements of x and y: rows(row of x, the row below it, row of y) for each row
// of y if `halving`, else whole(plane of x, plane of y). A generic `rows` is compiled only for
// types that pool_rows takes.
template <class T, class Rows, class Whole>
void for_planes(
    const PoolPlane& plane, const Tensor& y, bool halving, const Rows& rows, const Whole& whole) {
  const int64_t in = plane.height * plane.width, out = plane.out_height * plane.out_width;
  const auto run = [&](int64_t from, int64_t to) {
    if constexpr (pool_rows::kTakes<T>) {
      for (int64_t p = 0; halving && p < plane.out_height; ++p) {
        const int64_t row = from + 2 * p * plane.width;
        rows(row, row + plane.width, to + p * plane.out_width);
      }
      if (halving) return;
    }
    whole(from, to);
  };
  const int64_t bytes = (in + out) * static_cast<int64_t>(sizeof(T));
  parallel_for(y.size(0) * y.size(1), grain_of(bytes), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) run(i * in, i * out);
  });
}

template <class T> void max_plane(const PoolPlane& plane, const T* x, T* y, uint8_t* index) {
  using V = compute_t<T>;
  for (int64_t p = 0; p < plane.out_height; ++p) {
    for (int64_t q = 0; q < plane.out_width; ++q) {
      int64_t place = -1;
      V best = 0;
      plane.for_window(p, q, [&](int64_t k, int64_t at) {
        const V v = V(x[at]);
        if (place >= 0 && !beats(v, best)) return;
        place = k;
        best = v;
      });
      y[p * plane.out_width + q] = T(best);
      index[p * plane.out_width + q] = static_cast<uint8_t>(place);
    }
  }
}
void max_cpu(const Call& call) {
  const Tensor &x = call.in[0], &y = call.out[0];
  const PoolPlane plane(call.as<Pool2dAttrs>(), x, y);
  uint8_t* index = call.out[1].data<uint8_t>();
  visit_float(x.dtype(), [&]<class T>(T) {
    const T* in = x.data<T>();
    T* out = y.data<T>();
    for_planes<T>(
        plane, y, is_halving(plane),
        [&](auto top, auto below, auto to) {
          pool_rows::max_row(in + top, in + below, out + to, index + to, plane.out_width);
        },
        [&](int64_t from, int64_t to) { max_plane(plane, in + from, out + to, index + to); });
  });
}

template <class T> void avg_plane(const PoolPlane& plane, const T* x, T* y) {
  using V = compute_t<T>;
  const V n = static_cast<V>(area(plane.window));
  for (int64_t p = 0; p < plane.out_height; ++p) {
    for (int64_t q = 0; q < plane.out_width; ++q) {
      V sum = 0;
      plane.for_window(p, q, [&](int64_t, int64_t at) { sum += V(x[at]); });
      y[p * plane.out_width + q] = T(sum / n);
    }
  }
}
void avg_cpu(const Call& call) {
  const Tensor &x = call.in[0], &y = call.out[0];
  const PoolPlane plane(call.as<Pool2dAttrs>(), x, y);
  visit_float(x.dtype(), [&]<class T>(T) {
    const T* in = x.data<T>();
    T* out = y.data<T>();
    for_planes<T>(
        plane, y, is_halving(plane),
        [&](auto top, auto below, auto to) {
          pool_rows::avg_row(in + top, in + below, out + to, plane.out_width);
        },
        [&](int64_t from, int64_t to) { avg_plane(plane, in + from, out + to); });
  });
}

// dx = the sums that add(sum of an element, its place in the window, output) makes, times `factor`.
// Each window adds to its elements, by the places of the outputs in order: for an element the same
// sum as for_windows_of() gives.
template <class T, class V, class Add>
void scatter_plane(const PoolPlane& plane, T* dx, V factor, const Add& add) {
  const int64_t n = plane.height * plane.width;
  V* sums = scratch<V>(n);
  std::fill_n(sums, n, V(0));
  for (int64_t p = 0; p < plane.out_height; ++p) {
    for (int64_t q = 0; q < plane.out_width; ++q) {
      const int64_t output = p * plane.out_width + q;
      plane.for_window(p, q, [&](int64_t k, int64_t at) { add(sums[at], k, output); });
    }
  }
  for (int64_t i = 0; i < n; ++i) dx[i] = T(sums[i] * factor);
}
void max_backward_cpu(const Call& call) {
  const Tensor &dy = call.in[0], &dx = call.out[0];
  const PoolPlane plane(call.as<Pool2dBackwardAttrs>(), dx, dy);
  const uint8_t* index = call.in[1].data<uint8_t>();
  visit_float(dy.dtype(), [&]<class T>(T) {
    using V = compute_t<T>;
    const T* g = dy.data<T>();
    T* out = dx.data<T>();
    for_planes<T>(
        plane, dy, is_halving_of_even(plane),
        [&](auto top, auto below, auto to) {
          pool_rows::max_backward_row(g + to, index + to, out + top, out + below, plane.out_width);
        },
        [&](int64_t from, int64_t to) {
          scatter_plane(plane, out + from, V(1), [&](V& sum, int64_t k, int64_t output) {
            if (index[to + output] == k) sum += V(g[to + output]);
          });
        });
  });
}
void avg_backward_cpu(const Call& call) {
  const Tensor &dy = call.in[0], &dx = call.out[0];
  const PoolPlane plane(call.as<Pool2dBackwardAttrs>(), dx, dy);
  visit_float(dy.dtype(), [&]<class T>(T) {
    using V = compute_t<T>;
    const V share = V(1) / static_cast<V>(area(plane.window));
    const T* g = dy.data<T>();
    T* out = dx.data<T>();
    for_planes<T>(
        plane, dy, is_halving_of_even(plane),
        [&](auto top, auto below, auto to) {
          pool_rows::avg_backward_row(g + to, out + top, out + below, plane.out_width);
        },
        [&](int64_t from, int64_t to) {
          scatter_plane(plane, out + from, share,
              [&](V& sum, int64_t, int64_t output) { sum += V(g[to + output]); });
        });
  });
}

Pool2dBackwardAttrs backward_attrs(const Saved& saved) {
  return {saved.as<Pool2dAttrs>(), saved.in[0].size(2), saved.in[0].size(3)};
}
Tensors max_backward(const Saved& saved, Operands grads) {
  return {apply1(kMaxPool2dBackwardOp, {grads[0], saved.out[1]}, backward_attrs(saved))};
}
Tensors avg_backward(const Saved& saved, Operands grads) {
  return {apply1(kAvgPool2dBackwardOp, {grads[0]}, backward_attrs(saved))};
}

}  // namespace

const OpDef kMaxPool2dOp{.name = "max_pool2d",
    .attrs = attr_type<Pool2dAttrs>(),
    .infer = max_infer,
    .cost = cost,
    .cpu = max_cpu,
    SINTER_KERNELS(max_pool2d),
    .backward = max_backward,
    .saves_out = 0b10};
const OpDef kMaxPool2dBackwardOp{.name = "max_pool2d_backward",
    .min_inputs = 2,
    .max_inputs = 2,
    .attrs = attr_type<Pool2dBackwardAttrs>(),
    .infer = max_infer_backward,
    .cost = max_backward_cost,
    .cpu = max_backward_cpu,
    SINTER_KERNELS(max_pool2d_backward)};
const OpDef kAvgPool2dOp{.name = "avg_pool2d",
    .attrs = attr_type<Pool2dAttrs>(),
    .infer = avg_infer,
    .cost = cost,
    .cpu = avg_cpu,
    SINTER_KERNELS(avg_pool2d),
    .backward = avg_backward};
const OpDef kAvgPool2dBackwardOp{.name = "avg_pool2d_backward",
    .attrs = attr_type<Pool2dBackwardAttrs>(),
    .infer = avg_infer_backward,
    .cost = avg_backward_cost,
    .cpu = avg_backward_cpu,
    SINTER_KERNELS(avg_pool2d_backward)};

Tensor max_pool2d(const Tensor& x, const Pool2dAttrs& attrs) {
  return apply(kMaxPool2dOp, {x}, attrs)[0];
}
Tensor avg_pool2d(const Tensor& x, const Pool2dAttrs& attrs) {
  return apply1(kAvgPool2dOp, {x}, attrs);
}

}  // namespace sinter
