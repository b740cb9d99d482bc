// max_pool2d and avg_pool2d over [N, C, H, W] and their backwards. Output (p, q) is of the window
// of kernel_h x kernel_w elements from (p stride_h - pad_h, q stride_w - pad_w) on; a window begins
// before the end of x and ends behind its beginning, so that it holds an element.
//   max_pool2d   y = the maximum; index = its place in the window, row by row. Padding never wins.
//                dx = the sum of dy over the windows whose maximum it was
//                with relu: y = relu(maximum), which is the maximum of relu(x); index = kNoPlace
//                where y <= 0, so that the same dx is that of both
//   avg_pool2d   y = the sum / (kernel_h kernel_w), padding counts as zeros
//                dx = the sum of dy over the windows that hold it / (kernel_h kernel_w)
#include "ops/image/pool.h"

#include <array>

#include "ops/kernels.h"
#include "ops/pointwise/pointwise.h"
#include "ops/rows/row_loops.h"

// P, Q: rows and columns of y
namespace sinter {
namespace {

// A dim of the output. `axis` and its `size` are of x.
int64_t pooled_size(
    const char* op, const Tensor& x, int dim, int64_t kernel, int64_t stride, int64_t pad) {
  const char* axis = dim == 2 ? "height" : "width";
  SINTER_CHECK(kernel >= 1 && stride >= 1 && pad >= 0 && pad <= kernel / 2, shape,
      str(op, ": no such window over ", x.describe(), ": along the ", axis, " the kernel is ",
          kernel, ", the stride ", stride, ", the padding ", pad,
          "; kernel and stride must be at least 1, the padding 0..", kernel / 2,
          ", half of the kernel"));
  SINTER_CHECK(x.size(dim) >= 1 && kernel - pad - pad <= x.size(dim), shape,
      str(op, ": the window does not fit: x is ", x.describe(), "; its ", axis, " ", x.size(dim),
          " with ", pad, " of padding on both sides must be at least the kernel's ", kernel),
      "a smaller kernel, or more padding");
  return (x.size(dim) - (kernel - pad - pad)) / stride + 1;
}
Shape pooled_shape(const char* op, const Tensor& x, const Pool2dAttrs& a, bool keeps_place) {
  const Shape shape{x.size(0), x.size(1), pooled_size(op, x, 2, a.kernel_h, a.stride_h, a.pad_h),
      pooled_size(op, x, 3, a.kernel_w, a.stride_w, a.pad_w)};
  const int64_t most = keeps_place ? 255 : 1 << 24;
  SINTER_CHECK(a.kernel_h <= most && a.kernel_w <= most / a.kernel_h, shape,
      str(op, ": the window is too large over ", x.describe(), ": ", a.kernel_h, " x ", a.kernel_w,
          "; at most ", most, " elements, for ",
          keeps_place ? "the place of the maximum is a byte" : "f32 counts no further"));
  return shape;
}

template <const OpDef& op, class A> Tensors infer(Operands in, const Attrs& attrs) {
  const Tensor& x = in[0];
  const Pool2dAttrs& a = attrs.as<A>();
  constexpr bool keeps_place = &op == &kMaxPool2dOp;
  const Shape shape = pooled_shape(op.name.c_str(), x, a, keeps_place);
  Tensors out{Tensor::shape_only(shape, x.dtype(), x.device())};
  if (keeps_place) out.push_back(Tensor::shape_only(shape, DType::u8, x.device()));
  return out;
}
template <const OpDef& op> void check_backward(Operands in, const Attrs& attrs) {
  const Tensor& dy = in[0];
  const auto& a = attrs.as<Pool2dBackwardAttrs>();
  const Tensor dx =
      Tensor::shape_only({dy.size(0), dy.size(1), a.height, a.width}, dy.dtype(), dy.device());
  const Shape pooled = pooled_shape(op.name.c_str(), dx, a, &op == &kMaxPool2dBackwardOp);
  SINTER_CHECK(dy.shape() == pooled, shape,
      str(op.text(), ": the gradient does not fit: dy is ", dy.describe(), "; pooling ",
          dx.shape().str(), " gives ", pooled.str()));
}

int64_t area(const Pool2dAttrs& a) { return a.kernel_h * a.kernel_w; }

// A comparison, or an addition, for each element of a window; padding counted, too.
template <class A> Cost cost(Operands in, Operands out, const Attrs& attrs) {
  return cost_of(area(attrs.as<A>()) * out[0].numel(), in, out);
}
Cost max_backward_cost(Operands in, Operands out, const Attrs&) {
  return cost_of(in[0].numel(), in, out);
}
Cost avg_backward_cost(Operands in, Operands out, const Attrs& attrs) {
  return cost_of(area(attrs.as<Pool2dBackwardAttrs>()) * in[0].numel(), in, out);
}

// For all planes of x and y, or of dx and dy: f(plane of x, plane of y, its place in y).
template <class T, class F>
void for_planes(const PoolPlane& plane, const Tensor& x, const Tensor& y, const F& f) {
  const int64_t inputs = plane.inputs(), outputs = plane.outputs();
  const int64_t bytes = (inputs + outputs) * static_cast<int64_t>(sizeof(T));
  parallel_for(y.size(0) * y.size(1), grain_of(bytes), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      f(x.data<T>() + i * inputs, y.data<T>() + i * outputs, i * outputs);
  });
}

// f(step) with the common steps as constants, so that their loops become vectors.
template <class F> void with_step(int64_t step, const F& f) {
  if (step == 1) return f(std::integral_constant<int64_t, 1>());
  if (step == 2) return f(std::integral_constant<int64_t, 2>());
  f(step);
}

template <class T, class V, class Index, class Step>
void max_tap(const T* __restrict x, Step step, int64_t n, Index k, V* __restrict best,
    Index* __restrict place) {
  for (int64_t i = 0; i < n; ++i) {
    const V v = V(x[i * step]);
    const bool takes = beats(v, best[i]) | (place[i] < 0);
    best[i] = takes ? v : best[i];
    place[i] = takes ? k : place[i];
  }
}
template <class T>
void max_plane(const PoolPlane& plane, bool relu, const T* x, T* y, uint8_t* index) {
  using V = compute_t<T>;
  using Index = std::conditional_t<sizeof(V) == 8, int64_t, int32_t>;  // as wide, for the vectors
  const int64_t n = plane.outputs();
  V* best = thread_buffer<V, BufferFor::kernel>(n);
  Index* place = thread_buffer<Index, BufferFor::kernel>(n);
  std::fill_n(best, n, V(0));
  std::fill_n(place, n, Index(-1));
  plane.for_taps(false, [&](int64_t k, int64_t at, int64_t output, int64_t count) {
    with_step(plane.columns.stride, [&](auto step) {
      max_tap(x + at, step, count, static_cast<Index>(k), best + output, place + output);
    });
  });
  for (int64_t i = 0; relu && i < n; ++i) {
    if (best[i] <= V(0)) place[i] = kNoPlace;
    best[i] = pointwise::Relu().forward(best[i]);
  }
  for (int64_t i = 0; i < n; ++i) y[i] = T(best[i]);
  for (int64_t i = 0; i < n; ++i) index[i] = static_cast<uint8_t>(place[i]);
}
void max_cpu(const Call& call) {
  const Tensor &x = call.in[0], &y = call.out[0];
  const auto& attrs = call.as<MaxPool2dAttrs>();
  const PoolPlane plane(attrs, x, y);
  uint8_t* index = call.out[1].data<uint8_t>();
  visit_float(x.dtype(), [&]<class T>(T) {
    for_planes<T>(plane, x, y, [&](const T* from, T* to, int64_t at) {
      max_plane(plane, attrs.relu, from, to, index + at);
    });
  });
}

template <class T, class V, class Step>
void avg_tap(const T* __restrict x, Step step, int64_t n, V* __restrict sums) {
  for (int64_t i = 0; i < n; ++i) sums[i] += V(x[i * step]);
}
template <class T> void avg_plane(const PoolPlane& plane, const T* x, T* y) {
  using V = compute_t<T>;
  const int64_t n = plane.outputs();
  V* sums = thread_buffer<V, BufferFor::kernel>(n);
  std::fill_n(sums, n, V(0));
  plane.for_taps(false, [&](int64_t, int64_t at, int64_t output, int64_t count) {
    with_step(
        plane.columns.stride, [&](auto step) { avg_tap(x + at, step, count, sums + output); });
  });
  for (int64_t i = 0; i < n; ++i) y[i] = T(sums[i] / static_cast<V>(plane.area()));
}
void avg_cpu(const Call& call) {
  const Tensor &x = call.in[0], &y = call.out[0];
  const PoolPlane plane(call.as<Pool2dAttrs>(), x, y);
  visit_float(x.dtype(), [&]<class T>(T) {
    for_planes<T>(plane, x, y, [&](const T* from, T* to, int64_t) { avg_plane(plane, from, to); });
  });
}

// An element's terms come by the places of the outputs in order: for_windows_of() gives the same
// sum. A place outside of the window or plane, which max_pool2d never gives, is passed over.
template <class T>
void max_backward_plane(const PoolPlane& plane, const T* dy, const uint8_t* index, T* dx) {
  using V = compute_t<T>;
  const auto& [rows, columns] = plane;
  const int64_t n = plane.inputs();
  V* sums = thread_buffer<V, BufferFor::kernel>(n);
  std::fill_n(sums, n, V(0));
  std::array<int64_t, 256> step;  // from the window's first element to that at a place
  step.fill(INT64_MIN / 2);
  for (int64_t k = 0; k < plane.area(); ++k)
    step[k] = k / columns.kernel * columns.size + k % columns.kernel;
  for (int64_t p = 0, output = 0; p < rows.outputs; ++p) {
    for (int64_t q = 0; q < columns.outputs; ++q, ++output) {
      const int64_t at = rows.start(p) * columns.size + columns.start(q) + step[index[output]];
      if (at >= 0 && at < n) sums[at] += V(dy[output]);
    }
  }
  for (int64_t i = 0; i < n; ++i) dx[i] = T(sums[i]);
}
void max_backward_cpu(const Call& call) {
  const Tensor &dy = call.in[0], &dx = call.out[0];
  const PoolPlane plane(call.as<Pool2dBackwardAttrs>(), dx, dy);
  const uint8_t* index = call.in[1].data<uint8_t>();
  visit_float(dy.dtype(), [&]<class T>(T) {
    for_planes<T>(plane, dx, dy,
        [&](T* to, const T* from, int64_t at) { max_backward_plane(plane, from, index + at, to); });
  });
}

// The same sums, over the area.
template <class T> void avg_backward_plane(const PoolPlane& plane, const T* dy, T* dx) {
  using V = compute_t<T>;
  const int64_t n = plane.inputs();
  V* sums = thread_buffer<V, BufferFor::kernel>(n);
  std::fill_n(sums, n, V(0));
  plane.for_taps(true, [&](int64_t, int64_t at, int64_t output, int64_t count) {
    for (int64_t i = 0; i < count; ++i) sums[at + i * plane.columns.stride] += V(dy[output + i]);
  });
  const V share = V(1) / static_cast<V>(plane.area());
  for (int64_t i = 0; i < n; ++i) dx[i] = T(sums[i] * share);
}
void avg_backward_cpu(const Call& call) {
  const Tensor &dy = call.in[0], &dx = call.out[0];
  const PoolPlane plane(call.as<Pool2dBackwardAttrs>(), dx, dy);
  visit_float(dy.dtype(), [&]<class T>(T) {
    for_planes<T>(
        plane, dx, dy, [&](T* to, const T* from, int64_t) { avg_backward_plane(plane, from, to); });
  });
}

template <class A> Pool2dBackwardAttrs backward_attrs(const Saved& saved) {
  return {saved.as<A>(), saved.in[0].size(2), saved.in[0].size(3)};
}
Tensors max_backward(const Saved& saved, Operands grads) {
  return {apply1(
      kMaxPool2dBackwardOp, {grads[0], saved.out[1]}, backward_attrs<MaxPool2dAttrs>(saved))};
}
Tensors avg_backward(const Saved& saved, Operands grads) {
  return {apply1(kAvgPool2dBackwardOp, {grads[0]}, backward_attrs<Pool2dAttrs>(saved))};
}

}  // namespace

