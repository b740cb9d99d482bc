// copy, cast and renew_copy: y[i] = convert(x[i]) for x of any strides, y dense; accumulate and
// masked_fill_.
// The kernels are pointwise_vec and pointwise_strided.
#include "core/convert.h"

#include "ops/pointwise/pointwise_kernels.cuh"

namespace sinter::SINTER_KERNEL_NS {

template <class To, class From> struct Convert {
  static constexpr int kOutputs = 1;
  SINTER_DEVICE_FN Vec<To, 1> operator()(From x) const { return {convert<To>(x)}; }
};

void copy(const Call& call) {
  visit_all(call.in[0].dtype(),
      [&]<class T>(T) { launch_pointwise<T, T>(Convert<T, T>(), call.out[0], {&call.in[0]}); });
}

static void cast_to(const Tensor& y, const Tensor& x) {
  visit_all(x.dtype(), [&]<class From>(From) {
    visit_all(
        y.dtype(), [&]<class To>(To) { launch_pointwise<To, From>(Convert<To, From>(), y, {&x}); });
  });
}
void cast(const Call& call) { cast_to(call.out[0], call.in[0]); }
void renew_copy(const Call& call) { cast_to(call.in[1], call.in[0]); }

// into[i] += value[i], value of any strides; f32 also takes bf16 values. `into` is operand and
// result: each element is read, then written, by one thread.
template <class T, class From> struct Accumulate {
  static constexpr int kOutputs = 1;
  SINTER_DEVICE_FN Vec<T, 1> operator()(T into, From value) const {
    return {T(compute_t<T>(into) + static_cast<compute_t<T>>(value))};
  }
};
template <class T, class From> static void accumulate_as(const Tensor& into, const Tensor& value) {
  launch_pointwise<T, T, From>(Accumulate<T, From>(), into, {&into, &value});
}
void accumulate(const Call& call) {
  visit_float(call.in[0].dtype(), [&]<class T>(T) {
    if (call.in[0].dtype() != call.in[1].dtype())
      return accumulate_as<float, bf16>(call.in[0], call.in[1]);  // the one pair allowed
    accumulate_as<T, T>(call.in[0], call.in[1]);
  });
}

// x[i] = value where mask[i] is not 0, the mask of any strides; x is operand and result.
template <class T> struct Fill {
  static constexpr int kOutputs = 1;
  T value;
  SINTER_DEVICE_FN Vec<T, 1> operator()(T x, uint8_t fills) const { return {fills ? value : x}; }
};
void masked_fill_(const Call& call) {
  const Tensor& x = call.in[0];
  visit_float(x.dtype(), [&]<class T>(T) {
    const Fill<T> fill{T(call.as<FillAttrs>().value)};
    launch_pointwise<T, T, uint8_t>(fill, x, {&x, &call.in[1]});
  });
}

}  // namespace sinter::SINTER_KERNEL_NS
