// linear_act: y[b, o] = act(z), z = sum_i x[b, i] W[o, i] + bias[o]; beside y what act's backward
// reads: relu's bit mask or z. A block owns a tile of y and the mask bytes over it. Reads x and W
// once per tile that needs them; writes y, and B O / 8 or B O e more.
#include "ops/fused/act_of_sums.cuh"
#include "ops/ops.h"
#include "ops/product/gemm_launch.cuh"

namespace sinter::SINTER_KERNEL_NS {

// The epilogue: y = act(sums + bias), and what act's backward reads.
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
    const LinearActAttrs& attrs, const Tensor& y, const Tensor& kept) {
  const bool pre = attrs.keep == Keep::pre;
  GemmEpilogue epilogue{.aux = kept.defined() ? kept.raw() : nullptr};
  if (attrs.act == Act::relu && !pre) {
    epilogue.kind = kept.defined() ? GemmEpilogue::relu_mask : GemmEpilogue::relu;
    if (kept.defined()) epilogue.ld = 8 * relu_mask_row(y.size(1));
    return epilogue;
  }
  if (attrs.act != Act::gelu_tanh || (pre && y.size(1) % 8 != 0)) return {};
  epilogue.kind = pre ? GemmEpilogue::gelu_pre : GemmEpilogue::gelu;
  if (pre) epilogue.ld = y.size(1);
  return epilogue;
}

void linear_act(const Call& call) {
  const auto& attrs = call.as<LinearActAttrs>();
  const Tensor &x = call.in[0], &weight = call.in[1], &y = call.out[0];
  const Tensor bias = optional_input(call.in, 2),
               kept = attrs.keep == Keep::nothing ? Tensor() : call.out[1];
  const auto own = [&] {
    visit_float(x.dtype(), [&]<class T>(T) {
      with_result<T>(y.dtype(), [&]<class Y>(Y) {
        launch_linear_act<Layout::along_k, Layout::along_k>(
            Product<T>{product_side<T>(x, false), product_side<T>(weight, false)},
            ActOfSums<T, Y>{Bias<T>(bias), ActRows<T, Y>(attrs.act, attrs.keep, call.out)});
      });
    });
  };
  by_library_or(own, x, false, weight, true, bias, y, linear_act_epilogue(attrs, y, kept));
}

}  // namespace sinter::SINTER_KERNEL_NS
