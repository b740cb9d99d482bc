// The tables of pointwise_device.h: host functions that run an op of pointwise::List, or its
// backward, by the kernels of pointwise_kernels.cuh. Included by the .cu file of each half of the
// list; each compiles for itself.
#pragma once

#include "ops/pointwise/pointwise_device.h"
#include "ops/pointwise/pointwise_kernels.cuh"

namespace sinter::SINTER_KERNEL_NS {

template <class Op, class T> struct Forward {
  static constexpr int kOutputs = 1;
  Op op;
  template <class... X> SINTER_DEVICE_FN Vec<T, 1> operator()(X... x) const {
    return {T(op.forward(compute_t<T>(x)...))};
  }
};

// Two gradients: the last two, those of a and b.
template <class Op, class T> struct Backward {
  static constexpr int kOutputs = pointwise::kGrads<Op>;
  Op op;
  template <class... X> SINTER_DEVICE_FN Vec<T, kOutputs> operator()(X... x) const {
    const auto grads = op.grad(compute_t<T>(x)...);
    if constexpr (kOutputs == 1) {
      return {T(grads)};
    } else {
      return {T(grads[grads.size() - 2]), T(grads[grads.size() - 1])};
    }
  }
};

template <class Op, class T> void pointwise_forward_as(const Call& call) {
  const auto op = pointwise::with_number<compute_t<T>>(call.as<Op>());
  [&]<size_t... I>(std::index_sequence<I...>) {
    launch_pointwise<T, pointwise::Element<Op, T, I>...>(
        Forward<std::remove_const_t<decltype(op)>, T>{op}, call.out[0], {}, {&call.in[I]...});
  }(std::make_index_sequence<Op::arity>());
}

template <class Op, class T> void pointwise_backward_as(const Call& call) {
  const auto op = pointwise::with_number<compute_t<T>>(call.as<Op>());
  const Tensor second = pointwise::kGrads<Op> == 2 ? call.out[1] : Tensor();
  [&]<size_t... I>(std::index_sequence<I...>) {
    launch_pointwise<T, T, pointwise::Element<Op, T, I>...>(
        Backward<std::remove_const_t<decltype(op)>, T>{op}, call.out[0], second,
        {&call.in[0], &call.in[1 + I]...});
  }(std::make_index_sequence<pointwise::kSavedValues<Op>>());
}

template <class Op> void pointwise_forward(const Call& call) {
  visit_float(call.out[0].dtype(), [&]<class T>(T) { pointwise_forward_as<Op, T>(call); });
}
template <class Op> void pointwise_backward(const Call& call) {
  visit_float(call.out[0].dtype(), [&]<class T>(T) { pointwise_backward_as<Op, T>(call); });
}

template <class... Op> PointwiseKernels pointwise_table(std::tuple<Op...>, size_t index) {
  static constexpr PointwiseKernels kTable[] = {{pointwise_forward<Op>, pointwise_backward<Op>}...};
  return kTable[index];
}

}  // namespace sinter::SINTER_KERNEL_NS
