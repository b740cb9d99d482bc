// input_grad_act: dx[b, i] = (sum_o dy[b, o] W[o, i]) * act'(saved[b, i]). A block owns 64 x 64 of
// dx. Reads dy and W once per tile that needs them and what was saved (a bit or an element per
// element of dx); writes dx.
#include "ops/fused/grad_of_act.cuh"
#include "ops/gemm_ffma.cuh"
#include "ops/gemm_library.h"
#include "ops/gemm_mma.cuh"
#include "ops/ops.h"

namespace sinter::SINTER_KERNEL_NS {

template <class T>
SINTER_KERNEL_BOUNDS(kFfmaThreads)
input_grad_act_ffma_64x64(Product<T> product, GradOfAct<T> grad) {
  ffma_product(product, grad);
}

template <class T, Lies kDy, Lies kW>
SINTER_KERNEL_BOUNDS(kMmaThreads)
input_grad_act_mma_64x64(Product<T> product, GradOfAct<T> grad) {
  mma_product<kDy, kW>(product, grad);
}

static void own_input_grad_act(const Call& call) {
  const Act act = call.as<InputGradActAttrs>().act;
  const Tensor &dx = call.out[0], &saved = call.in[2];
  if (dx.numel() == 0) return;
  visit_float(dx.dtype(), [&]<class T>(T) {
    const Product<T> product{product_side<T>(call.in[0], false), product_side<T>(call.in[1], true)};
    const GradOfAct<T> grad = grad_of_act<T>(act, saved, dx);
    if constexpr (kHasMma<T>) {
      if (on_tensor_cores<T>())
        return with_layout<Lies::along_k, Lies::along_outer>(product, [&]<Lies kDy, Lies kW>() {
          launch_mma<input_grad_act_mma_64x64<T, kDy, kW>>(product, grad);
        });
    }
    if constexpr (kHasFfma<T>) launch_ffma<input_grad_act_ffma_64x64<T>>(product, grad);
  });
}

void input_grad_act(const Call& call) {
#if defined(__CUDACC__)
  const Act act = call.as<InputGradActAttrs>().act;
  const Tensor& dx = call.out[0];
  const int64_t cols = dx.size(1);
  const bool relu = act == Act::relu;
  const GemmEpilogue epilogue{relu ? GemmEpilogue::relu_grad : GemmEpilogue::gelu_grad,
      const_cast<void*>(call.in[2].raw()), relu ? 8 * relu_mask_row(cols) : cols};
  if ((relu || (act == Act::gelu_tanh && cols % 8 == 0)) &&
      library_gemm(
          call.in[0], false, call.in[1], false, Tensor(), dx, [&] { own_input_grad_act(call); },
          epilogue))
    return;
#endif
  own_input_grad_act(call);
}

}  // namespace sinter::SINTER_KERNEL_NS
