// weight_bias_grad: dW[o, i] = sum_b dy[b, o] x[b, i], db[o] = sum_b dy[b, o], both in a fixed
// order (db tile by tile). A block owns a tile of dW; those of column tile 0 own db and sum it from
// the tiles they have anyway. Reads dy and x once per tile that needs them; writes 4 O I + 4 O
// bytes.
#include "ops/fused/fused.h"
#include "ops/product/gemm_launch.cuh"

namespace sinter::SINTER_KERNEL_NS {

SINTER_PRODUCT_KERNELS(weight_bias_grad, Product)

void weight_bias_grad(const Call& call) {
  const Tensor &dy = call.in[0], &x = call.in[1], &dw = call.out[0], &db = call.out[1];
  if (db.numel() == 0) return;
  const auto own = [&] {
    visit_float(dy.dtype(), [&]<class T>(T) {
      using V = compute_t<T>;
      // dy may have as many columns as there are classes.
      launch_weight_bias_grad<Layout::ragged_outer, Layout::along_outer>(
          Product<T>{product_side<T>(dy, true), product_side<T>(x, true)},
          StoreGrads<T>{columns_out<V>(dw), out<V>(db)});
    });
  };
  if (dw.numel() == 0) return own();  // db alone
  by_library_or(
      own, dy, true, x, false, Tensor(), dw, GemmEpilogue{GemmEpilogue::bias_grad, db.raw()});
}

}  // namespace sinter::SINTER_KERNEL_NS
