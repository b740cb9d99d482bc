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

#include <bit>

#include "ops/image/conv2d.h"
#include "ops/product/gemm_launch.cuh"

namespace sinter::SINTER_KERNEL_NS {

// Divides what is below 2^31 by a number that is known at run time only: a multiplication, where a
// division takes 30 instructions.
class Divisor {
 public:
  Divisor() = default;
  explicit Divisor(int64_t by) {
    const int64_t d = std::max<int64_t>(by, 1);
    shift_ = std::bit_width(static_cast<uint64_t>(d - 1));
    factor_ = static_cast<uint32_t>(blocks_for(int64_t{1} << (31 + shift_), d));
  }
  SINTER_DEVICE_FN int of(int n) const {
    return static_cast<int>((uint64_t{2 * static_cast<uint32_t>(n)} * factor_ >> 32) >> shift_);
  }

 private:
  int shift_ = 0;
  uint32_t factor_ = 0;
};

// A matrix [outer, k] whose k come in runs that lie apart: weights as [C, (O, R, S)], dy as
// [O, (N, P, Q)].
template <class T> struct RunSide {
  static constexpr bool kGathered = true, along_k = true;
  using Read = Vec<T, kVec<T>>;
  In<T> data;
  int64_t outer = 0, k = 0, outer_stride = 0, run_stride = 0;
  int run = 1;
  Divisor by_run;
  bool vec = false;  // a chunk is of one run, and one aligned access

  RunSide() = default;
  RunSide(const Tensor& t, int64_t outer, int64_t outer_stride, int64_t runs, int64_t run,
      int64_t run_stride)
      : data(in<T>(t)),
        outer(outer),
        k(runs * run),
        outer_stride(outer_stride),
        run_stride(run_stride),
        run(static_cast<int>(run)),
        by_run(run),
        vec(is_aligned(t) && (run | outer_stride | run_stride) % kVec<T> == 0) {}
  SINTER_DEVICE_FN Read load(int i, int p) const {
    const int number = by_run.of(p), left = i < outer ? static_cast<int>(k) - p : 0;
    int64_t begin = i * outer_stride + number * run_stride;
    int place = p - number * run;
    Read v{};
    if (left <= 0) return v;
    if (vec) return data.template load_vec<kVec<T>>(begin + place);
    Cursor<T> from(data, begin);
    if (left >= kVec<T> && run - place >= kVec<T>) {
      from = Cursor<T>(data, begin + place);
      SINTER_UNROLL
      for (int q = 0; q < kVec<T>; ++q) v[q] = from[q];
      return v;
    }
    SINTER_UNROLL
    for (int q = 0; q < kVec<T>; ++q) {
      if (q < left) v[q] = from[place];
      if (q + 1 < kVec<T> && ++place == run) {
        place = 0;
        from = Cursor<T>(data, begin += run_stride);
      }
    }
    return v;
  }
  SINTER_DEVICE_FN Vec<T, kVec<T>> values(const Read& read) const { return read; }
};
// The weight as [O, (C, R, S)], and as [C, (O, R, S)].
template <class T> RunSide<T> weight_side(const Tensor& weight, const Conv2dSizes& z) {
  return {weight, z.o, z.taps(), 1, z.taps(), 0};
}
template <class T> RunSide<T> turned_weight_side(const Tensor& weight, const Conv2dSizes& z) {
  return {weight, z.c, z.r * z.s, z.o, z.r * z.s, z.taps()};
}

// One direction of the windows.
struct WindowAxis {
  int places = 0, kernel = 0, size = 0, stride = 0, pad = 0;  // positions, taps, pixels
  Divisor by_places, by_kernel, by_stride;                    // places: or those of squares

