// input_grad_act: dx[b, i] = (sum_o dy[b, o] W[o, i]) * act'(saved[b, i]). A block owns a tile of
// dx. Reads dy and W once per tile that needs them and what was saved; writes dx.
#include "ops/fused/grad_of_act.cuh"
#include "ops/product/gemm_launch.cuh"

namespace sinter::SINTER_KERNEL_NS {

SINTER_PRODUCT_KERNELS(input_grad_act, Product)

// What the library offers of it, or nothing.
static std::optional<GemmEpilogue> input_grad_epilogue(Act act, const Tensor& saved, int64_t cols) {
  void* aux = const_cast<void*>(saved.raw());
  if (act != Act::gelu_tanh || cols % 8 != 0) return {};
  return GemmEpilogue{GemmEpilogue::gelu_grad, aux, cols};
}

void input_grad_act(const Call& call) {
  const Act act = call.as<InputGradActAttrs>().act;
  const Tensor &dy = call.in[0], &weight = call.in[1], &saved = call.in[2], &dx = call.out[0];
  const auto own = [&] {
    visit_float(dx.dtype(), [&]<class T>(T) {
      launch_input_grad_act<Layout::along_k, Layout::along_outer>(
          Product<T>{product_side<T>(dy, false), product_side<T>(weight, true)},
          grad_of_act<T>(act, saved, dx));
    });
  };
  by_library_or(
      own, dy, false, weight, false, Tensor(), dx, input_grad_epilogue(act, saved, dx.size(1)));
}

}  // namespace sinter::SINTER_KERNEL_NS
