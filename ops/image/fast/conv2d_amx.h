// The products of ops/image/fast/conv2d_lanes.h for bf16 by AMX, which multiplies matrices:
// C[m][16] += A[m][k pairs] B[k pairs][16], products exact, sums in f32; a pair is two neighbours
// in memory, of which both products are summed. Tiles come as floats that are bf16 values and are
// packed first:
//   results     C = y[o][image], A = w[o][c, s], B = x[column s][c][image] for each row r of the
//               kernel: its columns and channels lie one after the other, so that few channels of
//               a wide kernel fill a tile as well as many
//   gradient    C = dw[o][c] for each tap, A = dy[o][q, image], B = x[q][image][c], of two columns
//               q at a time, or one where the stride is no 1
// Four tiles of C at a time, for a product takes 52 cycles and the next may begin after 16. Where a
// tile is filled up with zeros an infinity of x gives NaN, never a number.
#pragma once

#include "ops/image/fast/conv2d_lanes.h"

#ifdef SINTER_AMX_TILES  // a test has tiles of plain loops
#include SINTER_AMX_TILES
#else
#include "core/device/amx_tiles.h"
#endif

#ifdef SINTER_AMX
namespace sinter::conv::amx {

using namespace sinter::amx;

// Of less than four channels most of a tile of 16 would be empty.
inline bool gradient_pays(const Correlation& g) { return g.c >= 4; }

// Output channels in tiles of as many rows each.
struct ChannelTiles {
  int64_t count, m;
  explicit ChannelTiles(int64_t channels)
      : count(divide_up(channels, kRow)), m(divide_up(channels, count)) {}
};

// Results; as LanesProduct.
class TilesProduct {
 public:
  template <class Weight, class Bias>
  TilesProduct(const Correlation& g, const Weight& weight, const Bias& bias)
      : g_(g),
        outputs_(g.o),
        pairs_(divide_up(g.c, 2)),
        run_(g.s * pairs_),
        chunks_(divide_up(run_, kRow)),
        k_(divide_up(run_, chunks_)) {
    weights_ = thread_buffer<bf16, BufferFor::weights>(
        outputs_.count * g.r * chunks_ * outputs_.m * 2 * kRow);
    start_ = thread_buffer<float, BufferFor::start>(channels() * kRow);
    for (int64_t o = 0; o < channels(); ++o)
      std::fill_n(start_ + o * kRow, kRow, o < g.o ? bias(o) : 0.0f);
    bf16* to = weights_;
    for (int64_t o = 0; o < channels(); o += outputs_.m) {
      for (int64_t r = 0; r < g.r; ++r) {
        for (int64_t i = 0; i < chunks_; ++i) {
          for (int64_t row = o; row < o + outputs_.m; ++row, to += 2 * kRow)
            pack_row(weight, row, r, i, to);
        }
      }
    }
  }
  int64_t channels() const { return outputs_.count * outputs_.m; }

  void multiply(const float* x, int64_t, int64_t results, float* y) const {
    const int64_t rows = g_.tile_rows(results), columns = g_.tile_columns();
    bf16* packed = thread_buffer<bf16, BufferFor::packed_x>(rows * columns * pairs_ * 2 * kRow);
    pack_x(x, rows, columns, packed);
    const Tiles tiles(outputs_.m, k_);
    for (int64_t row = 0; row < results; ++row) {
      const bf16* from = packed + row * g_.stride_h * columns * pairs_ * 2 * kRow;
      for (int64_t q = 0; q < g_.q; q += 4) multiply_four(from, q, y + row * g_.q * kRow, results);
    }
  }

 private:
  // Chunk i of a run of pairs begins here: the last one earlier, and what the one before it has
  // counts 0 there.
  int64_t first_of(int64_t i) const { return std::min(i * k_, run_ - k_); }

  template <class Weight>
  void pack_row(const Weight& weight, int64_t o, int64_t r, int64_t i, bf16* to) const {
    for (int64_t j = 0; j < 2 * k_; ++j) {
      const int64_t pair = first_of(i) + j / 2, c = 2 * (pair % pairs_) + j % 2;
      const bool counts = o < g_.o && c < g_.c && pair >= i * k_;
      to[j] = bf16(counts ? weight(o, c, r, pair / pairs_) : 0.0f);
    }
  }

  // [row][column][pair of channels][image][2]
  void pack_x(const float* x, int64_t rows, int64_t columns, bf16* to) const {
    const int64_t plane = rows * columns * kRow;
    for (int64_t i = 0; i < plane; i += kRow) {
      for (int64_t c = 0; c < g_.c; c += 2, to += 2 * kRow) {
        const float* from = x + c * plane + i;
        const Row a = load_row(from);
        Row b{};
        if (c + 1 < g_.c) b = load_row(from + plane);
        const Row both = pack_pairs(a, b);
        std::memcpy(static_cast<void*>(to), &both, sizeof both);
      }
    }
  }

  // Results q to q + 3 of a row, of all channels. Beyond the last result it is made again.
  void multiply_four(const bf16* x, int64_t q, float* y, int64_t results) const {
    const int64_t columns = g_.tile_columns(), channel_stride = results * g_.q * kRow;
    int64_t column[4], offset[4];
    for (int i = 0; i < 4; ++i) {
      column[i] = std::min(q + i, g_.q - 1);
      offset[i] = column[i] * g_.stride_w * pairs_ * 2 * kRow;
    }
    const bf16* weights = weights_;
    for (int64_t o = 0; o < channels(); o += outputs_.m) {
      const float* start = start_ + o * kRow;
      load_sums({start, start, start, start}, kRow);
      for (int64_t r = 0; r < g_.r; ++r) {
        for (int64_t i = 0; i < chunks_; ++i, weights += outputs_.m * 2 * kRow)
          amx::multiply(
              weights, 2 * kRow, x + (r * columns * pairs_ + first_of(i)) * 2 * kRow, offset);
      }
      float* to = y + o * channel_stride;
      store_sums({to + column[0] * kRow, to + column[1] * kRow, to + column[2] * kRow,
                     to + column[3] * kRow},
          channel_stride);
    }
  }

