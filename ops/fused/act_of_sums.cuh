// The epilogue of products that end in an activation: y = act(sums + bias), and what act's backward
// reads: relu's bit mask or the pre-activation. For linear_act and gather_linear_act.
#pragma once

#include "ops/fused/activation_kernel.cuh"
#include "ops/gemm_product.cuh"

namespace sinter::SINTER_KERNEL_NS {

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
    in_kernel_visit(act, [&](const auto& op) {
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

}  // namespace sinter::SINTER_KERNEL_NS
