// Convolutions as products on the cores of gemm_*.cuh, for conv2d.cu and for the fused convolutions
// (ops/fused/conv_act.cu, conv_backward.cu):
//   y [O, (N, P, Q)]       = weight [O, (C, R, S)]  windows of x [(C, R, S), (N, P, Q)]
//   dx [C, (N, H, W)]      = weight [C, (O, R, S)]  windows of dy [(O, R, S), (N, H, W)]
//   dweight [O, (C, R, S)] = dy [O, (N, P, Q)]      windows of x [(N, P, Q), (C, R, S)]
// The matrix of windows (im2col) is in no memory: a block gathers its tiles from the image, with
// zeros beyond the borders, so an infinite weight that meets the padding gives NaN. A block owns a
// tile of the result or, where a few sums have many terms, a share of its terms (gemm_split.cuh).
//
// Names of sizes as in conv2d.h. An index of a window's place on the image, (N, P, Q) or (N, H, W),
// is a position, an index into the window, (C, R, S) or (O, R, S), a tap.
#pragma once

#include "ops/image/conv2d.h"
#include "ops/product/gemm_launch.cuh"

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
// The weight as [O, (C, R, S)], and as [C, (O, R, S)].
template <class T> RunSide<T> weight_side(const Tensor& weight, const Conv2dSizes& z) {
  return {in<T>(weight), z.o, z.taps(), z.taps(), 0, static_cast<int>(z.taps())};
}
template <class T> RunSide<T> turned_weight_side(const Tensor& weight, const Conv2dSizes& z) {
  const int64_t window = z.r * z.s;
  return {in<T>(weight), z.c, z.o * window, window, z.taps(), static_cast<int>(window)};
}

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

// Pixel (u, v) of a plane of an image that is in memory. Another image may stand for it.
template <class T> struct Pixels {
  In<T> data;
  SINTER_DEVICE_FN T at(int64_t plane, int u, int v, int rows, int columns) const {
    return data[(plane * rows + u) * columns + v];
  }
};

// What its windows are: those of x forward or of dy backward; whether the positions are k, as for
// the weight's gradient, else the columns of the result; and the order of the positions: row by
// row, or, where the result is pooled, the four of a 2 x 2 square, then those of the square to its
// right.
// REQUIRES in squares: a multiple of 8 in a row of squares.
template <bool kBackward_, bool kPositionsAreK_, bool kSquares_> struct WindowKind {
  static constexpr bool kBackward = kBackward_, kPositionsAreK = kPositionsAreK_,
                        kSquares = kSquares_;
};
using ForwardWindows = WindowKind<false, false, false>;
using PooledWindows = WindowKind<false, false, true>;
using BackwardWindows = WindowKind<true, false, false>;
using GradientWindows = WindowKind<false, true, false>;

// The windows of an image [N, channels, rows, columns]. Chunks lie along the positions.
template <class T, class Kind, class Image> struct WindowSide {
  static constexpr bool kGathered = true, along_k = Kind::kPositionsAreK;
  Image image;
  int64_t outer = 0, k = 0;
  int channels = 0;
  WindowAxis rows, columns;

  SINTER_DEVICE_FN Vec<T, kVec<T>> gather(int64_t i, int64_t p) const {
    Chunk c = chunk(i, p);
    Vec<T, kVec<T>> v;
    SINTER_UNROLL
    for (int q = 0; q < kVec<T>; ++q) {
      v[q] = q < c.left ? value(c) : T(0.0f);
      if constexpr (Kind::kSquares) {
        c.column ^= 1;
        if (c.column % 2 == 0) c.row ^= 1;
        if (c.column % 2 == 0 && c.row % 2 == 0) c.column += 2;
      } else if (++c.column == columns.places) {
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
    constexpr bool kPositionsAreK = Kind::kPositionsAreK;
    constexpr int kSide = Kind::kSquares ? 2 : 1;
    const int64_t position = kPositionsAreK ? p : i;
    const int tap = static_cast<int>(kPositionsAreK ? i : p), plane = rows.places * columns.places,
              kernel = rows.kernel * columns.kernel;
    Chunk c;
    c.image = position / plane;
    const int in_plane = static_cast<int>(position - c.image * plane),
              square = in_plane / (kSide * kSide), of_row = columns.places / kSide;
    c.row = square / of_row * kSide;
    c.column = square % of_row * kSide;
    if constexpr (Kind::kSquares) {
      c.row += in_plane / 2 % 2;
      c.column += in_plane % 2;
    }
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
    const int u = rows.template pixel<Kind::kBackward>(c.row, c.r),
              v = columns.template pixel<Kind::kBackward>(c.column, c.s);
    if (u < 0 || u >= rows.size || v < 0 || v >= columns.size) return T(0.0f);
    return image.at(c.image * channels + c.channel, u, v, rows.size, columns.size);
  }
};

// The windows of x; backward those of dy.
template <class T, class Kind, class Image>
WindowSide<T, Kind, Image> window_side(const Image& image, const Conv2dSizes& z) {
  const auto axis = [](int64_t x, int64_t kernel, int64_t y, int64_t stride, int64_t pad) {
    if (Kind::kBackward) std::swap(x, y);
    return WindowAxis{static_cast<int>(y), static_cast<int>(kernel), static_cast<int>(x),
        static_cast<int>(stride), static_cast<int>(pad)};
  };
  const int64_t channels = Kind::kBackward ? z.o : z.c;
  WindowSide<T, Kind, Image> side{.image = image,
      .channels = static_cast<int>(channels),
      .rows = axis(z.h, z.r, z.p, z.stride_h, z.pad_h),
      .columns = axis(z.w, z.s, z.q, z.stride_w, z.pad_w)};
  side.outer = z.n * side.rows.places * side.columns.places;
  side.k = channels * z.r * z.s;
  if (Kind::kPositionsAreK) std::swap(side.outer, side.k);
  return side;
}

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
    if (planes.vec) {  // eight columns are of one plane
      planes.store(j / planes.cols * channels + i, j % planes.cols, count, z);
    } else {
      each_place(i, j, count, [&](int q, int64_t at) { planes.data.put(at, T(z[q])); });
    }
  }
  // f(q, where it lies in memory) for the q-th of `count` columns from j on.
  template <class F>
  SINTER_DEVICE_FN void each_place(int64_t i, int64_t j, int count, const F& f) const {
    int64_t plane = j / planes.cols * channels + i, at = j % planes.cols;
    SINTER_UNROLL
    for (int q = 0; q < kGroup; ++q) {
      if (q < count) f(q, plane * planes.cols + at);
      if (++at == planes.cols) {
        at = 0;
        plane += channels;
      }
    }
  }
};
template <class T> StoreImages<T> store_images(const Tensor& bias, const Tensor& y) {
  return {Bias<T>(bias), columns_of<T>(y, out<T>(y), y.size(2) * y.size(3)), y.size(1)};
}

