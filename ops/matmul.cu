// matmul: c[i, j] = sum_p a[i, p] b[p, j], a and b stored so or transposed. A block owns 64 x 64 of
// c. Reads a and b once per tile that needs them, writes c.
#include "ops/gemm_ffma.cuh"
#include "ops/gemm_library.h"
#include "ops/gemm_mma.cuh"
#include "ops/ops.h"

namespace sinter::SINTER_KERNEL_NS {

template <class T>
SINTER_KERNEL_BOUNDS(kFfmaThreads)
matmul_ffma_64x64(Product<T> product, StoreSums<T, T> store) {
  ffma_product(product, store);
}

template <class T, class Y, Lies kA, Lies kB>
SINTER_KERNEL_BOUNDS(kMmaThreads)
matmul_mma_64x64(Product<T> product, StoreSums<T, Y> store) {
  mma_product<kA, kB>(product, store);
}

static void own_matmul(const Call& call) {
  const auto& attrs = call.as<MatmulAttrs>();
  const Tensor& c = call.out[0];
  if (c.numel() == 0) return;
  visit_float(call.in[0].dtype(), [&]<class T>(T) {
    const Product<T> product{
        product_side<T>(call.in[0], attrs.trans_a), product_side<T>(call.in[1], !attrs.trans_b)};
    with_result<T>(c.dtype(), [&]<class Y>(Y) {
      const StoreSums<T, Y> store{Bias<T>(Tensor()), columns_out<Y>(c)};
      if constexpr (kHasMma<T>) {
        if (on_tensor_cores<T>())
          return with_layout<Lies::along_k, Lies::along_outer>(product, [&]<Lies kA, Lies kB>() {
            launch_mma<matmul_mma_64x64<T, Y, kA, kB>>(product, store);
          });
      }
      if constexpr (kHasFfma<T>) launch_ffma<matmul_ffma_64x64<T>>(product, store);
    });
  });
}

void matmul(const Call& call) {
#if defined(__CUDACC__)
  const auto& attrs = call.as<MatmulAttrs>();
  if (library_gemm(call.in[0], attrs.trans_a, call.in[1], attrs.trans_b, Tensor(), call.out[0],
          [&] { own_matmul(call); }))
    return;
#endif
  own_matmul(call);
}

}  // namespace sinter::SINTER_KERNEL_NS
