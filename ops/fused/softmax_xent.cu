// softmax_xent: formula in ops/fused/softmax_xent.cpp. One kernel for rows that a warp holds in
// registers, one for longer rows.
#include "ops/fused/fused.h"
#include "ops/fused/xent_row.cuh"
#include "ops/ops.h"
#include "ops/rows/block_reduce.cuh"

// B batch, C classes
namespace sinter::SINTER_KERNEL_NS {

// own: what a loss takes of its label's logit, others: of every logit. grad_output and dz are not
// there without the gradient.
template <class T, class D> struct XentOperands {
  using V = compute_t<T>;
  In<T> z;
  In<int32_t> labels;
  In<V> grad_output;
  Out<V> loss;
  Out<D> dz;
  int64_t rows, cols, z_row, grad_output_step;
  V own, others;
  uint32_t* faults;
};

// The label of a row; one out of range is reported once and gives a NaN loss.
template <class T, class D>
SINTER_DEVICE_FN int64_t label_of(const XentOperands<T, D>& x, int64_t row, int index) {
  const int64_t label = x.labels[row];
  if ((label < 0 || label >= x.cols) && index == 0) {
    x.loss.put(row, compute_t<T>(NAN));
    fault(x.faults, Fault::label_out_of_range, row, label, x.cols);
  }
  return label;
}

// A warp owns a row (ops/fused/xent_row.cuh). Reads z, a label and a grad_output, writes a loss and
// dz. REQUIRES: cols <= 32 kPerLane
template <class T, class D, int kPerLane>
SINTER_KERNEL softmax_xent_forward_backward(XentOperands<T, D> x) {
  using V = compute_t<T>;
  const int64_t row = block_x() * warps_per_block() + warp();
  if (row >= x.rows) return;  // whole warps leave
  const int cols = static_cast<int>(x.cols), label = static_cast<int>(label_of(x, row, lane()));
  const bool grad = bool(x.dz);
  xent_row<kPerLane>(
      cols, label, x.own, x.others, [&](int c) { return V(x.z[row * x.z_row + c]); },
      [&](V loss) { x.loss.put(row, loss); }, grad,
      grad ? x.grad_output[row * x.grad_output_step] : V(0),
      [&](int c, V dz) { x.dz.put(row * cols + c, D(dz)); });
}

// The same for a row per block, thread t owning columns t, t + threads, ..; z is read three times,
// from the cache.
template <class T, class D> SINTER_KERNEL softmax_xent_block_rows(XentOperands<T, D> x) {
  using V = compute_t<T>;
  auto& scratch = shared<Shared<V, 32>>();
  const int64_t row = block_x(), first = row * x.z_row, label = label_of(x, row, thread_x());
  V m = V(-INFINITY), sum = 0, all = 0, at_label = 0;
  for (int64_t c = thread_x(); c < x.cols; c += threads_per_block())
    m = max_or_nan(m, V(x.z[first + c]));
  m = block_join<MaxOf>(m, scratch);
  for (int64_t c = thread_x(); c < x.cols; c += threads_per_block()) {
    const V shifted = V(x.z[first + c]) - m;
    if (c == label) at_label = shifted;
    all = all + shifted;
    sum = sum + math::exp(shifted);
  }
  sum = block_join<SumOf>(sum, scratch);
  V loss = math::log(sum);
  if (x.others > V(0)) loss = loss - x.others * block_join<SumOf>(all, scratch);
  if (label >= 0 && label < x.cols && thread_x() == label % threads_per_block())
    x.loss.put(row, loss - x.own * at_label);
  if (!x.dz) return;
  const V scale = x.grad_output[row * x.grad_output_step], inverse = V(1) / sum;
  for (int64_t c = thread_x(); c < x.cols; c += threads_per_block()) {
    const V p = math::exp(V(x.z[first + c]) - m) * inverse - x.others;
    x.dz.put(row * x.cols + c, D((c == label ? p - x.own : p) * scale));
  }
}

namespace {

template <class T, class D> void run(const Call& call) {
  using V = compute_t<T>;
  const auto& [smoothing, grad, low] = call.as<SoftmaxXentAttrs>();
  const Tensor& z = call.in[0];
  const int64_t rows = z.size(0), cols = z.size(1);
  const XentOperands<T, D> x{in<T>(z), in<int32_t>(call.in[1]), grad ? in<V>(call.in[2]) : In<V>(),
      out<V>(call.out[0]), grad ? out<D>(call.out[1]) : Out<D>(), rows, cols, z.strides()[0],
      grad ? call.in[2].strides()[0] : 0, static_cast<V>(1 - smoothing),
      static_cast<V>(smoothing / static_cast<double>(std::max<int64_t>(cols, 1))), fault_flag()};
  if (cols > 1024)
    return launch<softmax_xent_block_rows<T, D>>({rows}, 512, sizeof(Shared<V, 32>), x);
  constexpr int kWarps = 4;
  with_columns_per_lane(cols, [&]<int N>() {
    launch<softmax_xent_forward_backward<T, D, N>>({blocks_for(rows, kWarps)}, kWarps * 32, 0, x);
  });
}

}  // namespace

void softmax_xent(const Call& call) {
  if (call.in[0].size(0) == 0) return;
  visit_float(call.in[0].dtype(), [&]<class T>(T) {
    if (call.as<SoftmaxXentAttrs>().low) {
      run<T, bf16>(call);
    } else {
      run<T, T>(call);
    }
  });
}

}  // namespace sinter::SINTER_KERNEL_NS
