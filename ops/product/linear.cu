// linear: y[b, o] = sum_i x[b, i] W[o, i] + bias[o]; matmul: c[i, j] = sum_p a[i, p] b[p, j], a and
// b stored so or transposed, with the same kernels, as it is a linear without a bias; of several
// products a block has one. A block owns a tile of the result. Reads both operands once per tile
// that needs them, B I e + O I e bytes at least, and the bias; writes B O e.
#include "ops/ops.h"
#include "ops/product/gemm_batch.cuh"

namespace sinter::SINTER_KERNEL_NS {

SINTER_PRODUCT_KERNELS(matmul, Product)
SINTER_PRODUCT_KERNELS(matmul_batch, BatchedProduct)

constexpr Layout kAny = Layout::either;  // operands may be transposed

// kB: how b mostly lies.
template <Layout kB>
static void run_product(const Call& call, bool trans_a, bool trans_b, const Tensor& bias) {
  const Tensor &a = call.in[0], &b = call.in[1], &c = call.out[0];
  const auto own = [&] {
    visit_float(a.dtype(), [&]<class T>(T) {
      with_result<T>(c.dtype(), [&]<class Y>(Y) {
        launch_matmul<Layout::along_k, kB, kAny, kAny>(
            Product<T>{product_side<T>(a, trans_a), product_side<T>(b, !trans_b)},
            StoreSums<T, Y>{Bias<T>(bias), columns_out<Y>(c)});
      });
    });
  };
  by_library_or(own, a, trans_a, b, trans_b, bias, c);
}

void linear(const Call& call) {
  run_product<Layout::along_k>(call, false, true, optional_input(call.in, 2));
}
void matmul(const Call& call) {
  const auto& attrs = call.as<MatmulAttrs>();
  const Tensor &a = call.in[0], &b = call.in[1], &c = call.out[0];
  if (c.rank() > 2) {
    const GemmBatch batch = batch_of(a, a.strides(), b, b.strides(), c);
    const auto own = [&] {
      visit_float(a.dtype(), [&]<class T>(T) {
        with_result<T>(c.dtype(), [&]<class Y>(Y) {
          launch_matmul_batch<Layout::along_k, Layout::along_outer, kAny, kAny>(
              batched_product<T>(a, attrs.trans_a, b, attrs.trans_b, batch),
              StoreBatch<T, Y>{columns_out<Y>(c)});
        });
      });
    };
    return by_library_or(own, a, attrs.trans_a, b, attrs.trans_b, Tensor(), c);
  }
  run_product<Layout::along_outer>(call, attrs.trans_a, attrs.trans_b, Tensor());
}

}  // namespace sinter::SINTER_KERNEL_NS