// Columns of the result are many more than rows, and a grid's x takes more blocks than its y.
template <int kRows, class V, class P> SplitGrid<V> conv2d_grid(const P& product) {
  auto s = split_grid<kRows, V>(product);
  if (!product.is_turned()) std::swap(s.grid.x, s.grid.y);
  return s;
}

inline constexpr Layout kOfSide = Layout::either;  // which is a constant of each side

// The kernels of an op, a core each, and launch_OP(product, epilogue), by the core that T runs on.
#define SINTER_CONV2D_KERNELS(op)                                                              \
  template <class T, class Windows, class Epilogue>                                            \
  SINTER_KERNEL_BOUNDS(kFfmaThreads<T>, 2)                                                     \
  op##_ffma_16x64(                                                                             \
      Product<T, Windows, RunSide<T>> product, Epilogue epilogue, SplitSums<T> split) {        \
    ffma_product<kOfSide, kOfSide>(product, epilogue, split, tile_of_block(true));             \
  }                                                                                            \
  template <class T, class Windows, class Epilogue>                                            \
  SINTER_KERNEL_BOUNDS(kMmaThreads)                                                            \
  op##_mma_64x64(                                                                              \
      Product<T, Windows, RunSide<T>> product, Epilogue epilogue, SplitSums<float> split) {    \
    mma_product<kOfSide, kOfSide>(product, epilogue, split, tile_of_block(true));              \
  }                                                                                            \
  template <class T, class Windows, class Epilogue>                                            \
  void launch_##op(const RunSide<T>& rows, const Windows& windows, const Epilogue& epilogue) { \
    const Product<T, Windows, RunSide<T>> product{rows, windows};                              \
    if constexpr (kHasMma<T>) {                                                                \
      if (on_tensor_cores<T>()) {                                                              \
        const auto [grid, split] = conv2d_grid<kTile, float>(product);                         \
        return launch<op##_mma_64x64<T, Windows, Epilogue>>(                                   \
            grid, kMmaThreads, sizeof(MmaTiles<T>), product, epilogue, split);                 \
      }                                                                                        \
    }                                                                                          \
    if constexpr (kHasFfma<T>) {                                                               \
      const auto [grid, split] = conv2d_grid<kFfmaRows, T>(product);                           \
      launch<op##_ffma_16x64<T, Windows, Epilogue>>(                                           \
          grid, kFfmaThreads<T>, sizeof(FfmaShared<T>), product, epilogue, split);             \
    }                                                                                          \
  }

// The kernels index an image, a window and the terms of a sum in 32 bits.
inline void check_conv2d_sizes(const Call& call, const Conv2dSizes& z) {
  const int64_t largest = std::max(
      {z.taps(), z.o * z.r * z.s, z.n * z.p * z.q, (z.h + 2 * z.pad_h) * (z.w + 2 * z.pad_w)});
  SINTER_CHECK(largest <= kMaxTerms, shape,
      str(call.op.text(), ": too large for one kernel: operands ", call.in[0].describe(), " and ",
          call.in[1].describe(), "; a sum or a padded image of ", largest,
          " elements; allowed up to ", kMaxTerms));
}

}  // namespace sinter::SINTER_KERNEL_NS
