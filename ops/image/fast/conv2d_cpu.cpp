#include "ops/image/conv2d_cpu.h"

namespace sinter {

namespace conv {
SINTER_IMAGE_LANES(, float, float);
SINTER_IMAGE_LANES(, double, double);
SINTER_IMAGE_LANES(, bf16, float);
}  // namespace conv

void conv2d_forward_cpu(const Call& call) {
  const conv::Correlation g{conv2d_sizes(call)};
  const Tensor bias = optional_input(call.in, 2);
  visit_float(call.out[0].dtype(), [&]<class T>(T) {
    using V = compute_t<T>;
    conv::correlate<T>(g, conv::Parts<V>(g, 2 * num_threads()),
        conv::image_source<T>(g, call.in[0].data<T>()), conv::weights_of<T>(call.in[1]),
        conv::bias_of<T>(bias), conv::ImageSink<T>{g, call.out[0].data<T>()});
  });
}

void conv2d_input_grad_cpu(const Call& call) {
  const conv::Correlation g = conv::input_grad_of(conv2d_input_grad_sizes(call));
  visit_float(call.out[0].dtype(), [&]<class T>(T) {
    using V = compute_t<T>;
    conv::correlate<T>(g, conv::Parts<V>(g, 2 * num_threads()),
        conv::image_source<T>(g, call.in[0].data<T>()), conv::turned_weights_of<T>(call.in[1]),
        conv::bias_of<T>({}), conv::ImageSink<T>{g, call.out[0].data<T>()});
  });
}

void conv2d_weight_grad_cpu(const Call& call) {
  const conv::Correlation g{conv2d_weight_grad_sizes(call)};
  visit_float(call.in[0].dtype(), [&]<class T>(T) {
    using V = compute_t<T>;
    conv::correlate_gradient<T>(g, conv::image_source<T>(g, call.in[1].data<T>()),
        conv::gradient_source<T>(g, call.in[0].data<T>()), call.out[0].data<V>());
  });
}

}  // namespace sinter
