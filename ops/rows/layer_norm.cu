// layer_norm over the last dim and its backwards (formulas: ops/rows/row_formulas.h).
#include "ops/rows/row.cuh"

namespace sinter::SINTER_KERNEL_NS {

// A block owns 32 columns, a lane one of them, warp w the rows w, w + warps, .. Reads dy and x
// once, writes dweight.
template <class T>
SINTER_KERNEL layer_norm_weight_grad_columns(In<T> dy, In<T> x, In<compute_t<T>> mean,
    In<compute_t<T>> rstd, Out<compute_t<T>> dweight, int64_t rows, int64_t cols) {
  using V = compute_t<T>;
  auto& sums = shared<SharedTile<V, 32, 32>>();  // [warp, lane]
  const int64_t c = block_x() * 32 + lane();
  if (c < cols) {
    V sum = 0;
    for (int64_t r = warp(); r < rows; r += warps_per_block())
      sum = sum + V(dy[r * cols + c]) * normalised(V(x[r * cols + c]), mean[r], rstd[r]);
    sums.put(warp(), lane(), sum);
  }
  block_sync();
  if (warp() != 0 || c >= cols) return;
  V sum = sums(0, lane());
  for (int w = 1; w < warps_per_block(); ++w) sum = sum + sums(w, lane());
  dweight.put(c, sum);
}

void layer_norm(const Call& call) { run_op<LayerNorm>(call); }
void layer_norm_backward(const Call& call) { run_op<LayerNormBackward>(call); }

void layer_norm_weight_grad(const Call& call) {
  const Tensor &dy = call.in[0], &dweight = call.out[0];
  const int64_t cols = dweight.numel();
  if (cols == 0) return;
  visit_float(dy.dtype(), [&]<class T>(T) {
    using V = compute_t<T>;
    const int64_t rows = dy.numel() / cols;
    launch<layer_norm_weight_grad_columns<T>>({blocks_for(cols, 32)}, block_for(32 * rows, 512),
        sizeof(SharedTile<V, 32, 32>), in<T>(dy), in<T>(call.in[1]), in<V>(call.in[2]),
        in<V>(call.in[3]), out<V>(dweight), rows, cols);
  });
}

}  // namespace sinter::SINTER_KERNEL_NS