  // Where a position and a tap meet. Backward, a position is one of x, and only those taps that a
  // stride leads to have a pixel of dy.
  template <bool kBackward> SINTER_DEVICE_FN int meet(int position, int tap) const {
    return kBackward ? position + pad - tap : position * stride - pad + tap;
  }
  // The pixel there, or one that is not there: below 0. kStrided: the stride is not 1.
  template <bool kStrided> SINTER_DEVICE_FN int pixel(int at) const {
    if (!kStrided || at < 0) return at;
    const int pixel = by_stride.of(at);
    return pixel * stride == at ? pixel : -1;
  }
};

// The pixels of an image that is in memory. Another image may stand for it.
template <class T> struct Pixels {
  using Read = T;
  In<T> data;
  struct Row {
    Cursor<T> from;
    int columns = 0;  // pixels that are there
  };
  // Row u of a plane; of rows x columns there are fewer than 2^31.
  SINTER_DEVICE_FN Row row(int64_t plane, int u, int rows, int columns) const {
    return {Cursor<T>(data, plane * static_cast<uint32_t>(rows * columns) + u * columns), columns};
  }
  SINTER_DEVICE_FN void load(const Row& row, int v, Read& read) const { read = row.from[v]; }
  SINTER_DEVICE_FN T value(const Read& read) const { return read; }
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
  int images = 0, channels = 0;
  WindowAxis rows, columns;

  struct Read {
    typename Image::Read of[kVec<T>];
  };
  SINTER_DEVICE_FN Read load(int i, int p) const {
    if (Kind::kBackward && (rows.stride != 1 || columns.stride != 1))
      return load_part<Kind::kBackward>(i, p);
    return load_part<false>(i, p);
  }
  SINTER_DEVICE_FN Vec<T, kVec<T>> values(const Read& read) const {
    Vec<T, kVec<T>> v;
    SINTER_UNROLL
    for (int q = 0; q < kVec<T>; ++q) v[q] = image.value(read.of[q]);
    return v;
  }

 private:
  template <bool kStrided> SINTER_DEVICE_FN Read load_part(int i, int p) const {
    constexpr bool kBackward = Kind::kBackward;
    constexpr int kSide = Kind::kSquares ? 2 : 1;
    const int tap = Kind::kPositionsAreK ? i : p,
              place = (Kind::kPositionsAreK ? p : i) / (kSide * kSide);
    const int line = columns.by_places.of(place);  // of places, which are positions or squares
    int n = rows.by_places.of(line), row = line * kSide - n * rows.places,
        column = place * kSide - line * columns.places;
    const int of_columns = columns.by_kernel.of(tap), channel = rows.by_kernel.of(of_columns),
              r = of_columns - channel * rows.kernel, s = tap - of_columns * columns.kernel;
    const bool is_tap = tap < (Kind::kPositionsAreK ? outer : k);
    using Row = typename Image::Row;
    const auto pixels_of = [&](int row) -> Row {
      const int u = rows.template pixel<kStrided>(rows.template meet<kBackward>(row, r));
      if (!is_tap || n >= images || u < 0 || u >= rows.size) return {};
      return image.row(int64_t{n} * channels + channel, u, rows.size, columns.size);
    };
    Read read{};
    const auto load_at = [&](int q, const Row& pixels, int at) {
      const int v = columns.template pixel<kStrided>(at);
      if (static_cast<unsigned>(v) < static_cast<unsigned>(pixels.columns))
        image.load(pixels, v, read.of[q]);
    };
    if (Kind::kSquares && kVec<T> < 4) row += i / 2 % 2;  // a chunk of f64 is half a square
    Row pixels = pixels_of(row);
    int at = columns.template meet<kBackward>(column, s);
    if constexpr (Kind::kSquares) {
      const Row below = pixels_of(row + 1);
      SINTER_UNROLL
      for (int q = 0; q < kVec<T>; ++q)
        load_at(q, q / 2 % 2 == 0 ? pixels : below, at + (q / 4 * 2 + q % 2) * columns.stride);
    } else {
      SINTER_UNROLL
      for (int q = 0; q < kVec<T>; ++q) {
        load_at(q, pixels, at);
        at += kBackward ? 1 : columns.stride;
        if (q + 1 < kVec<T> && ++column == columns.places) {
          if (++row == rows.places) {
            row = 0;
            ++n;
          }
          column = 0;
          pixels = pixels_of(row);
          at = columns.template meet<kBackward>(0, s);
        }
      }
    }
    return read;
  }
};

// The windows of x; backward those of dy.
template <class T, class Kind, class Image>
WindowSide<T, Kind, Image> window_side(const Image& image, const Conv2dSizes& z) {
  const auto axis = [](int64_t x, int64_t kernel, int64_t y, int64_t stride, int64_t pad) {
    if (Kind::kBackward) std::swap(x, y);
    return WindowAxis{static_cast<int>(y), static_cast<int>(kernel), static_cast<int>(x),
        static_cast<int>(stride), static_cast<int>(pad), Divisor(Kind::kSquares ? y / 2 : y),
        Divisor(kernel), Divisor(stride)};
  };
  const int64_t channels = Kind::kBackward ? z.o : z.c;
  WindowSide<T, Kind, Image> side{.image = image,
      .images = static_cast<int>(z.n),
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
  Divisor by_cols{planes.cols};
  SINTER_DEVICE_FN void operator()(
      int64_t i, int64_t j, int count, compute_t<T> (&z)[kGroup]) const {
    const compute_t<T> b = bias.at(i);
    SINTER_UNROLL
    for (int q = 0; q < kGroup; ++q) z[q] = z[q] + b;
    if (planes.vec) {  // eight columns are of one plane
      const int n = by_cols.of(static_cast<int>(j));
      planes.store(n * channels + i, j - n * planes.cols, count, z);
    } else {
      each_place(i, j, count, [&](int q, int64_t at) { planes.data.put(at, T(z[q])); });
    }
  }
  // f(q, where it lies in memory) for the q-th of `count` columns from j on.
  template <class F>
  SINTER_DEVICE_FN void each_place(int64_t i, int64_t j, int count, const F& f) const {
    const int n = by_cols.of(static_cast<int>(j));
    int64_t plane = n * channels + i, at = j - n * planes.cols;
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
