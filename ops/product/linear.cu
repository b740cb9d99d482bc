// linear: y[b, o] = sum_i x[b, i] W[o, i] + bias[o]. A block owns a tile of y. Reads x, W and the
// bias once per tile that needs them, B I e + O I e bytes at least; writes B O e.
#include "ops/ops.h"
#include "ops/product/gemm_launch.cuh"

namespace sinter::SINTER_KERNEL_NS {

SINTER_PRODUCT_KERNELS(linear, Product)

void linear(const Call& call) {
  const Tensor &x = call.in[0], &weight = call.in[1], &y = call.out[0];
  const Tensor bias = optional_input(call.in, 2);
  const auto own = [&] {
    visit_float(x.dtype(), [&]<class T>(T) {
      with_result<T>(y.dtype(), [&]<class Y>(Y) {
        launch_linear<Layout::along_k, Layout::along_k>(
            Product<T>{product_side<T>(x, false), product_side<T>(weight, false)},
            StoreSums<T, Y>{Bias<T>(bias), columns_out<Y>(y)});
      });
    });
  };
  by_library_or(own, x, false, weight, true, bias, y);
}

}  // namespace sinter::SINTER_KERNEL_NS
