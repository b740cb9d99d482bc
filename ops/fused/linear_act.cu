// linear_act: y[b, o] = act(z), z = sum_i x[b, i] W[o, i] + bias[o]; beside y what act's backward
// reads: relu's bit mask or z. A block owns a tile of y and the mask bytes over it. Reads x and W
// once per tile that needs them; writes y, and B O / 8 or B O e more.
#include "ops/fused/activation.h"
#include "ops/gemm_launch.cuh"
#include "ops/ops.h"

namespace sinter::SINTER_KERNEL_NS {

// The epilogue: y = act(sums + bias), and what act's backward reads.
template <class T, class Y> struct ActOfSums {
  static constexpr bool kSumsRows = false;
  Bias<T> bias;
  Columns<Y, Out<Y>> y, pre;
  Out<uint8_t> mask;
  int64_t mask_row;
  Act act;

  SINTER_DEVICE_FN void operator()(
      int64_t i, int64_t j, int count, compute_t<T> (&z)[kGroup]) const {
    bias.add(j, count, z);
    if (pre) pre.store(i, j, count, z);
    if (mask) put_mask(i, j, count, z);
    visit_act(act, [&](const auto& op) {
      SINTER_UNROLL
      for (int q = 0; q < kGroup; ++q) z[q] = op.forward(z[q]);
    });
    y.store(i, j, count, z);
  }
  // Rows are padded to 128 bits, with zeros; the last column tile may stand for two.
  SINTER_DEVICE_FN void put_mask(
      int64_t i, int64_t j, int count, const compute_t<T> (&z)[kGroup]) const {
    uint32_t bits = 0;
    SINTER_UNROLL
    for (int q = 0; q < kGroup; ++q)
      bits |= q < count && pointwise::Relu::passes(z[q]) ? 1u << q : 0u;
    mask.put(i * mask_row + j / 8, static_cast<uint8_t>(bits));
    if (block_y() == grid_y() - 1 && grid_y() % 2 == 1)
      mask.put(i * mask_row + j / 8 + kTile / 8, 0);
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
               kept = attrs.keep == Keep::nothing ? Tensor() : call.out[1],
               pre = attrs.keep == Keep::pre ? kept : Tensor(),
               mask = attrs.keep == Keep::mask ? kept : Tensor();
  const auto own = [&] {
    visit_float(x.dtype(), [&]<class T>(T) {
      with_result<T>(y.dtype(), [&]<class Y>(Y) {
        launch_linear_act<Layout::along_k, Layout::along_k>(
            Product<T>{product_side<T>(x, false), product_side<T>(weight, false)},
            ActOfSums<T, Y>{Bias<T>(bias), columns_out<Y>(y), columns_out<Y>(pre),
                out<uint8_t>(mask), relu_mask_row(y.size(1)), attrs.act});
      });
    });
  };
  by_library_or(own, x, false, weight, true, bias, y, linear_act_epilogue(attrs, y, kept));
}

}  // namespace sinter::SINTER_KERNEL_NS
