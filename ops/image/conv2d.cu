// conv2d and its gradients, as products of weights or gradients and the windows of images
// (conv2d_product.cuh), or by cuDNN.
#include "ops/image/conv2d_product.cuh"
#include "ops/image/cudnn_conv.h"
#include "ops/rows/reduce.cuh"

namespace sinter::SINTER_KERNEL_NS {

SINTER_CONV2D_KERNELS(conv2d)

// cuDNN, or own(); on the emulator always own(), which must not take an empty result.
template <class Own>
static void by_cudnn_or(const Call& call, const Conv2dSizes& z, const Own& launch) {
  const auto own = [&] {
    check_conv2d_sizes(call, z);
    visit_float(call.in[0].dtype(), launch);
  };
  if constexpr (kDevice.type == Device::Type::cuda) {
    if (cudnn_conv2d(call, z, own)) return;
  }
  if (call.out[0].numel() > 0) own();
}

void conv2d(const Call& call) {
  const Conv2dSizes z = conv2d_sizes(call);
  by_cudnn_or(call, z, [&]<class T>(T) {
    launch_conv2d(weight_side<T>(call.in[1], z),
        window_side<T, ForwardWindows>(Pixels<T>{in<T>(call.in[0])}, z),
        store_images<T>(optional_input(call.in, 2), call.out[0]));
  });
}

void conv2d_input_grad(const Call& call) {
  const Conv2dSizes z = conv2d_input_grad_sizes(call);
  by_cudnn_or(call, z, [&]<class T>(T) {
    launch_conv2d(turned_weight_side<T>(call.in[1], z),
        window_side<T, BackwardWindows>(Pixels<T>{in<T>(call.in[0])}, z),
        store_images<T>(Tensor(), call.out[0]));
  });
}

void conv2d_weight_grad(const Call& call) {
  const Tensor &dy = call.in[0], &x = call.in[1], &dweight = call.out[0];
  const Conv2dSizes z = conv2d_weight_grad_sizes(call);
  by_cudnn_or(call, z, [&]<class T>(T) {
    using V = compute_t<T>;
    const int64_t plane = z.p * z.q;
    const RunSide<T> rows(dy, z.o, plane, z.n, plane, z.o * plane);
    launch_conv2d(rows, window_side<T, GradientWindows>(Pixels<T>{in<T>(x)}, z),
        StoreSums<T, V>{Bias<T>(Tensor()), columns_of<V>(dweight, out<V>(dweight), z.taps())});
  });
}

void conv2d_bias_grad(const Call& call) {
  const Tensor &dy = call.in[0], &dbias = call.out[0];
  if (dbias.numel() == 0) return;
  visit_float(dy.dtype(), [&]<class T>(T) {
    reduce<SumOf, T, compute_t<T>>(dy, dbias, reduction_of(dy.shape(), 0b1101));
  });
}

}  // namespace sinter::SINTER_KERNEL_NS
