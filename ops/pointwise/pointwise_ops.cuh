// The tables of pointwise_device.h: host functions that run an op of pointwise::List, or its
// backward, by the kernels of pointwise_kernels.cuh. Included by the .cu file of each half of the
// list; each compiles for itself.
#pragma once

#include "ops/pointwise/chain.h"
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

template <class Op, bool kBackward, class T>
using StepOf = std::conditional_t<kBackward, Backward<Op, T>, Forward<Op, T>>;

// The operands of any op of the list. The condition, if there is one, is in[condition_at].
inline constexpr int kListedInputs = 4;
template <class T> struct ListedOperands {
  In<T> in[kListedInputs];
  In<uint8_t> condition;
  int condition_at = -1;
  Out<T> y, z;
};

// Inputs of any strides, outputs dense, of an op of the list, by its step (visit_step), or of its
// backward, by the step of its first gradient, both gradients at once: most of what a thread does
// is to find its operands, so one kernel serves all of the list. A thread owns one element.
template <class T>
SINTER_KERNEL_BOUNDS(kItemBlock)
listed_strided(int step, compute_t<T> number, int64_t n, const Walk<kListedInputs> walk,
    ListedOperands<T> operands) {
  SINTER_NO_UNROLL
  for (int64_t i = first_item(); i < n; i += item_step()) {
    const auto at = offsets_of(walk, i);
    const auto read = [&](int k, int64_t from) {
      if (k == operands.condition_at) return compute_t<T>(operands.condition[from]);
      return operands.in[k] ? compute_t<T>(operands.in[k][from]) : compute_t<T>(0);
    };
    const Vec<compute_t<T>, kListedInputs> x{
        {read(0, at.v[0]), read(1, at.v[1]), read(2, at.v[2]), read(3, at.v[3])}};
    visit_step(step, [&]<class Op, Part kPart>() {
      if constexpr (kPart != Part::second) {
        constexpr bool kBackward = kPart == Part::first;
        const auto op = pointwise::op_with_number<Op>(number);
        const StepOf<std::remove_const_t<decltype(op)>, kBackward, T> f{op};
        [&]<size_t... I>(std::index_sequence<I...>) {
          put_one(f, i, operands.y, operands.z, x[I]...);
        }(std::make_index_sequence<kOperands<Op, kPart>>());
      }
    });
  }
}
template <class T>
void launch_listed(const Call& call, const LoopPlan& plan, int step, double number) {
  ListedOperands<T> operands{.y = out<T>(call.out[0])};
  if (call.out.size() > 1) operands.z = out<T>(call.out[1]);
  for (int k = 0; k < static_cast<int>(call.in.size()); ++k) {
    if (call.in[k].dtype() == DType::u8) {
      operands.condition = in<uint8_t>(call.in[k]);
      operands.condition_at = k;
    } else {
      operands.in[k] = in<T>(call.in[k]);
    }
  }
  const int64_t n = call.out[0].numel();
  launch<listed_strided<T>>(item_grid(n), kItemBlock, 0, step, static_cast<compute_t<T>>(number), n,
      Walk<kListedInputs>(plan), operands);
}

// f64 is for checks, and takes the kernel that is there for all.
template <class Op, bool kBackward, class T> void pointwise_as(const Call& call) {
  const Op& attrs = call.as<Op>();
  constexpr Part kPart = kBackward ? Part::first : Part::value;
  const auto strided = [&](const LoopPlan& plan) {
    launch_listed<T>(call, plan, kStepNumber<Op, kPart>, step_param(attrs));
  };
  [&]<size_t... I>(std::index_sequence<I...>) {
    const std::array x{&call.in[I]...};
    if constexpr (std::is_same_v<T, double>) {
      if (call.out[0].numel() > 0) strided(LoopPlan(call.out[0].shape(), x));
    } else {
      constexpr size_t kDy = kBackward ? 1 : 0;  // operands before those of the op
      const auto op = pointwise::with_number<compute_t<T>>(attrs);
      const StepOf<std::remove_const_t<decltype(op)>, kBackward, T> f{op};
      const Tensor second = f.kOutputs == 2 ? call.out[1] : Tensor();
      launch_pointwise<T, pointwise::Element<Op, T, I - kDy>...>(
          f, call.out[0], second, x, strided);
    }
  }(std::make_index_sequence<kOperands<Op, kPart>>());
}

template <class Op, bool kBackward> void pointwise_kernel(const Call& call) {
  visit_float(call.out[0].dtype(), [&]<class T>(T) { pointwise_as<Op, kBackward, T>(call); });
}

template <class... Op> PointwiseKernels pointwise_table(std::tuple<Op...>, size_t index) {
  static constexpr PointwiseKernels kTable[] = {
      {pointwise_kernel<Op, false>, pointwise_kernel<Op, true>}...};
  return kTable[index];
}

}  // namespace sinter::SINTER_KERNEL_NS
