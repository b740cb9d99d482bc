// linear_act: y[b, o] = act(z), z = sum_i x[b, i] W[o, i] + bias[o]; beside y, z where act's
// backward reads it. A block owns a tile of y. Reads x and W once per tile that needs them; writes
// y, and z if it is kept.
#include "ops/fused/act_of_sums.cuh"
#include "ops/ops.h"
#include "ops/product/gemm_launch.cuh"

namespace sinter::SINTER_KERNEL_NS {

// The epilogue: y = act(sums + bias), and the pre-activation if it is kept.
template <class T, class Y> struct ActOfSums {
  static constexpr bool kSumsRows = false;
  Bias<T> bias;
  ActRows<T, Y> rows;
  SINTER_DEVICE_FN void operator()(
      int64_t i, int64_t j, int count, compute_t<T> (&z)[kGroup]) const {
    bias.add(j, count, z);
    rows.put(i, j, count, z);
  }
};

SINTER_PRODUCT_KERNELS(linear_act, Product)

// What the library offers of it, or nothing.
static std::optional<GemmEpilogue> linear_act_epilogue(
    const LinearActAttrs& attrs, const Tensor& y, const Tensor& pre) {
  if (attrs.act == Act::relu && !attrs.keep) return GemmEpilogue{GemmEpilogue::relu};
  if (attrs.act != Act::gelu_tanh || (attrs.keep && y.size(1) % 8 != 0)) return {};
  if (!attrs.keep) return GemmEpilogue{GemmEpilogue::gelu};
  return GemmEpilogue{GemmEpilogue::gelu_pre, pre.raw(), y.size(1)};
}

void linear_act(const Call& call) {
  const auto& attrs = call.as<LinearActAttrs>();
  const Tensor &x = call.in[0], &weight = call.in[1], &y = call.out[0];
  const Tensor bias = optional_input(call.in, 2), pre = attrs.keep ? call.out[1] : Tensor();
  const auto own = [&] {
    visit_float(x.dtype(), [&]<class T>(T) {
      with_result<T>(y.dtype(), [&]<class Y>(Y) {
        launch_linear_act<Layout::along_k, Layout::along_k>(
            Product<T>{product_side<T>(x, false), product_side<T>(weight, false)},
            ActOfSums<T, Y>{Bias<T>(bias), ActRows<T, Y>(attrs.act, attrs.keep, call.out)});
      });
    });
  };
  by_library_or(own, x, false, weight, true, bias, y, linear_act_epilogue(attrs, y, pre));
}

}  // namespace sinter::SINTER_KERNEL_NS
