// Convolution on the CPU with images side by side: lane l of a vector belongs to image l, so that a
// net of few channels keeps the processor as busy as one of many, and pooling or ReLU on a tile is
// plain arithmetic on vectors. Tensors stay NCHW; a thread brings some rows of kImages images into
// a tile [channel][row][column][image], multiplies there and takes the results back.
//
// One correlation serves forward and the input's gradient:
//   y[o, p, q] = bias[o] + sum over c, r, s of x[c, p stride_h + r - pad_h, q stride_w + s - pad_w]
//                                              w[o, c, r, s]
// where x may have zeros put between its rows and columns (`spread`): dx is the correlation of dy,
// spread by the stride, with the kernel turned by 180 degrees. The weight's gradient multiplies two
// tiles: dw[o, c, r, s] = sum over images, p, q of dy[o, p, q] x[c, p stride_h + r - pad_h, ..].
//
// The order of every sum depends on shapes alone, never on the number of threads.
#pragma once

#include "ops/image/conv2d.h"
#include "ops/image/fast/image_lanes.h"

namespace sinter::conv {

// Sizes may be those of a convolution or, turned round, of its input's gradient.
struct Correlation : Conv2dSizes {
  int64_t spread_h = 1, spread_w = 1;

  int64_t spread_height() const { return (h - 1) * spread_h + 1; }
  int64_t spread_width() const { return (w - 1) * spread_w + 1; }
  int64_t tile_columns() const { return (q - 1) * stride_w + s; }
  int64_t tile_rows(int64_t results) const { return (results - 1) * stride_h + r; }
  // Taps [first, second) of the kernel's rows that meet rows of x, not padding, for results of row.
  std::pair<int64_t, int64_t> taps_of_row(int64_t row) const {
    const int64_t first = row * stride_h - pad_h;
    return {std::clamp<int64_t>(-first, 0, r), std::clamp<int64_t>(spread_height() - first, 0, r)};
  }
  // And of its columns, for any of `results` results from column q on.
  std::pair<int64_t, int64_t> taps_of_columns(int64_t q, int64_t results) const {
    const int64_t first = q * stride_w - pad_w, last = first + (results - 1) * stride_w;
    return {std::clamp<int64_t>(-last, 0, s), std::clamp<int64_t>(spread_width() - first, 0, s)};
  }
};

// A tile of x for g: rows from `first` of its padded height. rows(c, row, skip, count, lanes) gives
// `count` elements from `skip` on of a row of x, as lanes; padding and what lies between spread
// rows and columns hold zeros.
template <class V, class Rows>
void load_tile(const Correlation& g, int64_t first, int64_t height, Rows& rows, V* tile) {
  constexpr int64_t n = kImages<V>;
  const int64_t columns = g.tile_columns();
  const int64_t skip = g.pad_w < 0 ? (-g.pad_w + g.spread_w - 1) / g.spread_w : 0;
  const int64_t begin = skip * g.spread_w + g.pad_w;  // the tile's column of x's column `skip`
  const int64_t count =
      begin < columns ? std::min(g.w - skip, (columns - begin + g.spread_w - 1) / g.spread_w) : 0;
  for (int64_t c = 0; c < g.c; ++c) {
    for (int64_t row = 0; row < height; ++row, tile += columns * n) {
      const int64_t at = first + row - g.pad_h;
      const bool inside = at >= 0 && at < g.spread_height() && at % g.spread_h == 0 && count > 0;
      if (!inside || count < columns) std::fill_n(tile, columns * n, V(0));
      if (!inside) continue;
      if (g.spread_w == 1) {
        rows(c, at / g.spread_h, skip, count, tile + begin * n);
        continue;
      }
      V* dense = thread_buffer<V, BufferFor::dense>(count * n);
      rows(c, at / g.spread_h, skip, count, dense);
      for (int64_t i = 0; i < count; ++i)
        std::copy_n(dense + i * n, n, tile + (begin + i * g.spread_w) * n);
    }
  }
}

// ---- products of tiles. A block of A x B sums stays in registers.
struct Block {
  int a, b;
};
template <class V>
inline constexpr auto kBlocks = std::to_array<Block>(
    {{8, 3}, {6, 4}, {4, 7}, {4, 6}, {4, 5}, {4, 3}, {3, 4}, {2, 5}, {1, 8}, {8, 1}, {1, 1}});
// f64 is what others are compared with; a sum is the same in any block.
template <> inline constexpr auto kBlocks<double> = std::to_array<Block>({{4, 3}, {1, 1}});

// The block that makes an a x b matrix of sums soonest: two multiply-adds or two loads a cycle, no
// sum more often than each fourth cycle, and a cycle for the loop. REQUIRES: a, b >= 1; largest_a
// >= 1
template <class V> size_t choose_block(int64_t a, int64_t b, int largest_a = 8) {
  size_t best = kBlocks<V>.size() - 1;
  int64_t least = std::numeric_limits<int64_t>::max();
  for (size_t i = 0; i < kBlocks<V>.size(); ++i) {
    const Block& block = kBlocks<V>[i];
    if (block.a * block.b > kAccumulators || block.a > largest_a || block.b > b) continue;
    const int64_t blocks = (a + block.a - 1) / block.a * ((b + block.b - 1) / block.b);
    const int64_t cost = blocks * (std::max({block.a * block.b, block.a + block.b, 8}) + 2);
    if (cost >= least) continue;
    least = cost;
    best = i;
  }
  return best;
}
// f.operator()<A, B>() for the block of that number.
template <class V, class F> void with_block(size_t number, F&& f) {
  [&]<size_t... I>(std::index_sequence<I...>) {
    (void)((I == number ? (f.template operator()<kBlocks<V>[I].a, kBlocks<V>[I].b>(), true)
                        : false) ||
           ...);
  }(std::make_index_sequence<kBlocks<V>.size()>());
}

// The weights as the correlation reads them: [o / A][c][r][s][A], zeros beyond O.
// weight(o, c, r, s) gives one.
template <class V, class Weight>
void pack_weights(const Correlation& g, int a, const Weight& weight, V* packed) {
  for (int64_t o0 = 0; o0 < g.o; o0 += a) {
    for (int64_t c = 0; c < g.c; ++c) {
      for (int64_t r = 0; r < g.r; ++r) {
        for (int64_t s = 0; s < g.s; ++s) {
          for (int64_t o = o0; o < o0 + a; ++o) *packed++ = o < g.o ? weight(o, c, r, s) : V(0);
        }
      }
    }
  }
}

// B results of a row for A channels. x: the tile at the kernel's first row and the first result's
// first column; taps, columns: the kernel's rows and columns that count.
template <int A, int B, class V>
void correlate_block(const Correlation& g, const V* x, int64_t rows, const V* weights,
    std::pair<int64_t, int64_t> taps, std::pair<int64_t, int64_t> across, const V* bias, V* y,
    int64_t channel_stride, int64_t channels) {
  constexpr int n = kImages<V>;
  const int64_t columns = g.tile_columns(), step = g.stride_w * n;
  Lanes<V> sums[A][B];
#pragma GCC unroll 8
  for (int a = 0; a < A; ++a) {
#pragma GCC unroll 8
    for (int b = 0; b < B; ++b) sums[a][b] = broadcast(bias[a]);
  }
  for (int64_t c = 0; c < g.c; ++c) {
    const V* from = x + (c * rows + taps.first) * columns * n;
    const V* w = weights + (c * g.r + taps.first) * g.s * A;
    for (int64_t r = taps.first; r < taps.second; ++r, from += columns * n, w += g.s * A) {
      for (int64_t s = across.first; s < across.second; ++s) {
        Lanes<V> v[B];
#pragma GCC unroll 8
        for (int b = 0; b < B; ++b) v[b] = load_lanes(from + s * n + b * step);
#pragma GCC unroll 8
        for (int a = 0; a < A; ++a) {
          const Lanes<V> factor = broadcast(w[s * A + a]);
#pragma GCC unroll 8
          for (int b = 0; b < B; ++b) sums[a][b] = multiply_add(factor, v[b], sums[a][b]);
        }
      }
    }
  }
#pragma GCC unroll 8
  for (int a = 0; a < A; ++a) {
    if (a >= channels) break;
#pragma GCC unroll 8
    for (int b = 0; b < B; ++b) store_lanes(y + a * channel_stride + b * n, sums[a][b]);
  }
}

// Rows [first, first + results) of the correlation of a tile that begins at the first of them:
// y[o][row][q][image]. What B results read of x stays in the first cache for as many channels as
// have their weights in the second.
template <int A, int B, class V>
void correlate_tile(const Correlation& g, const V* x, const V* weights, const V* bias,
    int64_t first, int64_t results, V* y) {
  constexpr int n = kImages<V>;
  constexpr int64_t kWeights = (256 << 10) / int64_t{sizeof(V)};
  const int64_t rows = g.tile_rows(results), columns = g.tile_columns();
  const int64_t channel_stride = results * g.q * n;
  const int64_t group = std::max<int64_t>(1, kWeights / (A * g.taps())) * A;
  const auto block = [&](int64_t o, int64_t row, int64_t q) {
    const V* from = x + (row * g.stride_h * columns + q * g.stride_w) * n;
    correlate_block<A, B>(g, from, rows, weights + o * g.taps(), g.taps_of_row(first + row),
        g.taps_of_columns(q, B), bias + o, y + o * channel_stride + (row * g.q + q) * n,
        channel_stride, g.o - o);
  };
  for (int64_t o0 = 0; o0 < g.o; o0 += group) {
    for (int64_t row = 0; row < results; ++row) {
      for (int64_t q = 0; q < g.q; q += B) {
        const int64_t at = std::min(q, g.q - B);  // the last block begins earlier, not ends later
        for (int64_t o = o0; o < std::min(o0 + group, g.o); o += A) block(o, row, at);
      }
    }
  }
}

// sums[o][tap] += the products of tiles dy[o][row][q][image] and x, summed; tap = (c, r, s), and
// offsets[tap] is where it begins in x.
template <int A, int B, class V>
void multiply_tiles(const Correlation& g, const V* dy, const V* x, int64_t results,
    const int64_t* offsets, V* sums) {
  constexpr int n = kImages<V>;
  const int64_t taps = g.taps(), row_step = g.stride_h * g.tile_columns() * n;
  for (int64_t o = 0; o < g.o; o += A) {
    for (int64_t tap = 0; tap < taps; tap += B) {
      const int64_t begin = std::min(tap, taps - B);
      const V *from_y[A], *from_x[B];
      for (int a = 0; a < A; ++a) from_y[a] = dy + std::min(o + a, g.o - 1) * results * g.q * n;
      for (int b = 0; b < B; ++b) from_x[b] = x + offsets[begin + b];
      Lanes<V> total[A][B] = {};
      for (int64_t row = 0; row < results; ++row) {
        for (int64_t q = 0; q < g.q; ++q) {
          const int64_t at_y = (row * g.q + q) * n, at_x = row * row_step + q * g.stride_w * n;
          Lanes<V> v[B];
#pragma GCC unroll 8
          for (int b = 0; b < B; ++b) v[b] = load_lanes(from_x[b] + at_x);
#pragma GCC unroll 8
          for (int a = 0; a < A; ++a) {
            const Lanes<V> factor = load_lanes(from_y[a] + at_y);
#pragma GCC unroll 8
            for (int b = 0; b < B; ++b) total[a][b] = multiply_add(factor, v[b], total[a][b]);
          }
        }
      }
      constexpr int kSquares = (A * B + n - 1) / n;
      Lanes<V> squares[kSquares][n] = {};
#pragma GCC unroll 8
      for (int a = 0; a < A; ++a) {
#pragma GCC unroll 8
        for (int b = 0; b < B; ++b) squares[(a * B + b) / n][(a * B + b) % n] = total[a][b];
      }
      V added[kSquares * n];
#pragma GCC unroll 4
      for (int i = 0; i < kSquares; ++i) {
        add_blocks<1, V>(squares[i], std::make_integer_sequence<int, n>());
        std::memcpy(added + i * n, &squares[i][0], sizeof squares[i][0]);
      }
      for (int a = 0; a < A && o + a < g.o; ++a) {
        for (int64_t b = tap - begin; b < B; ++b)
          sums[(o + a) * taps + begin + b] += added[a * B + b];
      }
    }
  }
}

// The two products of tiles as ops/image/fast/conv2d_parts.h takes them: of a tile of x with the
// weights,
template <class V> class LanesProduct {
 public:
  template <class Weight, class Bias>
  LanesProduct(const Correlation& g, const Weight& weight, const Bias& bias)
      : g_(g), number_(choose_block<V>(g.o, g.q)) {
    const int a = kBlocks<V>[number_].a;
    const int64_t channels = divide_up(g.o, a) * a;
    weights_ = thread_buffer<V, BufferFor::weights>(channels * (g.taps() + 1));
    start_ = weights_ + channels * g.taps();
    pack_weights<V>(g, a, weight, weights_);
    for (int64_t o = 0; o < channels; ++o) start_[o] = o < g.o ? bias(o) : V(0);
  }
  int64_t channels() const { return g_.o; }  // of y
  void multiply(const V* x, int64_t first, int64_t results, V* y) const {
    with_block<V>(number_,
        [&]<int A, int B>() { correlate_tile<A, B>(g_, x, weights_, start_, first, results, y); });
  }

 private:
  const Correlation& g_;
  size_t number_;
  V *weights_, *start_;  // memory of the thread that made this
};
// and of a tile of dy with one of x, added to sums of which dw[i] is at place_of(i).
template <class V> class LanesGradient {
 public:
  explicit LanesGradient(const Correlation& g)
      : g_(g),
        number_(choose_block<V>(g.o, g.taps(), 4)) {}  // 4 rows of dy stay in the first cache
  int64_t size() const { return g_.o * g_.taps(); }
  int64_t place_of(int64_t i) const { return i; }
  void multiply(const V* dy, const V* x, int64_t results, V* sums) const {
    int64_t* offsets = thread_buffer<int64_t, BufferFor::kernel>(g_.taps());
    for (int64_t tap = 0; tap < g_.taps(); ++tap) {
      const int64_t c = tap / (g_.r * g_.s), r = tap / g_.s % g_.r, s = tap % g_.s;
      offsets[tap] = ((c * g_.tile_rows(results) + r) * g_.tile_columns() + s) * kImages<V>;
    }
    with_block<V>(
        number_, [&]<int A, int B>() { multiply_tiles<A, B>(g_, dy, x, results, offsets, sums); });
  }

 private:
  const Correlation& g_;
  size_t number_;
};

}  // namespace sinter::conv
