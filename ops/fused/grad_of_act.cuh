// The epilogue of products that give an input gradient: dx = sums * act'(saved), for input_grad_act
// and classifier_head.
#pragma once

#include "ops/fused/activation.h"
#include "ops/product/gemm_product.cuh"

namespace sinter::SINTER_KERNEL_NS {

// saved: what act's backward reads, nothing without an activation.
template <class T> struct GradOfAct {
  static constexpr bool kSumsRows = false;
  Columns<T, In<T>> saved;
  Columns<T, Out<T>> dx;
  Act act;

  SINTER_DEVICE_FN void operator()(
      int64_t i, int64_t j, int count, compute_t<T> (&z)[kGroup]) const {
    if (count == 0) return;
    if (saved) {
      compute_t<T> s[kGroup];
      saved.load(i, j, count, s);
      visit_act(act, [&](const auto& op) {
        SINTER_UNROLL
        for (int q = 0; q < kGroup; ++q) z[q] = op.grad(z[q], s[q]);
      });
    }
    dx.store(i, j, count, z);
  }
};
template <class T> GradOfAct<T> grad_of_act(Act act, const Tensor& saved, const Tensor& dx) {
  return {columns_in<T>(saved), columns_out<T>(dx), act};
}

}  // namespace sinter::SINTER_KERNEL_NS
