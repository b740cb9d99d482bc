// weight_grad_update: dW[o, i] = sum_b dy[b, o] x[b, i] and db[o] = sum_b dy[b, o], in batch order, applied by the optimizer's formula
// (ops/update_formulas.h) as they are made: no gradient in memory. A block owns 64 x 64 of W and its state, those of column tile 0 the
// bias and its state, so every parameter has one owner. Reads dy and x once per tile that needs them, parameters and state once; writes
// parameters, state and bf16 copies once. The last block to arrive does the tail of a step.
#include "ops/fused/update.h"
#include "ops/gemm_ffma.cuh"
#include "ops/gemm_mma.cuh"
#include "ops/update_kernel.cuh"

namespace sinter::SINTER_KERNEL_NS {

template <class V>
struct UpdatedParameters {
  Columns<V, InOut<V>> weight, state1, state2;
  Columns<bf16, Out<bf16>> low;
  UpdateOperands<V> bias;
};

template <class V, class Step>
struct UpdateFromSums {
  static constexpr bool kSumsRows = true;
  static constexpr bool kAdam = std::is_same_v<Step, AdamStep<V>>;
  const UpdatedParameters<V>& to;
  Step step;

  SINTER_DEVICE_FN void operator()(int64_t i, int64_t j, int count, V (&grad)[kGroup]) const {
    if (count == 0) return;
    V p[kGroup], s1[kGroup] = {}, s2[kGroup] = {};
    to.weight.load(i, j, count, p);
    if (to.state1) to.state1.load(i, j, count, s1);
    if (kAdam) to.state2.load(i, j, count, s2);
    SINTER_UNROLL
    for (int q = 0; q < kGroup; ++q) p[q] = update_one(step, p[q], grad[q], s1[q], s2[q], bool(to.state1));
    to.weight.store(i, j, count, p);
    if (to.state1) to.state1.store(i, j, count, s1);
    if (kAdam) to.state2.store(i, j, count, s2);
    if (to.low) to.low.store(i, j, count, p);
  }
  SINTER_DEVICE_FN void row_sum(int64_t i, V grad) const {
    const UpdateOperands<V>& b = to.bias;
    if (!b.param) return;
    V s1 = b.state1 ? b.state1[i] : V(0), s2 = kAdam ? b.state2[i] : V(0);
    const V p = update_one(step, b.param[i], grad, s1, s2, bool(b.state1));
    b.param.put(i, p);
    if (b.state1) b.state1.put(i, s1);
    if (kAdam) b.state2.put(i, s2);
    if (b.low) b.low.put(i, bf16(static_cast<float>(p)));
  }
};

template <class V>
SINTER_DEVICE_FN SgdStep<V> formula(const UpdateStep& step, const SgdAttrs& attrs) {
  return {step_scalars(step), attrs};
}
template <class V>
SINTER_DEVICE_FN AdamStep<V> formula(const UpdateStep& step, const AdamAttrs& attrs) {
  return {step_scalars(step), attrs};
}
SINTER_DEVICE_FN void tail(const UpdateStep& step, const SgdAttrs& attrs) {
  if (attrs.tail) finish_step(step, 0, 0);
}
SINTER_DEVICE_FN void tail(const UpdateStep& step, const AdamAttrs& attrs) {
  if (attrs.tail) finish_step(step, attrs.beta1, attrs.beta2);
}

template <class V, class A>
SINTER_KERNEL_BOUNDS(kFfmaThreads)
weight_grad_update_ffma_64x64(Product<V> product, UpdatedParameters<V> to, UpdateStep step, A attrs) {
  const auto apply = formula<V>(step, attrs);
  ffma_product(product, UpdateFromSums<V, std::remove_const_t<decltype(apply)>>{to, apply});
  tail(step, attrs);
}

template <class A, Lies kDy, Lies kX>
SINTER_KERNEL_BOUNDS(kMmaThreads)
weight_grad_update_mma_64x64(Product<bf16> product, UpdatedParameters<float> to, UpdateStep step, A attrs) {
  const auto apply = formula<float>(step, attrs);
  mma_product<kDy, kX>(product, UpdateFromSums<float, std::remove_const_t<decltype(apply)>>{to, apply});
  tail(step, attrs);
}

void weight_grad_update(const Call& call) {
  // 0 dy, 1 x, 2..5 the weight with its state and copy, 6..9 the bias with its own, 10..12 of the step (ops/fused/fused.h).
  const Operands in = call.in;
  const UpdateAttrs& attrs = call.as<UpdateAttrs>();
  const UpdateEnd end(in, 10);
  if (in[0].size(1) == 0 && !attrs.tail) return;
  visit_float(in[0].dtype(), [&]<class T>(T) {
    using V = compute_t<T>;
    const Product<T> product{product_side<T>(in[0], true), product_side<T>(in[1], true)};
    const UpdatedParameters<V> to{columns_in_out<V>(in[2]), columns_in_out<V>(in[3]), columns_in_out<V>(in[4]), columns_out<bf16>(in[5]),
                                  in[6].defined() ? update_operands<V>(in[6], Tensor(), in[7], in[8], in[9]) : UpdateOperands<V>{}};
    const UpdateStep step = update_step(end.state, end.losses, end.rng);
    const auto run = [&]<class A>(const A& formula_attrs) {
      if constexpr (std::is_same_v<T, bf16>) {
        with_layout<Lies::along_outer, Lies::along_outer>(product, [&]<Lies kDy, Lies kX>() {
          launch<weight_grad_update_mma_64x64<A, kDy, kX>>(product.grid(), kMmaThreads, sizeof(MmaShared), product, to, step,
                                                           formula_attrs);
        });
      } else {
        launch<weight_grad_update_ffma_64x64<T, A>>(product.grid(), kFfmaThreads, sizeof(FfmaShared<T>), product, to, step, formula_attrs);
      }
    };
    attrs.adam ? run(adam_attrs(attrs)) : run(sgd_attrs(attrs));
  });
}

}  // namespace sinter::SINTER_KERNEL_NS