  const Correlation& g_;
  ChannelTiles outputs_;
  int64_t pairs_, run_, chunks_, k_;
  bf16* weights_;  // [o / m][r][chunk][m][16 pairs], memory of the thread that made this
  float* start_;   // [o][image], the same
};

// The gradient by the weights; as LanesGradient. Sums lie as tiles: [o / m][column][m][16], where a
// column is 16 channels of a tap.
class GradientProduct {
 public:
  explicit GradientProduct(const Correlation& g)
      : g_(g),
        outputs_(g.o),
        taps_(g.r * g.s),
        columns_(divide_up(g.c, kRow) * taps_),
        at_once_(g.stride_w == 1 ? 2 : 1) {}
  int64_t size() const { return outputs_.count * columns_ * outputs_.m * kRow; }
  int64_t place_of(int64_t i) const {
    const int64_t o = i / g_.taps(), c = i % g_.taps() / taps_, tap = i % taps_;
    const int64_t column = c / kRow * taps_ + tap;
    return ((o / outputs_.m * columns_ + column) * outputs_.m + o % outputs_.m) * kRow + c % kRow;
  }

  void multiply(const float* dy, const float* x, int64_t results, float* sums) const {
    const int64_t rows = g_.tile_rows(results), width = even_above(g_.tile_columns());
    const int64_t q_even = even_above(g_.q - 1), channels = outputs_.count * outputs_.m;
    bf16* packed_x =
        thread_buffer<bf16, BufferFor::packed_x>(divide_up(g_.c, kRow) * rows * width * 16 * kRow);
    bf16* packed_dy = thread_buffer<bf16, BufferFor::packed_dy>(channels * results * q_even * kRow);
    pack_x(x, rows, packed_x);
    pack_dy(dy, g_.o * results, packed_dy);
    const Tiles tiles(outputs_.m, 8 * at_once_);
    for (int64_t o = 0; o < channels; o += outputs_.m) {
      const bf16* a = packed_dy + o * results * q_even * kRow;
      for (int64_t column = 0; column < columns_; column += 4)
        multiply_four(a, packed_x, results, column, sums + o * columns_ * kRow);
    }
  }

 private:
  static int64_t even_above(int64_t n) { return n / 2 * 2 + 2; }

  // [c / 16][row][column][pair of images][c % 16][2]; zeros behind the last column and channel.
  void pack_x(const float* x, int64_t rows, bf16* to) const {
    const int64_t columns = g_.tile_columns();
    for (int64_t c0 = 0; c0 < g_.c; c0 += kRow) {
      for (int64_t row = 0; row < rows; ++row) {
        for (int64_t q = 0; q < even_above(columns); q += 2, to += 32 * kRow) {
          Row v[kRow] = {};
          for (int64_t c = c0; c < std::min(c0 + kRow, g_.c); ++c)
            v[c - c0] = pack_two(x + (c * rows + row) * columns * kRow, q, columns);
          turn(v);
          std::memcpy(static_cast<void*>(to), v, sizeof v);
        }
      }
    }
  }
  // [o][row][column][image], an even number of columns.
  void pack_dy(const float* dy, int64_t rows, bf16* to) const {
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t q = 0; q < g_.q; q += 2, to += 2 * kRow) {
        const Row two = pack_two(dy + row * g_.q * kRow, q, g_.q);
        std::memcpy(static_cast<void*>(to), &two, sizeof two);
      }
    }
  }
  // Columns q and q + 1 of a row, zeros beyond it.
  static Row pack_two(const float* row, int64_t q, int64_t columns) {
    Row a{}, b{};
    if (q < columns) a = load_row(row + q * kRow);
    if (q + 1 < columns) b = load_row(row + (q + 1) * kRow);
    return pack(a, b);
  }

  // Sums of four columns of m channels. Beyond the last column it is made again.
  void multiply_four(
      const bf16* dy, const bf16* x, int64_t results, int64_t column, float* sums) const {
    const int64_t rows = g_.tile_rows(results), width = even_above(g_.tile_columns());
    const int64_t q_even = even_above(g_.q - 1);
    float* to[4];
    int64_t offset[4];
    for (int i = 0; i < 4; ++i) {
      const int64_t at = std::min(column + i, columns_ - 1), tap = at % taps_;
      const int64_t row = at / taps_ * rows + tap / g_.s;
      offset[i] = (row * width + tap % g_.s) * 16 * kRow;
      to[i] = sums + at * outputs_.m * kRow;
    }
    load_sums({to[0], to[1], to[2], to[3]}, kRow);
    for (int64_t row = 0; row < results; ++row) {
      const bf16* from = x + row * g_.stride_h * width * 16 * kRow;
      for (int64_t q = 0; q < g_.q; q += at_once_)
        amx::multiply(dy + (row * q_even + q) * kRow, results * q_even * kRow,
            from + q * g_.stride_w * 16 * kRow, offset);
    }
    store_sums(to, kRow);
  }

  const Correlation& g_;
  ChannelTiles outputs_;
  int64_t taps_, columns_, at_once_;
};

}  // namespace sinter::conv::amx

#endif
