// max_pool2d, avg_pool2d and their backwards (formulas: ops/image/pool.cpp). A thread owns an
// element of what is written and gathers its terms in the order of their places, so that no sum is
// shared; or, where windows lie side by side, all of a window.
#include "ops/image/pool.h"
#include "ops/pointwise/pointwise_kernels.cuh"

namespace sinter::SINTER_KERNEL_NS {

// Element i of planes [rows, columns].
struct PlanePlace {
  int64_t plane, row, column;
  SINTER_DEVICE_FN PlanePlace(int64_t i, int64_t rows, int64_t columns)
      : plane(i / columns / rows), row(i / columns % rows), column(i % columns) {}
};

// Reads each window of x, writes y and index.
template <class T>
SINTER_KERNEL_BOUNDS(kItemBlock)
max_pool2d_windows(
    int64_t n, const PoolPlane plane, bool relu, In<T> x, Out<T> y, Out<uint8_t> index) {
  using V = compute_t<T>;
  SINTER_NO_UNROLL
  for (int64_t i = first_item(); i < n; i += item_step()) {
    const PlanePlace o(i, plane.rows.outputs, plane.columns.outputs);
    const int64_t from = o.plane * plane.inputs();
    int64_t place = -1;
    V best = 0;
    plane.for_window(o.row, o.column, [&](int64_t k, int64_t at) {
      const V v = V(x[from + at]);
      if (place >= 0 && !beats(v, best)) return;
      place = k;
      best = v;
    });
    if (relu && best <= V(0)) place = kNoPlace;
    y.put(i, T(relu ? pointwise::Relu().forward(best) : best));
    index.put(i, static_cast<uint8_t>(place));
  }
}

// Reads each window of x, writes y.
template <class T>
SINTER_KERNEL_BOUNDS(kItemBlock)
avg_pool2d_windows(int64_t n, const PoolPlane plane, In<T> x, Out<T> y) {
  using V = compute_t<T>;
  const V area = V(plane.area());
  SINTER_NO_UNROLL
  for (int64_t i = first_item(); i < n; i += item_step()) {
    const PlanePlace o(i, plane.rows.outputs, plane.columns.outputs);
    const int64_t from = o.plane * plane.inputs();
    V sum = 0;
    plane.for_window(o.row, o.column, [&](int64_t, int64_t at) { sum = sum + V(x[from + at]); });
    y.put(i, T(sum / area));
  }
}

// Reads dy and index of the windows that hold an element, writes dx.
template <class T>
SINTER_KERNEL_BOUNDS(kItemBlock)
max_pool2d_gather(int64_t n, const PoolPlane plane, In<T> dy, In<uint8_t> index, Out<T> dx) {
  using V = compute_t<T>;
  SINTER_NO_UNROLL
  for (int64_t i = first_item(); i < n; i += item_step()) {
    const PlanePlace e(i, plane.rows.size, plane.columns.size);
    const int64_t from = e.plane * plane.outputs();
    V sum = 0;
    plane.for_windows_of(e.row, e.column, [&](int64_t k, int64_t output) {
      if (index[from + output] == k) sum = sum + V(dy[from + output]);
    });
    dx.put(i, T(sum));
  }
}

// The same where windows lie side by side: reads dy and index once, writes dx.
template <class T>
SINTER_KERNEL_BOUNDS(kItemBlock)
max_pool2d_spread(int64_t n, const PoolPlane plane, In<T> dy, In<uint8_t> index, Out<T> dx) {
  SINTER_NO_UNROLL
  for (int64_t i = first_item(); i < n; i += item_step()) {
    const PlanePlace o(i, plane.rows.outputs, plane.columns.outputs);
    const int64_t to = o.plane * plane.inputs(), place = index[i];
    const T v = T(compute_t<T>(0) + compute_t<T>(dy[i]));  // a sum of one: -0 is 0
    plane.for_cell(
        o.row, o.column, [&](int64_t k, int64_t at) { dx.put(to + at, k == place ? v : T(0.0f)); });
  }
}

// Reads dy of the windows that hold an element, writes dx.
template <class T>
SINTER_KERNEL_BOUNDS(kItemBlock)
avg_pool2d_gather(int64_t n, const PoolPlane plane, In<T> dy, Out<T> dx) {
  using V = compute_t<T>;
  const V share = V(1) / V(plane.area());
  SINTER_NO_UNROLL
  for (int64_t i = first_item(); i < n; i += item_step()) {
    const PlanePlace e(i, plane.rows.size, plane.columns.size);
    const int64_t from = e.plane * plane.outputs();
    V sum = 0;
    plane.for_windows_of(
        e.row, e.column, [&](int64_t, int64_t output) { sum = sum + V(dy[from + output]); });
    dx.put(i, T(sum * share));
  }
}

void max_pool2d(const Call& call) {
  const Tensor &x = call.in[0], &y = call.out[0];
  if (y.numel() == 0) return;
  visit_float(x.dtype(), [&]<class T>(T) {
    const auto& attrs = call.as<MaxPool2dAttrs>();
    launch<max_pool2d_windows<T>>(item_grid(y.numel()), kItemBlock, 0, y.numel(),
        PoolPlane(attrs, x, y), attrs.relu, in<T>(x), out<T>(y), out<uint8_t>(call.out[1]));
  });
}
void avg_pool2d(const Call& call) {
  const Tensor &x = call.in[0], &y = call.out[0];
  if (y.numel() == 0) return;
  visit_float(x.dtype(), [&]<class T>(T) {
    launch<avg_pool2d_windows<T>>(item_grid(y.numel()), kItemBlock, 0, y.numel(),
        PoolPlane(call.as<Pool2dAttrs>(), x, y), in<T>(x), out<T>(y));
  });
}
void max_pool2d_backward(const Call& call) {
  const Tensor &dy = call.in[0], &dx = call.out[0];
  if (dx.numel() == 0) return;
  visit_float(dy.dtype(), [&]<class T>(T) {
    const PoolPlane plane(call.as<Pool2dBackwardAttrs>(), dx, dy);
    const auto index = in<uint8_t>(call.in[1]);
    if (plane.side_by_side()) {
      launch<max_pool2d_spread<T>>(
          item_grid(dy.numel()), kItemBlock, 0, dy.numel(), plane, in<T>(dy), index, out<T>(dx));
    } else {
      launch<max_pool2d_gather<T>>(
          item_grid(dx.numel()), kItemBlock, 0, dx.numel(), plane, in<T>(dy), index, out<T>(dx));
    }
  });
}
void avg_pool2d_backward(const Call& call) {
  const Tensor &dy = call.in[0], &dx = call.out[0];
  if (dx.numel() == 0) return;
  visit_float(dy.dtype(), [&]<class T>(T) {
    launch<avg_pool2d_gather<T>>(item_grid(dx.numel()), kItemBlock, 0, dx.numel(),
        PoolPlane(call.as<Pool2dBackwardAttrs>(), dx, dy), in<T>(dy), out<T>(dx));
  });
}

}  // namespace sinter::SINTER_KERNEL_NS
