// softmax, log_softmax over the last dim and their backwards: one kernel for rows that a warp holds
// in registers, one for longer rows.
#include "ops/rows/block_reduce.cuh"

namespace sinter::SINTER_KERNEL_NS {

// s = finish(sum of term(a, b)), y = result(a, b, s), where a = prepare(x, m): forward m is the
// row's maximum; backward a is dy and b is y.
struct LogSoftmax {
  static constexpr bool kBackward = false;
  template <class V> static SINTER_DEVICE_FN V prepare(V x, V m) { return x - m; }
  template <class V> static SINTER_DEVICE_FN V term(V a, V) { return math::exp(a); }
  template <class V> static SINTER_DEVICE_FN V finish(V s) { return math::log(s); }
  template <class V> static SINTER_DEVICE_FN V result(V a, V, V s) { return a - s; }
};
struct Softmax {
  static constexpr bool kBackward = false;
  template <class V> static SINTER_DEVICE_FN V prepare(V x, V m) { return math::exp(x - m); }
  template <class V> static SINTER_DEVICE_FN V term(V a, V) { return a; }
  template <class V> static SINTER_DEVICE_FN V finish(V s) { return V(1) / s; }
  template <class V> static SINTER_DEVICE_FN V result(V a, V, V s) { return a * s; }
};
struct LogSoftmaxBackward {
  static constexpr bool kBackward = true;
  template <class V> static SINTER_DEVICE_FN V prepare(V dy, V) { return dy; }
  template <class V> static SINTER_DEVICE_FN V term(V dy, V) { return dy; }
  template <class V> static SINTER_DEVICE_FN V finish(V s) { return s; }
  template <class V> static SINTER_DEVICE_FN V result(V dy, V y, V s) {
    return dy - math::exp(y) * s;
  }
};
struct SoftmaxBackward : LogSoftmaxBackward {
  template <class V> static SINTER_DEVICE_FN V term(V dy, V y) { return dy * y; }
  template <class V> static SINTER_DEVICE_FN V result(V dy, V y, V s) { return y * (dy - s); }
};

// A warp owns a row, lane l its columns l, l + 32, .. in registers. Reads x (dy and y) once, writes
// the result. REQUIRES: cols <= 32 kPerLane
template <class Op, class T, int kPerLane>
SINTER_KERNEL softmax_warp_rows(In<T> x, In<T> y, Out<T> result, int64_t rows, int cols) {
  using V = compute_t<T>;
  const int64_t row = block_x() * warps_per_block() + warp();
  if (row >= rows) return;
  V a[kPerLane], b[kPerLane], m = V(-INFINITY), s = 0;
  SINTER_UNROLL
  for (int j = 0; j < kPerLane; ++j) {
    const int c = lane() + 32 * j;
    a[j] = c < cols ? V(x[row * cols + c]) : V(-INFINITY);
    b[j] = Op::kBackward && c < cols ? V(y[row * cols + c]) : V(0);
    m = max_or_nan(m, a[j]);
  }
  if (!Op::kBackward) m = warp_max(m);
  SINTER_UNROLL
  for (int j = 0; j < kPerLane; ++j) {
    a[j] = Op::prepare(a[j], m);
    if (lane() + 32 * j < cols) s = s + Op::term(a[j], b[j]);
  }
  s = Op::finish(warp_sum(s));
  SINTER_UNROLL
  for (int j = 0; j < kPerLane; ++j) {
    const int c = lane() + 32 * j;
    if (c < cols) result.put(row * cols + c, T(Op::result(a[j], b[j], s)));
  }
}

// A block owns a row, thread t its columns t, t + threads, .. Reads x up to three times (from the
// cache), dy and y twice, writes the result.
template <class Op, class T>
SINTER_KERNEL softmax_block_rows(In<T> x, In<T> y, Out<T> result, int64_t cols) {
  using V = compute_t<T>;
  auto& scratch = shared<Shared<V, 32>>();
  const int64_t first = block_x() * cols;
  V m = V(-INFINITY);
  if (!Op::kBackward) {
    for (int64_t c = thread_x(); c < cols; c += threads_per_block())
      m = max_or_nan(m, V(x[first + c]));
    m = block_join<MaxOf>(m, scratch);
  }
  const auto b = [&](int64_t c) { return Op::kBackward ? V(y[first + c]) : V(0); };
  const V s = Op::finish(block_sum_of(
      cols, scratch, [&](int64_t c) { return Op::term(Op::prepare(V(x[first + c]), m), b(c)); }));
  for (int64_t c = thread_x(); c < cols; c += threads_per_block()) {
    result.put(first + c, T(Op::result(Op::prepare(V(x[first + c]), m), b(c), s)));
  }
}

namespace {

template <class Op> void on_rows(const Call& call) {
  const Tensor& y = call.out[0];
  if (y.numel() == 0) return;
  const int64_t cols = y.size(-1), rows = y.numel() / cols;
  visit_float(y.dtype(), [&]<class T>(T) {
    const In<T> x = in<T>(call.in[0]), second = Op::kBackward ? in<T>(call.in[1]) : In<T>();
    if (cols > 1024)
      return launch<softmax_block_rows<Op, T>>(
          {rows}, 512, sizeof(Shared<compute_t<T>, 32>), x, second, out<T>(y), cols);
    constexpr int kWarps = 4;
    with_columns_per_lane(cols, [&]<int N>() {
      launch<softmax_warp_rows<Op, T, N>>(
          {blocks_for(rows, kWarps)}, kWarps * 32, 0, x, second, out<T>(y), rows, cols);
    });
  });
}

}  // namespace

void softmax(const Call& call) { on_rows<Softmax>(call); }
void log_softmax(const Call& call) { on_rows<LogSoftmax>(call); }
void softmax_backward(const Call& call) { on_rows<SoftmaxBackward>(call); }
void log_softmax_backward(const Call& call) { on_rows<LogSoftmaxBackward>(call); }

}  // namespace sinter::SINTER_KERNEL_NS
