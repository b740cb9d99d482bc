// linear: y[b, o] = sum_i x[b, i] W[o, i] + bias[o]. A block owns 64 x 64 of y. Reads x, W and the
// bias once per tile that needs them, B I e + O I e bytes at least; writes B O e.
#include "ops/gemm_ffma.cuh"
#include "ops/gemm_library.h"
#include "ops/gemm_mma.cuh"
#include "ops/ops.h"

namespace sinter::SINTER_KERNEL_NS {

template <class T>
SINTER_KERNEL_BOUNDS(kFfmaThreads)
linear_ffma_64x64(Product<T> product, StoreSums<T, T> store) {
  ffma_product(product, store);
}

template <class T, class Y, Lies kX, Lies kW>
SINTER_KERNEL_BOUNDS(kMmaThreads)
linear_mma_64x64(Product<T> product, StoreSums<T, Y> store) {
  mma_product<kX, kW>(product, store);
}

static void own_linear(const Call& call) {
  const Tensor &y = call.out[0], bias = optional_input(call, 2);
  if (y.numel() == 0) return;
  visit_float(call.in[0].dtype(), [&]<class T>(T) {
    const Product<T> product{
        product_side<T>(call.in[0], false), product_side<T>(call.in[1], false)};
    with_result<T>(y.dtype(), [&]<class Y>(Y) {
      const StoreSums<T, Y> store{Bias<T>(bias), columns_out<Y>(y)};
      if constexpr (kHasMma<T>) {
        if (on_tensor_cores<T>())
          return with_layout<Lies::along_k, Lies::along_k>(product, [&]<Lies kX, Lies kW>() {
            launch_mma<linear_mma_64x64<T, Y, kX, kW>>(product, store);
          });
      }
      if constexpr (kHasFfma<T>) launch_ffma<linear_ffma_64x64<T>>(product, store);
    });
  });
}

void linear(const Call& call) {
#if defined(__CUDACC__)
  if (library_gemm(call.in[0], false, call.in[1], true, optional_input(call, 2), call.out[0],
          [&] { own_linear(call); }))
    return;
#endif
  own_linear(call);
}

}  // namespace sinter::SINTER_KERNEL_NS
