// copy, cast and renew_copy: y[i] = convert(x[i]) for x of any strides, y dense; the kernels are
// pointwise_vec and pointwise_strided.
#include "ops/pointwise/copy.h"

#include "ops/pointwise/pointwise_kernels.cuh"

namespace sinter::SINTER_KERNEL_NS {

template <class To, class From> struct Convert {
  static constexpr int kOutputs = 1;
  SINTER_DEVICE_FN Vec<To, 1> operator()(From x) const { return {convert<To>(x)}; }
};

void copy(const Call& call) {
  visit_all(call.in[0].dtype(),
      [&]<class T>(T) { launch_pointwise<T, T>(Convert<T, T>(), call.out[0], {}, {&call.in[0]}); });
}

static void cast_to(const Tensor& y, const Tensor& x) {
  visit_all(x.dtype(), [&]<class From>(From) {
    visit_all(y.dtype(),
        [&]<class To>(To) { launch_pointwise<To, From>(Convert<To, From>(), y, {}, {&x}); });
  });
}
void cast(const Call& call) { cast_to(call.out[0], call.in[0]); }
void renew_copy(const Call& call) { cast_to(call.in[1], call.in[0]); }

// accumulate: into[i] += value[i], into dense, value of any strides; f32 also takes bf16 values.
template <class T, class From> SINTER_DEVICE_FN T sum_of(T into, From value) {
  return T(compute_t<T>(into) + static_cast<compute_t<T>>(value));
}

// A thread owns 16 bytes of `into`. Reads both once, writes one.
template <class T, class From>
SINTER_KERNEL_BOUNDS(kItemBlock)
accumulate_vec(int64_t n, InOut<T> into, In<From> value) {
  constexpr int N = kVec<T>;
  for (int64_t i = first_item() * N; i + N <= n; i += item_step() * N) {
    Vec<T, N> v = into.template load_vec<N>(i);
    const Vec<From, N> x = value.template load_vec<N>(i);
    SINTER_UNROLL
    for (int k = 0; k < N; ++k) v[k] = sum_of(v[k], x[k]);
    into.store_vec(i, v);
  }
  SINTER_NO_UNROLL
  for (int64_t i = n / N * N + first_item(); i < n; i += item_step())
    into.put(i, sum_of(into[i], value[i]));
}

// A thread owns one element.
template <class T, class From>
SINTER_KERNEL_BOUNDS(kItemBlock)
accumulate_strided(int64_t n, const Walk<1> walk, InOut<T> into, In<From> value) {
  SINTER_NO_UNROLL
  for (int64_t i = first_item(); i < n; i += item_step())
    into.put(i, sum_of(into[i], value[offsets_of(walk, i).v[0]]));
}

template <class T, class From> void accumulate_as(const Tensor& into, const Tensor& value) {
  const int64_t n = into.numel();
  if (n == 0) return;
  const Tensor* const operands[] = {&value};
  const LoopPlan plan(into.shape(), operands);
  if (plan.rank == 1 && plan.stride[0][0] == 1 && is_aligned<T, kVec<T>>(into) &&
      is_aligned<From, kVec<T>>(value)) {
    launch<accumulate_vec<T, From>>(
        item_grid(n / kVec<T>), kItemBlock, 0, n, in_out<T>(into), in<From>(value));
  } else {
    launch<accumulate_strided<T, From>>(
        item_grid(n), kItemBlock, 0, n, Walk<1>(plan), in_out<T>(into), in<From>(value));
  }
}

void accumulate(const Call& call) {
  visit_float(call.in[0].dtype(), [&]<class T>(T) {
    if (call.in[0].dtype() != call.in[1].dtype())
      return accumulate_as<float, bf16>(call.in[0], call.in[1]);  // the one pair allowed
    accumulate_as<T, T>(call.in[0], call.in[1]);
  });
}

}  // namespace sinter::SINTER_KERNEL_NS
