// The end of the epilogues of linear_act and of the fused convolutions: act, and beside y the
// pre-activation if it is kept.
#pragma once

#include "ops/fused/activation.h"
#include "ops/product/gemm_product.cuh"

namespace sinter::SINTER_KERNEL_NS {

// y = act(z), and z if it is kept, of V's sums.
template <class T, class Y> struct ActRows {
  Columns<Y, Out<Y>> y, pre;
  Act act;
  // of the results of an op: y, and what it keeps
  ActRows(Act act, bool keep, std::span<const Tensor> results)
      : y(columns_out<Y>(results[0])), act(act) {
    if (keep) pre = columns_out<Y>(results[1]);
  }

  // Elements j.. of row i; of the eight, `count` exist.
  SINTER_DEVICE_FN void put(int64_t i, int64_t j, int count, compute_t<T> (&z)[kGroup]) const {
    if (count == 0) return;
    if (pre) pre.store(i, j, count, z);
    visit_act(act, [&](const auto& op) {
      SINTER_UNROLL
      for (int q = 0; q < kGroup; ++q) z[q] = op.forward(z[q]);
    });
    y.store(i, j, count, z);
  }
};

}  // namespace sinter::SINTER_KERNEL_NS
