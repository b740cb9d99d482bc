// weight_bias_grad: dW[o, i] = sum_b dy[b, o] x[b, i], db[o] = sum_b dy[b, o], both in batch order
// (db tile by tile). A block owns 64 x 64 of dW; those of column tile 0 own db and sum it from the
// tiles they have anyway. Reads dy and x once per tile that needs them; writes 4 O I + 4 O bytes.
#include "ops/fused/fused.h"
#include "ops/gemm_ffma.cuh"
#include "ops/gemm_library.h"
#include "ops/gemm_mma.cuh"
#include "ops/ops.h"

namespace sinter::SINTER_KERNEL_NS {

template <class T>
struct StoreGrads {
  static constexpr bool kSumsRows = true;
  Columns<compute_t<T>, Out<compute_t<T>>> dw;
  Out<compute_t<T>> db;
  SINTER_DEVICE_FN void operator()(
      int64_t i, int64_t j, int count, compute_t<T> (&z)[kGroup]) const {
    dw.store(i, j, count, z);
  }
  SINTER_DEVICE_FN void row_sum(int64_t i, compute_t<T> sum) const { db.put(i, sum); }
};

template <class T>
SINTER_KERNEL_BOUNDS(kFfmaThreads)
weight_bias_grad_ffma_64x64(Product<T> product, StoreGrads<T> store) {
  ffma_product(product, store);
}

template <class T, Lies kDy, Lies kX>
SINTER_KERNEL_BOUNDS(kMmaThreads)
weight_bias_grad_mma_64x64(Product<T> product, StoreGrads<T> store) {
  mma_product<kDy, kX>(product, store);
}

static void own_weight_bias_grad(const Call& call) {
  const Tensor &dw = call.out[0], &db = call.out[1];
  if (db.numel() == 0) return;
  visit_float(call.in[0].dtype(), [&]<class T>(T) {
    using V = compute_t<T>;
    const Product<T> product{product_side<T>(call.in[0], true), product_side<T>(call.in[1], true)};
    const StoreGrads<T> store{columns_out<V>(dw), out<V>(db)};
    if constexpr (kHasMma<T>) {
      if (on_tensor_cores<T>())
        return with_layout<Lies::along_outer, Lies::along_outer>(product, [&]<Lies kDy, Lies kX>() {
          launch_mma<weight_bias_grad_mma_64x64<T, kDy, kX>>(product, store);
        });
    }
    if constexpr (kHasFfma<T>) launch_ffma<weight_bias_grad_ffma_64x64<T>>(product, store);
  });
}

void weight_bias_grad(const Call& call) {
#if defined(__CUDACC__)
  const GemmEpilogue epilogue{GemmEpilogue::bias_grad, call.out[1].raw(), 0};
  if (library_gemm(
          call.in[0], true, call.in[1], false, Tensor(), call.out[0],
          [&] { own_weight_bias_grad(call); }, epilogue))
    return;
#endif
  own_weight_bias_grad(call);
}

}  // namespace sinter::SINTER_KERNEL_NS
