// input_grad_act: dx[b, i] = (sum_o dy[b, o] W[o, i]) * act'(saved[b, i]). A block owns 64 x 64 of dx. Reads dy and W once per tile that
// needs them and what was saved (a bit or an element per element of dx); writes dx.
#include "ops/fused/activation_kernel.cuh"
#include "ops/gemm_ffma.cuh"
#include "ops/gemm_mma.cuh"
#include "ops/structured.h"

namespace sinter::SINTER_KERNEL_NS {

template <class T>
struct GradOfAct {
  static constexpr bool kSumsRows = false;
  Columns<T, In<T>> saved;
  In<uint8_t> mask;
  int64_t mask_row;
  Columns<T, Out<T>> dx;
  Act act;

  SINTER_DEVICE_FN void operator()(int64_t i, int64_t j, int count, compute_t<T> (&z)[kGroup]) const {
    if (count == 0) return;
    if (mask) {
      const uint32_t bits = mask[i * mask_row + j / 8];
      SINTER_UNROLL
      for (int q = 0; q < kGroup; ++q) z[q] = pointwise::Relu{}.grad(z[q], (bits >> q & 1) != 0);
    } else {
      compute_t<T> s[kGroup];
      saved.load(i, j, count, s);
      in_kernel_visit(act, [&]<class Op>(const Op& op) {
        SINTER_UNROLL
        for (int q = 0; q < kGroup; ++q) {
          if constexpr (Op::saves != pointwise::Saves::mask) z[q] = op.grad(z[q], s[q]);
        }
      });
    }
    dx.store(i, j, count, z);
  }
};

template <class T>
SINTER_KERNEL_BOUNDS(kFfmaThreads)
input_grad_act_ffma_64x64(Product<T> product, GradOfAct<T> grad) {
  ffma_product(product, grad);
}

template <Lies kDy, Lies kW>
SINTER_KERNEL_BOUNDS(kMmaThreads)
input_grad_act_mma_64x64(Product<bf16> product, GradOfAct<bf16> grad) {
  mma_product<kDy, kW>(product, grad);
}

void input_grad_act(const Call& call) {
  const Act act = call.as<InputGradActAttrs>().act;
  const Tensor &dx = call.out[0], &saved = call.in[2];
  if (dx.numel() == 0) return;
  visit_float(dx.dtype(), [&]<class T>(T) {
    const bool relu = act == Act::relu;
    const Product<T> product{product_side<T>(call.in[0], false), product_side<T>(call.in[1], true)};
    const GradOfAct<T> grad{columns_in<T>(relu ? Tensor() : saved), in<uint8_t>(relu ? saved : Tensor()), relu_mask_row(dx.size(1)),
                            columns_out<T>(dx), act};
    if constexpr (std::is_same_v<T, bf16>) {
      with_layout<Lies::along_k, Lies::along_outer>(
          product, [&]<Lies kDy, Lies kW>() { launch_mma<input_grad_act_mma_64x64<kDy, kW>>(product, grad); });
    } else {
      launch_ffma<input_grad_act_ffma_64x64<T>>(product, grad);
    }
  });
}

}  // namespace sinter::SINTER_KERNEL_NS
