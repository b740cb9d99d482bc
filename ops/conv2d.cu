// conv2d and its gradients as products on the cores of gemm_*.cuh:
//   y [O, (N, P, Q)]       = weight [O, (C, R, S)]  windows of x [(C, R, S), (N, P, Q)]
//   dx [C, (N, H, W)]      = weight [C, (O, R, S)]  windows of dy [(O, R, S), (N, H, W)]
//   dweight [O, (C, R, S)] = dy [O, (N, P, Q)]      windows of x [(N, P, Q), (C, R, S)]
// The matrix of windows (im2col) is in no memory: a block gathers its tiles from the image, with
// zeros beyond the borders, so an infinite weight that meets the padding gives NaN. A block owns a
// tile of the result or, where a few sums have many terms, a share of its terms (gemm_split.cuh).
#include "ops/conv2d.h"

#include "ops/cudnn_conv.h"
#include "ops/gemm_launch.cuh"
#include "ops/reduce.cuh"

// Names of sizes as in conv2d.h. An index of a window's place on the image, (N, P, Q) or (N, H, W),
// is a position, an index into the window, (C, R, S) or (O, R, S), a tap.
namespace sinter::SINTER_KERNEL_NS {

// A matrix [outer, k] whose k come in runs that lie apart: weights as [C, (O, R, S)], dy as
// [O, (N, P, Q)].
template <class T> struct RunSide {
  static constexpr bool kGathered = true, along_k = true;
  In<T> data;
  int64_t outer = 0, k = 0, outer_stride = 0, run_stride = 0;
  int run = 1;

  SINTER_DEVICE_FN Vec<T, kVec<T>> gather(int64_t i, int64_t p) const {
    const int number = static_cast<int>(p) / run, left = i < outer ? static_cast<int>(k - p) : 0;
    int64_t begin = i * outer_stride + number * run_stride;
    int place = static_cast<int>(p) - number * run;
    Vec<T, kVec<T>> v;
    SINTER_UNROLL
    for (int q = 0; q < kVec<T>; ++q) {
      v[q] = q < left ? data[begin + place] : T(0.0f);
      if (++place == run) {
        place = 0;
        begin += run_stride;
      }
    }
    return v;
  }
};

// One direction of the windows.
struct WindowAxis {
  int places, kernel, size, stride, pad;  // positions, taps, pixels
  // The pixel where a position and a tap meet, or one that is not there. Backward, a position is
  // one of x, and only those taps that a stride leads to have a pixel of dy.
  template <bool kBackward> SINTER_DEVICE_FN int pixel(int position, int tap) const {
    if constexpr (kBackward) {
      const int at = position + pad - tap;
      return at >= 0 && at % stride == 0 ? at / stride : -1;
    } else {
      return position * stride - pad + tap;
    }
  }
};

// The windows of an image [N, channels, rows, columns]. Chunks lie along the positions: those are
// k for the weight's gradient, else the columns of the result.
template <class T, bool kBackward, bool kPositionsAreK> struct WindowSide {
  static constexpr bool kGathered = true, along_k = kPositionsAreK;
  In<T> data;
  int64_t outer = 0, k = 0;
  int channels = 0;
  WindowAxis rows, columns;

  SINTER_DEVICE_FN Vec<T, kVec<T>> gather(int64_t i, int64_t p) const {
    Chunk c = chunk(i, p);
    Vec<T, kVec<T>> v;
    SINTER_UNROLL
    for (int q = 0; q < kVec<T>; ++q) {
      v[q] = q < c.left ? value(c) : T(0.0f);
      if (++c.column == columns.places) {
        c.column = 0;
        if (++c.row == rows.places) {
          c.row = 0;
          ++c.image;
        }
      }
    }
    return v;
  }

 private:
  struct Chunk {
    int64_t image;      // of the first position
    int row, column;    // of the first position
    int channel, r, s;  // the tap
    int left;           // positions that exist
  };
  SINTER_DEVICE_FN Chunk chunk(int64_t i, int64_t p) const {
    const int64_t position = kPositionsAreK ? p : i;
    const int tap = static_cast<int>(kPositionsAreK ? i : p), plane = rows.places * columns.places,
              kernel = rows.kernel * columns.kernel;
    Chunk c;
    c.image = position / plane;
    const int in_plane = static_cast<int>(position - c.image * plane);
    c.row = in_plane / columns.places;
    c.column = in_plane - c.row * columns.places;
    c.channel = tap / kernel;
    c.r = (tap - c.channel * kernel) / columns.kernel;
    c.s = tap - c.channel * kernel - c.r * columns.kernel;
    const int64_t left = kPositionsAreK ? k - p : outer - i;
    const bool is_tap = kPositionsAreK ? i < outer : p < k;
    c.left = is_tap ? static_cast<int>(left < kVec<T> ? left : kVec<T>) : 0;
    return c;
  }
  // At the chunk's position and tap.
  SINTER_DEVICE_FN T value(const Chunk& c) const {
    const int u = rows.template pixel<kBackward>(c.row, c.r),
              v = columns.template pixel<kBackward>(c.column, c.s);
    if (u < 0 || u >= rows.size || v < 0 || v >= columns.size) return T(0.0f);
    return data[((c.image * channels + c.channel) * rows.size + u) * columns.size + v];
  }
};

// Row i of the sums is channel i of images, columns are their positions. y = sums + bias of the
// channel
template <class T> struct StoreImages {
  static constexpr bool kSumsRows = false;
  Bias<T> bias;
  Columns<T, Out<T>> planes;
  int64_t channels = 0;
  SINTER_DEVICE_FN void operator()(
      int64_t i, int64_t j, int count, compute_t<T> (&z)[kGroup]) const {
    const compute_t<T> b = bias.at(i);
    SINTER_UNROLL
    for (int q = 0; q < kGroup; ++q) z[q] = z[q] + b;
    int64_t plane = j / planes.cols * channels + i, at = j % planes.cols;
    if (planes.vec) {  // eight columns are of one plane
      planes.store(plane, at, count, z);
    } else {
      SINTER_UNROLL
      for (int q = 0; q < kGroup; ++q) {
        if (q < count) planes.data.put(plane * planes.cols + at, T(z[q]));
        if (++at == planes.cols) {
          at = 0;
          plane += channels;
        }
      }
    }
  }
};

// Columns of the result are many more than rows, and a grid's x takes more blocks than its y.
SINTER_DEVICE_FN TileAt conv2d_tile() {
  const TileAt at = tile_of_block();
  return {at.col, at.row, at.share, at.place};
}

inline constexpr Layout kOfSide = Layout::either;  // which is a constant of each side

template <class T, class Windows, class Epilogue>
SINTER_KERNEL_BOUNDS(kFfmaThreads<T>, 1)
conv2d_ffma_16x64(Product<T, Windows, RunSide<T>> product, Epilogue epilogue, SplitSums<T> split) {
  ffma_product<kOfSide, kOfSide>(product, epilogue, split, conv2d_tile());
}
template <class T, class Windows, class Epilogue>
SINTER_KERNEL_BOUNDS(kMmaThreads)
conv2d_mma_64x64(
    Product<T, Windows, RunSide<T>> product, Epilogue epilogue, SplitSums<float> split) {
  mma_product<kOfSide, kOfSide>(product, epilogue, split, conv2d_tile());
}

namespace {

template <int kRows, class V, class P> SplitGrid<V> conv2d_grid(const P& product) {
  auto s = split_grid<kRows, V>(product);
  std::swap(s.grid.x, s.grid.y);  // as conv2d_tile() has it
  return s;
}

template <class T, class Windows, class Epilogue>
void launch_conv2d(const Product<T, Windows, RunSide<T>>& product, const Epilogue& epilogue) {
  if constexpr (kHasMma<T>) {
    if (on_tensor_cores<T>()) {
      const auto [grid, split] = conv2d_grid<kTile, float>(product);
      return launch<conv2d_mma_64x64<T, Windows, Epilogue>>(
          grid, kMmaThreads, sizeof(MmaTiles<T>), product, epilogue, split);
    }
  }
  if constexpr (kHasFfma<T>) {
    const auto [grid, split] = conv2d_grid<kFfmaRows, T>(product);
    launch<conv2d_ffma_16x64<T, Windows, Epilogue>>(
        grid, kFfmaThreads<T>, sizeof(FfmaShared<T>), product, epilogue, split);
  }
}

// The kernels index an image, a window and the terms of a sum in 32 bits.
void check_conv2d_sizes(const Call& call, const Conv2dSizes& z) {
  const int64_t largest = std::max(
      {z.taps(), z.o * z.r * z.s, z.n * z.p * z.q, (z.h + 2 * z.pad_h) * (z.w + 2 * z.pad_w)});
  SINTER_CHECK(largest <= kMaxTerms, shape,
      cat(call.op.text(), ": too large for one kernel: operands ", call.in[0].describe(), " and ",
          call.in[1].describe(), "; a sum or a padded image of ", largest,
          " elements; allowed up to ", kMaxTerms));
}

WindowAxis window_axis(int64_t places, int64_t kernel, int64_t size, int64_t stride, int64_t pad) {
  return {static_cast<int>(places), static_cast<int>(kernel), static_cast<int>(size),
      static_cast<int>(stride), static_cast<int>(pad)};
}

// The windows of x; with kBackward those of dy.
template <bool kBackward, bool kPositionsAreK, class T>
WindowSide<T, kBackward, kPositionsAreK> window_side(const Tensor& image, const Conv2dSizes& z) {
  const auto axis = [](int64_t x, int64_t kernel, int64_t y, int64_t stride, int64_t pad) {
    return kBackward ? window_axis(x, kernel, y, stride, pad)
                     : window_axis(y, kernel, x, stride, pad);
  };
  WindowSide<T, kBackward, kPositionsAreK> side{.data = in<T>(image),
      .channels = static_cast<int>(image.size(1)),
      .rows = axis(z.h, z.r, z.p, z.stride_h, z.pad_h),
      .columns = axis(z.w, z.s, z.q, z.stride_w, z.pad_w)};
  const int64_t positions = z.n * side.rows.places * side.columns.places,
                taps = image.size(1) * z.r * z.s;
  side.outer = kPositionsAreK ? taps : positions;
  side.k = kPositionsAreK ? positions : taps;
  return side;
}

// cuDNN, or own(); on the emulator always own(), which must not take an empty result.
template <class Own> void by_cudnn_or(const Call& call, const Own& own) {
#if defined(__CUDACC__)
  if (cudnn_conv2d(call, own)) return;
#endif
  if (call.out[0].numel() > 0) own();
}

}  // namespace

void conv2d(const Call& call) {
  const Tensor &x = call.in[0], &weight = call.in[1], &y = call.out[0];
  const Conv2dSizes z = conv2d_sizes(call);
  by_cudnn_or(call, [&] {
    check_conv2d_sizes(call, z);
    visit_float(y.dtype(), [&]<class T>(T) {
      const RunSide<T> rows{.data = in<T>(weight),
          .outer = z.o,
          .k = z.taps(),
          .outer_stride = z.taps(),
          .run = static_cast<int>(z.taps())};
      launch_conv2d(Product<T, WindowSide<T, false, false>, RunSide<T>>{rows,
                        window_side<false, false, T>(x, z)},
          StoreImages<T>{
              Bias<T>(optional_input(call.in, 2)), columns_of<T>(y, out<T>(y), z.p * z.q), z.o});
    });
  });
}

void conv2d_input_grad(const Call& call) {
  const Tensor &dy = call.in[0], &weight = call.in[1], &dx = call.out[0];
  const Conv2dSizes z = conv2d_input_grad_sizes(call);
  by_cudnn_or(call, [&] {
    check_conv2d_sizes(call, z);
    visit_float(dx.dtype(), [&]<class T>(T) {
      const RunSide<T> rows{.data = in<T>(weight),
          .outer = z.c,
          .k = z.o * z.r * z.s,
          .outer_stride = z.r * z.s,
          .run_stride = z.taps(),
          .run = static_cast<int>(z.r * z.s)};
      launch_conv2d(Product<T, WindowSide<T, true, false>, RunSide<T>>{rows,
                        window_side<true, false, T>(dy, z)},
          StoreImages<T>{Bias<T>(Tensor()), columns_of<T>(dx, out<T>(dx), z.h * z.w), z.c});
    });
  });
}

void conv2d_weight_grad(const Call& call) {
  const Tensor &dy = call.in[0], &x = call.in[1], &dweight = call.out[0];
  const Conv2dSizes z = conv2d_weight_grad_sizes(call);
  by_cudnn_or(call, [&] {
    check_conv2d_sizes(call, z);
    visit_float(dy.dtype(), [&]<class T>(T) {
      using V = compute_t<T>;
      const RunSide<T> rows{.data = in<T>(dy),
          .outer = z.o,
          .k = z.n * z.p * z.q,
          .outer_stride = z.p * z.q,
          .run_stride = z.o * z.p * z.q,
          .run = static_cast<int>(z.p * z.q)};
      launch_conv2d(Product<T, WindowSide<T, false, true>, RunSide<T>>{rows,
                        window_side<false, true, T>(x, z)},
          StoreSums<T, V>{Bias<T>(Tensor()), columns_of<V>(dweight, out<V>(dweight), z.taps())});
    });
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
