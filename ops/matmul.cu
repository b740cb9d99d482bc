// matmul: c[i, j] = sum_p a[i, p] b[p, j], a and b stored so or transposed. A block owns 64 x 64 of c. Reads a and b once per tile that
// needs them, writes c.
#include "ops/gemm_ffma.cuh"
#include "ops/gemm_library.h"
#include "ops/gemm_mma.cuh"
#include "ops/structured.h"

namespace sinter::SINTER_KERNEL_NS {

template <class T>
SINTER_KERNEL_BOUNDS(kFfmaThreads)
matmul_ffma_64x64(Product<T> product, StoreSums<T, T> store) {
  ffma_product(product, store);
}

template <class Y, Lies kA, Lies kB>
SINTER_KERNEL_BOUNDS(kMmaThreads)
matmul_mma_64x64(Product<bf16> product, StoreSums<bf16, Y> store) {
  mma_product<kA, kB>(product, store);
}

void matmul(const Call& call) {
  const auto& attrs = call.as<MatmulAttrs>();
  const Tensor& c = call.out[0];
  if (c.numel() == 0) return;
#if defined(__CUDACC__)
  if (library_gemm(call.in[0], attrs.trans_a, call.in[1], attrs.trans_b, Tensor(), c)) return;
#endif
  visit_float(call.in[0].dtype(), [&]<class T>(T) {
    const Product<T> product{product_side<T>(call.in[0], attrs.trans_a), product_side<T>(call.in[1], !attrs.trans_b)};
    if constexpr (std::is_same_v<T, bf16>) {
      const auto run = [&]<class Y>(Y) {
        const StoreSums<bf16, Y> store{Bias<bf16>(Tensor()), columns_out<Y>(c)};
        with_layout<Lies::along_k, Lies::along_outer>(product,
                                                      [&]<Lies kA, Lies kB>() { launch_mma<matmul_mma_64x64<Y, kA, kB>>(product, store); });
      };
      c.dtype() == DType::bf16 ? run(bf16{}) : run(float{});
    } else {
      launch_ffma<matmul_ffma_64x64<T>>(product, StoreSums<T, T>{Bias<T>(Tensor()), columns_out<T>(c)});
    }
  });
}

}  // namespace sinter::SINTER_KERNEL_NS
