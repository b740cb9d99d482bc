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

}  // namespace sinter::SINTER_KERNEL_NS