const OpDef kMaxPool2dOp =
    listed<kMaxPool2dOp>({.formula = "y = the maximum of each window, index = its place there",
        .attrs = attr_type<MaxPool2dAttrs>(),
        .infer = infer<kMaxPool2dOp, MaxPool2dAttrs>,
        .cost = cost<MaxPool2dAttrs>,
        .cpu = max_cpu,
        .backward = max_backward,
        .saves_out = 0b10});
const OpDef kMaxPool2dBackwardOp = listed<kMaxPool2dBackwardOp>(
    {.formula = "dx = the sum of dy over the windows whose maximum it was",
        .attrs = attr_type<Pool2dBackwardAttrs>(),
        .check = check_backward<kMaxPool2dBackwardOp>,
        .cost = max_backward_cost,
        .cpu = max_backward_cpu});
const OpDef kAvgPool2dOp = listed<kAvgPool2dOp>({.formula = "y = the mean of each window",
    .attrs = attr_type<Pool2dAttrs>(),
    .infer = infer<kAvgPool2dOp, Pool2dAttrs>,
    .cost = cost<Pool2dAttrs>,
    .cpu = avg_cpu,
    .backward = avg_backward});
const OpDef kAvgPool2dBackwardOp = listed<kAvgPool2dBackwardOp>(
    {.formula = "dx = the sum of dy over the windows that hold it / their size",
        .attrs = attr_type<Pool2dBackwardAttrs>(),
        .check = check_backward<kAvgPool2dBackwardOp>,
        .cost = avg_backward_cost,
        .cpu = avg_backward_cpu});

Tensor max_pool2d(const Tensor& x, const Pool2dAttrs& attrs) {
  return apply(kMaxPool2dOp, {x}, MaxPool2dAttrs{attrs})[0];
}
Tensor avg_pool2d(const Tensor& x, const Pool2dAttrs& attrs) {
  return apply1(kAvgPool2dOp, {x}, attrs);
}

}  // namespace sinter
