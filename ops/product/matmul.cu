// matmul: c[i, j] = sum_p a[i, p] b[p, j], a and b stored so or transposed. A block owns a tile of
// c. Reads a and b once per tile that needs them, writes c.
#include "ops/ops.h"
#include "ops/product/gemm_launch.cuh"

namespace sinter::SINTER_KERNEL_NS {

SINTER_PRODUCT_KERNELS(matmul, Product)

void matmul(const Call& call) {
  const auto& attrs = call.as<MatmulAttrs>();
  const Tensor &a = call.in[0], &b = call.in[1], &c = call.out[0];
  const auto own = [&] {
    visit_float(a.dtype(), [&]<class T>(T) {
      with_result<T>(c.dtype(), [&]<class Y>(Y) {
        launch_matmul<Layout::along_k, Layout::along_outer>(
            Product<T>{product_side<T>(a, attrs.trans_a), product_side<T>(b, !attrs.trans_b)},
            StoreSums<T, Y>{Bias<T>(Tensor()), columns_out<Y>(c)});
      });
    });
  };
  by_library_or(own, a, attrs.trans_a, b, attrs.trans_b, Tensor(), c);
}

}  // namespace sinter::SINTER_KERNEL_NS
