// conv2d with an end (product_chain.h), and conv_act_pool: conv2d's product
// (ops/image/conv2d_product.cuh), and what follows it while the sums are in a block. The columns of
// the product are positions in an order that gives a thread what belongs together: a row is padded
// to whole groups of eight; where it is pooled, the four positions of a window are neighbours.
// Reads x and the weight once per tile that needs them; writes y, and what is kept of it: of a
// pooled one a quarter.
#include "ops/fused/chain_end.cuh"
#include "ops/image/conv2d_product.cuh"
#include "ops/image/cudnn_conv.h"
#include "ops/image/pool.h"
#include "ops/rows/row_formulas.h"

namespace sinter::SINTER_KERNEL_NS {

// batch_norm2d_eval, or nothing.
template <class T> struct NormOfChannel {
  In<T> weight, bias, mean, var;
  compute_t<T> eps = 0;
};

// Row i of the sums is channel i, columns are positions, `padded` to a row of an image.
template <class T, int kEnd> struct EndOfImages {
  static constexpr bool kSumsRows = false;
  Bias<T> bias;
  NormOfChannel<T> norm;
  EndSteps<T, kEnd> steps;
  int64_t channels;
  int height, width, padded;  // positions are counted in 32 bits

  SINTER_DEVICE_FN void operator()(
      int64_t i, int64_t j, int count, compute_t<T> (&z)[kGroup]) const {
    using V = compute_t<T>;
    if (count == 0) return;
    const V b = bias.at(i);
    SINTER_UNROLL
    for (int q = 0; q < kGroup; ++q) z[q] = z[q] + b;
    if (norm.weight) {
      const ScaleAndShift<V> of_channel(
          V(norm.weight[i]), V(norm.bias[i]), V(norm.mean[i]), V(norm.var[i]), norm.eps);
      SINTER_UNROLL
      for (int q = 0; q < kGroup; ++q) z[q] = of_channel(z[q]);
    }
    const int at = static_cast<int>(j), line = at / padded, column = at % padded,
              left = width - column, there = left < kGroup ? left : kGroup;
    steps((int64_t{line / height} * channels + i) * height + line % height, column, there, z);
  }
};

// y = relu of the maxima of groups' two windows, and their places, or kNoPlace. Columns are
// positions in squares, of which a row has `padded`.
template <class T> struct PoolOfImages {
  static constexpr bool kSumsRows = false;
  Bias<T> bias;
  Out<T> y;
  Out<uint8_t> index;
  int64_t channels, height, width, padded;

  SINTER_DEVICE_FN void operator()(
      int64_t i, int64_t j, int count, compute_t<T> (&z)[kGroup]) const {
    using V = compute_t<T>;
    if (count == 0) return;
    const V b = bias.at(i);
    const int64_t line = j / 4 / padded, column = j / 4 % padded,
                  row = (line / height * channels + i) * height + line % height;
    SINTER_UNROLL
    for (int w = 0; w < 2; ++w) {
      if (column + w >= width) continue;
      V best = V(T(z[4 * w] + b));  // maxima of what plain ops would have stored
      int place = 0;
      SINTER_UNROLL
      for (int k = 1; k < 4; ++k) {
        const V v = V(T(z[4 * w + k] + b));
        if (!beats(v, best)) continue;
        best = v;
        place = k;
      }
      if (best <= V(0)) place = kNoPlace;
      y.put(row * width + column + w, T(pointwise::Relu().forward(best)));
      index.put(row * width + column + w, static_cast<uint8_t>(place));
    }
  }
};

SINTER_CONV2D_KERNELS(conv_act)
SINTER_CONV2D_KERNELS(conv_act_pool)

// The sizes of a convolution whose positions are p rows of q, padded to whole groups: of an image,
// or of the squares of one. A stride that is larger than the image is cut to one that just leaves
// it: the same pixels, and its product with a column of the padding still fits an int.
template <class A> static Conv2dSizes padded_sizes(const Call& call, const A& attrs, int64_t side) {
  const Tensor &x = call.in[0], &y = call.out[0];
  Conv2dSizes z = conv2d_sizes(x, call.in[1], y, attrs);
  z.p = side * y.size(2);
  z.q = side * blocks_for(y.size(3), kGroup) * kGroup;
  z.stride_w = std::min(z.stride_w, z.w + 2 * z.pad_w);
  check_conv2d_sizes(call, z);
  return z;
}

// ReLU is compiled.
static void end_of_images(const Call& call) {
  if (call.out[0].numel() == 0) return;
  const auto& end = call.as<ProductChainAttrs>();
  const Conv2dSizes z = padded_sizes(call, end, 1);
  visit_float(call.out[0].dtype(), [&]<class T>(T) {
    const auto norm = [&](size_t i) { return end.normed ? in<T>(call.in[3 + i]) : In<T>(); };
    const auto run = [&]<int kEnd>(std::integral_constant<int, kEnd>) {
      launch_conv_act(weight_side<T>(call.in[1], z),
          window_side<T, ForwardWindows>(Pixels<T>{in<T>(call.in[0])}, z),
          EndOfImages<T, kEnd>{Bias<T>(optional_input(call.in, 2)),
              {norm(0), norm(1), norm(2), norm(3), static_cast<compute_t<T>>(end.eps)},
              {end.program, end.operands(call.in), call.out}, z.o, static_cast<int>(z.p),
              static_cast<int>(call.out[0].size(3)), static_cast<int>(z.q)});
    };
    constexpr int kCompiled = std::is_same_v<T, double> ? kInterpreted : kRelu;
    if (find_end(end.program) == kRelu) return run(std::integral_constant<int, kCompiled>());
    run(std::integral_constant<int, kInterpreted>());
  });
}

// What keeps nothing for backward, cuDNN may do.
void convolution_with_end(const Call& call) {
  const auto own = [&] { end_of_images(call); };
  if constexpr (kDevice.type == Device::Type::cuda) {
    const auto& end = call.as<ProductChainAttrs>();
    const Tensor& y = call.out[0];
    if (find_end(end.program) == kRelu && !end.normed &&
        cudnn_conv2d(call, conv2d_sizes(call.in[0], call.in[1], y, end), own, true))
      return;
  }
  own();
}

void conv_act_pool(const Call& call) {
  const Tensor &x = call.in[0], &y = call.out[0];
  if (y.numel() == 0) return;
  const Conv2dSizes z = padded_sizes(call, call.as<Conv2dAttrs>(), 2);
  visit_float(y.dtype(), [&]<class T>(T) {
    launch_conv_act_pool(weight_side<T>(call.in[1], z),
        window_side<T, PooledWindows>(Pixels<T>{in<T>(x)}, z),
        PoolOfImages<T>{Bias<T>(optional_input(call.in, 2)), out<T>(y), out<uint8_t>(call.out[1]),
            z.o, y.size(2), y.size(3), z.q / 2});
  });
}

}  // namespace sinter::SINTER_KERNEL_NS
