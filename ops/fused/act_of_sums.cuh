// The end of the epilogues of linear_act and of the fused convolutions: act, and beside y what
// act's backward reads.
#pragma once

#include "ops/fused/activation.h"
#include "ops/product/gemm_product.cuh"

namespace sinter::SINTER_KERNEL_NS {

// ReLU's bit mask of rows of `cols` elements (ops/pointwise/relu_mask.h), or none.
struct MaskRows {
  Out<uint8_t> bytes;
  int64_t cols = 0;

  // Of elements j..j+7 of row i; behind a row's last ones come the zeros that pad it.
  SINTER_DEVICE_FN void put(int64_t i, int64_t j, uint32_t bits) const {
    const int64_t row = relu_mask_row(cols), end = j + kGroup < cols ? j / 8 + 1 : row;
    bytes.put(i * row + j / 8, static_cast<uint8_t>(bits));
    SINTER_NO_UNROLL
    for (int64_t b = j / 8 + 1; b < end; ++b) bytes.put(i * row + b, 0);
  }
};

// y = act(z), and z or ReLU's mask, of V's sums.
template <class T, class Y> struct ActRows {
  Columns<Y, Out<Y>> y, pre;
  MaskRows mask;
  Act act;
  // of the results of an op: y, and what it keeps
  ActRows(Act act, Keep keep, std::span<const Tensor> results)
      : y(columns_out<Y>(results[0])), act(act) {
    if (keep == Keep::pre) pre = columns_out<Y>(results[1]);
    if (keep == Keep::mask) mask = {out<uint8_t>(results[1]), results[0].size(-1)};
  }

  // Elements j.. of row i; of the eight, `count` exist.
  SINTER_DEVICE_FN void put(int64_t i, int64_t j, int count, compute_t<T> (&z)[kGroup]) const {
    if (count == 0) return;
    if (pre) pre.store(i, j, count, z);
    if (mask.bytes) {
      uint32_t bits = 0;
      SINTER_UNROLL
      for (int q = 0; q < kGroup; ++q)
        bits |= q < count && pointwise::Relu::passes(z[q]) ? 1u << q : 0u;
      mask.put(i, j, bits);
    }
    visit_act(act, [&](const auto& op) {
      SINTER_UNROLL
      for (int q = 0; q < kGroup; ++q) z[q] = op.forward(z[q]);
    });
    y.store(i, j, count, z);
  }
};

}  // namespace sinter::SINTER_KERNEL_NS
