// nll: the loss of each row of log-probabilities, and its backward, which reads labels only. A
// label out of range is a fault.
#include "ops/ops.h"
#include "ops/rows/row.cuh"
#include "ops/rows/row_sum.cuh"

// B batch, C classes
namespace sinter::SINTER_KERNEL_NS {

// Without label smoothing. A thread owns one row. Reads one value and one label a row, writes one
// value.
template <class T>
SINTER_KERNEL_BOUNDS(kItemBlock)
nll_picked(int64_t rows, int64_t cols, In<T> logp, In<int32_t> labels, Out<compute_t<T>> loss,
    uint32_t* flag) {
  for (int64_t b = first_item(); b < rows; b += item_step()) {
    const int y = labels[b];
    if (check_class(y, cols, b, true, flag)) loss.put(b, -compute_t<T>(logp[b * cols + y]));
  }
}

// With it. Half a warp owns one row. Reads all of logp.
template <class T>
SINTER_KERNEL_BOUNDS(kItemBlock)
nll_smoothed(int64_t rows, int64_t cols, Target<compute_t<T>> target, In<T> logp,
    In<int32_t> labels, Out<compute_t<T>> loss, uint32_t* flag) {
  using V = compute_t<T>;
  const int64_t b = half_warp_row();
  if (b / 2 * 2 >= rows) return;  // whole warps
  const bool here = b < rows;
  const V sum =
      half_warp_sum<V>(cols, [&](int64_t c) { return here ? V(logp[b * cols + c]) : V(0); });
  if (!here || (lane() & 15) != 0) return;
  const int y = labels[b];
  if (check_class(y, cols, b, true, flag)) loss.put(b, target.nll(V(logp[b * cols + y]), sum));
}

// A thread owns one element. step: stride of dloss, 0 for a grad_output of all rows.
template <class T, class D>
SINTER_KERNEL_BOUNDS(kItemBlock)
nll_gradient(int64_t n, int64_t cols, int64_t step, Target<compute_t<T>> target, In<D> dloss,
    In<int32_t> labels, Out<T> dlogp, uint32_t* flag) {
  using V = compute_t<T>;
  for (int64_t i = first_item(); i < n; i += item_step()) {
    const int64_t b = i / cols, c = i - b * cols;
    const int y = labels[b];
    const V g = static_cast<V>(dloss[b * step]);
    check_class(y, cols, b, true, flag);
    dlogp.put(i, T(target.nll_gradient(c == y, g)));
  }
}

void nll(const Call& call) {
  const Tensor &logp = call.in[0], &labels = call.in[1], &loss = call.out[0];
  const int64_t rows = logp.size(0), cols = logp.size(1);
  if (rows == 0) return;
  const double s = call.as<NllAttrs>().label_smoothing;
  visit_float(logp.dtype(), [&]<class T>(T) {
    using V = compute_t<T>;
    if (s > 0) {
      launch<nll_smoothed<T>>(half_warp_grid(rows), kItemBlock, 0, rows, cols, Target<V>(s, cols),
          in<T>(logp), in<int32_t>(labels), out<V>(loss), fault_flag());
    } else {
      launch<nll_picked<T>>(item_grid(rows), kItemBlock, 0, rows, cols, in<T>(logp),
          in<int32_t>(labels), out<V>(loss), fault_flag());
    }
  });
}

void nll_backward(const Call& call) {
  const Tensor &dloss = call.in[0], &labels = call.in[1], &dlogp = call.out[0];
  const auto& attrs = call.as<NllBackwardAttrs>();
  const int64_t n = dlogp.numel(), cols = attrs.classes;
  if (n == 0) return;
  visit_float(attrs.out, [&]<class T>(T) {
    visit_float(dloss.dtype(), [&]<class D>(D) {
      launch<nll_gradient<T, D>>(item_grid(n), kItemBlock, 0, n, cols, dloss.strides()[0],
          Target<compute_t<T>>(attrs.label_smoothing, cols), in<D>(dloss), in<int32_t>(labels),
          out<T>(dlogp), fault_flag());
    });
  });
}

}  // namespace sinter::SINTER_KERNEL_NS
