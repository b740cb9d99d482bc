// Convolution of all images on the CPU, in parts: some rows of the result for kImages images, by
// the tiles of ops/image/fast/conv2d_lanes.h or, for bf16 on a processor that has them, those of
// AMX. For the kernels of ops/image/conv2d_cpu.h and the fused ones.
#pragma once

#include "core/parallel.h"
#include "ops/image/fast/conv2d_amx.h"

namespace sinter::conv {

// Rows [first, first + rows) of the result for images [image, image + count). Small enough that a
// part's tiles stay in the second cache.
struct Part {
  int64_t image, count, first, rows;
};
template <class V> class Parts {
 public:
  // At least `least` parts, if there are as many rows; of whole multiples of `multiple` rows, but
  // for the last one of an image.
  Parts(const Correlation& g, int64_t least, int64_t multiple = 1) : images_(g.n), height_(g.p) {
    constexpr int64_t kBytes = 768 << 10;
    const int64_t groups = std::max<int64_t>(1, divide_up(images_, kImages<V>));
    const int64_t row_bytes =
        (g.c * g.stride_h * g.tile_columns() + g.o * g.q) * kImages<V> * int64_t{sizeof(V)};
    const int64_t cuts = std::max(divide_up(row_bytes * g.p, kBytes), divide_up(least, groups));
    rows_ = std::max<int64_t>(1, divide_up(divide_up(g.p, cuts), multiple)) * multiple;
    cuts_ = divide_up(g.p, rows_);
  }
  int64_t size() const { return divide_up(images_, kImages<V>) * cuts_; }
  Part operator[](int64_t i) const {
    const int64_t image = i / cuts_ * kImages<V>, first = i % cuts_ * rows_;
    return {image, std::min<int64_t>(kImages<V>, images_ - image), first,
        std::min(rows_, height_ - first)};
  }

 private:
  int64_t images_, height_, rows_, cuts_;
};

template <class V, class Core, class Load, class Finish>
void correlate_by(const Core& product, const Correlation& g, const Parts<V>& parts,
    const Load& load, const Finish& finish) {
  parallel_for(parts.size(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const Part part = parts[i];
      V* x = thread_buffer<V, BufferFor::x_tile>(
          g.c * g.tile_rows(part.rows) * g.tile_columns() * kImages<V>);
      V* y = thread_buffer<V, BufferFor::y_tile>(product.channels() * part.rows * g.q * kImages<V>);
      load(part, x);
      product.multiply(x, part.first, part.rows, y);
      finish(part, y);
    }
  });
}
// The correlation of all images of T. load(part, tile) fills the tile of a part's x, finish(part,
// y) takes its results y[o][row][q][image], which it may overwrite; weight(o, c, r, s), bias(o).
template <class T, class Load, class Weight, class Bias, class Finish>
void correlate(const Correlation& g, const Parts<compute_t<T>>& parts, const Load& load,
    const Weight& weight, const Bias& bias, const Finish& finish) {
#ifdef SINTER_AMX
  if constexpr (std::is_same_v<T, bf16>) {
    if (amx::available())
      return correlate_by(amx::TilesProduct(g, weight, bias), g, parts, load, finish);
  }
#endif
  correlate_by(LanesProduct<compute_t<T>>(g, weight, bias), g, parts, load, finish);
}

template <class V, class Core, class LoadX, class LoadDy>
void gradient_by(const Core& product, const Correlation& g, const LoadX& load_x,
    const LoadDy& load_dy, V* dw, V* db) {
  const Parts<V> parts(g, 4);
  const int64_t weights = g.o * g.taps(), bias_at = product.size(), size = bias_at + g.o;
  const int64_t shares =
      std::min<int64_t>(parts.size(), std::clamp<int64_t>((1 << 23) / size, 2, 16));
  V* partial = thread_buffer<V, BufferFor::sums>(shares * size);
  std::fill_n(partial, shares * size, V(0));
  const auto add_part = [&](const Part& part, V* sums) {
    const int64_t plane = part.rows * g.q * kImages<V>;
    V* x = thread_buffer<V, BufferFor::x_tile>(
        g.c * g.tile_rows(part.rows) * g.tile_columns() * kImages<V>);
    V* dy = thread_buffer<V, BufferFor::y_tile>(g.o * plane);
    load_x(part, x);
    load_dy(part, dy);
    product.multiply(dy, x, part.rows, sums);
    for (int64_t o = 0; db && o < g.o; ++o) {
      Lanes<V> total{};
      for (int64_t i = 0; i < plane; i += kImages<V>) total += load_lanes(dy + o * plane + i);
      sums[bias_at + o] += sum_of_lanes<V>(total);
    }
  };
  parallel_for(shares, 1, [&](int64_t begin, int64_t end) {
    for (int64_t share = begin; share < end; ++share) {
      for (int64_t i = share * parts.size() / shares; i < (share + 1) * parts.size() / shares; ++i)
        add_part(parts[i], partial + share * size);
    }
  });
  const auto total = [&](int64_t at) {
    V sum = 0;
    for (int64_t share = 0; share < shares; ++share) sum += partial[share * size + at];
    return sum;
  };
  parallel_for(weights, 4096, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) dw[i] = total(product.place_of(i));
  });
  for (int64_t o = 0; db && o < g.o; ++o) db[o] = total(bias_at + o);
}
// dw[o][c][r][s] of all images of T and, if db is given, db[o], the sums of dy. load_x(part, tile)
// and load_dy(part, tile) fill the tiles. Parts are summed in a fixed number of shares, and those
// in order.
template <class T, class LoadX, class LoadDy, class V = compute_t<T>>
void correlate_gradient(
    const Correlation& g, const LoadX& load_x, const LoadDy& load_dy, V* dw, V* db = nullptr) {
#ifdef SINTER_AMX
  if constexpr (std::is_same_v<T, bf16>) {
    if (amx::available() && amx::gradient_pays(g))
      return gradient_by(amx::GradientProduct(g), g, load_x, load_dy, dw, db);
  }
#endif
  gradient_by(LanesGradient<V>(g), g, load_x, load_dy, dw, db);
}

}  // namespace sinter::conv
