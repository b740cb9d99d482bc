// linear_act: y[b, o] = act(z), z = sum_i x[b, i] W[o, i] + bias[o]; beside y what act's backward
// reads: relu's bit mask or z. A block owns 64 x 64 of y and the mask bytes over it. Reads x and W
// once per tile that needs them; writes y, and B O / 8 or B O e more.
#include "ops/fused/act_of_sums.cuh"
#include "ops/gemm_ffma.cuh"
#include "ops/gemm_library.h"
#include "ops/gemm_mma.cuh"
#include "ops/structured.h"

namespace sinter::SINTER_KERNEL_NS {

template <class T>
SINTER_KERNEL_BOUNDS(kFfmaThreads)
linear_act_ffma_64x64(Product<T> product, ActOfSums<T, T> act) {
  ffma_product(product, act);
}

template <class T, class Y, Lies kX, Lies kW>
SINTER_KERNEL_BOUNDS(kMmaThreads)
linear_act_mma_64x64(Product<T> product, ActOfSums<T, Y> act) {
  mma_product<kX, kW>(product, act);
}

static void own_linear_act(const Call& call) {
  const auto& [act, keep, out_type] = call.as<LinearActAttrs>();
  const Tensor &y = call.out[0], kept = keep == Keep::nothing ? Tensor() : call.out[1];
  if (y.numel() == 0) return;
  visit_float(call.in[0].dtype(), [&]<class T>(T) {
    const Product<T> product{
        product_side<T>(call.in[0], false), product_side<T>(call.in[1], false)};
    with_result<T>(out_type, [&]<class Y>(Y) {
      const ActOfSums<T, Y> epilogue =
          act_of_sums<T, Y>(act, keep, optional_input(call, 2), y, kept);
      if constexpr (kHasMma<T>) {
        if (on_tensor_cores<T>())
          return with_layout<Lies::along_k, Lies::along_k>(product, [&]<Lies kX, Lies kW>() {
            launch_mma<linear_act_mma_64x64<T, Y, kX, kW>>(product, epilogue);
          });
      }
      if constexpr (kHasFfma<T>) launch_ffma<linear_act_ffma_64x64<T>>(product, epilogue);
    });
  });
}

void linear_act(const Call& call) {
#if defined(__CUDACC__)
  const auto& [act, keep, out_type] = call.as<LinearActAttrs>();
  const Tensor& y = call.out[0];
  const bool pre = keep == Keep::pre;
  GemmEpilogue epilogue;
  if (act == Act::relu)
    epilogue.kind = keep == Keep::mask ? GemmEpilogue::relu_mask
                    : pre              ? GemmEpilogue::none
                                       : GemmEpilogue::relu;
  if (act == Act::gelu_tanh) epilogue.kind = pre ? GemmEpilogue::gelu_pre : GemmEpilogue::gelu;
  if (keep != Keep::nothing)
    epilogue.aux = call.out[1].raw(), epilogue.ld = pre ? y.size(1) : 8 * relu_mask_row(y.size(1));
  if (epilogue.kind && (!pre || y.size(1) % 8 == 0) &&
      library_gemm(
          call.in[0], false, call.in[1], true, optional_input(call, 2), y,
          [&] { own_linear_act(call); }, epilogue))
    return;
#endif
  own_linear_act(call);
}

}  // namespace sinter::SINTER_KERNEL_NS
