// linear_act: y[b, o] = act(z), z = sum_i x[b, i] W[o, i] + bias[o]; beside y what act's backward
// reads: relu's bit mask or z. A block owns 64 x 64 of y and the mask bytes over it. Reads x and W
// once per tile that needs them; writes y, and B O / 8 or B O e more.
#include "ops/fused/activation.h"
#include "ops/gemm_ffma.cuh"
#include "ops/gemm_library.h"
#include "ops/gemm_mma.cuh"
#include "ops/gemm_product.cuh"
#include "ops/ops.h"

namespace sinter::SINTER_KERNEL_NS {

// The epilogue: y = act(sums + bias), and what act's backward reads.
template <class T, class Y>
struct ActOfSums {
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
template <class T, class Y>
ActOfSums<T, Y> act_of_sums(
    Act act, Keep keep, const Tensor& bias, const Tensor& y, const Tensor& kept) {
  return {Bias<T>(bias), columns_out<Y>(y), columns_out<Y>(keep == Keep::pre ? kept : Tensor()),
      out<uint8_t>(keep == Keep::mask ? kept : Tensor()), relu_mask_row(y.size(1)), act};
}

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
  if (keep != Keep::nothing) {
    epilogue.aux = call.out[1].raw();
    epilogue.ld = pre ? y.size(1) : 8 * relu_mask_row(y.size(1));
  }
  if (epilogue.kind && (!pre || y.size(1) % 8 == 0) &&
      library_gemm(
          call.in[0], false, call.in[1], true, optional_input(call, 2), y,
          [&] { own_linear_act(call); }, epilogue))
    return;
#endif
  own_linear_act(call);
}

}  // namespace sinter::SINTER_KERNEL_NS
