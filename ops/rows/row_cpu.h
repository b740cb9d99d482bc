// Who runs a row on the CPU: Note [Who runs a row] of row_formulas.h. Included by .cpp files of ops
// only.
#pragma once

#include <limits>
#include <type_traits>

#include "core/device/lanes.h"
#include "ops/rows/row_formulas.h"
#include "ops/rows/row_loops.h"

namespace sinter::on_cpu {

// f(first column, first row) of the squares of a whole tile that vectors can turn; the columns of
// these. Numbers that are converted take no part.
template <class T, class V, class F> int64_t for_squares(int64_t rows, int64_t cols, const F& f) {
  if constexpr (!std::is_same_v<T, V>) {
    return 0;
  } else {
    const int64_t end = rows < kLanes ? 0 : cols - cols % kLanesOf<V>;
    for (int64_t c = 0; c < end; c += kLanesOf<V>)
      for (int64_t l = 0; l < kLanes; l += kLanesOf<V>) f(c, l);
    return end;
  }
}
// Lanes beyond `rows` get zeros. Column by column: the rows are then kLanes streams, and the tile
// is written in order.
template <class T, class V>
void load_tile(const T* x, int64_t rows, int64_t cols, V* __restrict tile) {
  constexpr int n = kLanesOf<V>;
  int64_t c = for_squares<T, V>(rows, cols, [&](auto c, int64_t l) {
    Lanes<V> square[n];
    SINTER_UNROLLED for (int i = 0; i < n; ++i) square[i] = load(x + (l + i) * cols + c);
    turn(square);
    SINTER_UNROLLED for (int i = 0; i < n; ++i) store(tile + (c + i) * kLanes + l, square[i]);
  });
  for (; c < cols; ++c) {
    for (int64_t l = 0; l < rows; ++l) tile[c * kLanes + l] = V(x[l * cols + c]);
    std::fill(tile + c * kLanes + rows, tile + (c + 1) * kLanes, V(0));
  }
}
template <class T, class V>
void store_tile(const V* tile, int64_t rows, int64_t cols, T* __restrict x) {
  constexpr int n = kLanesOf<V>;
  int64_t c = for_squares<T, V>(rows, cols, [&](auto c, int64_t l) {
    Lanes<V> square[n];
    SINTER_UNROLLED for (int i = 0; i < n; ++i) square[i] = load(tile + (c + i) * kLanes + l);
    turn(square);
    SINTER_UNROLLED for (int i = 0; i < n; ++i) store(x + (l + i) * cols + c, square[i]);
  });
  for (; c < cols; ++c) {
    for (int64_t l = 0; l < rows; ++l) x[l * cols + c] = T(tile[c * kLanes + l]);
  }
}

// A place in a tile, of a column and a row.
struct TilePlace {
  int c;
  int64_t l;
};
// A number of each row of a tile; its values.
template <class V> struct TileNumber {
  alignas(64) V lanes[kLanes] = {};
  SINTER_FN V operator()(TilePlace i) const { return lanes[i.l]; }
};
template <class V> struct TileValues {
  V* tile;
  SINTER_FN V& operator()(TilePlace i) const { return tile[i.c * kLanes + i.l]; }
};

// `rows` rows from `first` on, side by side in tiles. Sums in blocks of 32 columns.
template <class V> struct TileRows {
  int64_t first, rows, cols;
  V *tile, *next = tile;  // of the first operand, of the next one
  struct Kept : TileValues<V> {
    TileNumber<V> sum;
  };

  int64_t size() const { return cols; }
  template <class T> SINTER_FN TileValues<V> load(In<T> x) {
    const TileValues<V> values{next};
    next += cols * kLanes;
    load_tile(x.data + first * cols, rows, cols, values.tile);
    return values;
  }
  template <class T> SINTER_FN auto columns(In<T> x) const {
    return [x](TilePlace i) { return V(x[i.c]); };
  }
  template <class T> SINTER_FN TileNumber<compute_t<T>> numbers(In<T> x, int64_t step = 1) const {
    TileNumber<compute_t<T>> n;
    for (int64_t l = 0; l < rows; ++l) n.lanes[l] = x[(first + l) * step];
    return n;
  }
  SINTER_FN TileNumber<int32_t> place_in(int64_t height) const {
    TileNumber<int32_t> n;
    for (int64_t l = 0; l < rows; ++l) n.lanes[l] = static_cast<int32_t>((first + l) % height);
    return n;
  }
  // check_range() has seen them.
  template <class Label> SINTER_FN bool check_label(const Label&, uint32_t*) const { return true; }

  template <class F> SINTER_FN TileNumber<V> number(const F& f) const {
    TileNumber<V> n;
    for (int64_t l = 0; l < kLanes; ++l) n.lanes[l] = f(TilePlace{0, l});
    return n;
  }
  template <class F> SINTER_FN TileNumber<V> max(const F& f) const {
    TileNumber<V> m = number([](TilePlace) { return -std::numeric_limits<V>::infinity(); });
    each(0, cols, [&](TilePlace i) { m.lanes[i.l] = math::max_or_nan(m.lanes[i.l], f(i)); });
    return m;
  }
  template <class F> SINTER_FN TileNumber<V> sum(const F& f) const {
    TileNumber<V> s;
    for (int64_t begin = 0; begin < cols; begin += 32) {
      TileNumber<V> part;
      each(begin, std::min(begin + 32, cols), [&](TilePlace i) { part.lanes[i.l] += f(i); });
      for (int64_t l = 0; l < kLanes; ++l) s.lanes[l] += part.lanes[l];
    }
    return s;
  }
  template <class F> SINTER_FN Kept keep(TileValues<V> x, const F& f) const {
    return {x, sum([&](TilePlace i) { return x(i) = f(i); })};
  }
  template <class Label> SINTER_FN TileNumber<V> pick(TileValues<V> x, const Label& label) const {
    return number([&](TilePlace i) { return x({std::max(label(i), 0), i.l}); });
  }
  template <class T, class F> SINTER_FN void store(Out<T> y, const F& f) const {
    const TileValues<V> values{tile};
    each(0, cols, [&](TilePlace i) { values(i) = f(i); });
    store_tile(tile, rows, cols, y.data + first * cols);
  }
  template <class F> SINTER_FN void once(const F& f) const {
    for (int64_t l = 0; l < rows; ++l) f(TilePlace{0, l}, first + l);
  }

 private:
  // No lane touches what another one does.
  template <class F> static SINTER_FN void each(int64_t begin, int64_t end, const F& f) {
    for (int64_t c = begin; c < end; ++c) {
#pragma GCC ivdep
      for (int64_t l = 0; l < kLanes; ++l) f(TilePlace{static_cast<int>(c), l});
    }
  }
};

// Channel c of x[N, C, ..]; a place is that of an element in its image, and in memory. The sums of
// images are added in f64. A row where it lies is a channel of one image.
template <class V> struct ChannelRow {
  using Number = RowNumber<V>;
  struct Place {
    int64_t c, at;
  };
  int64_t c, images, channels, pixels;

  int64_t size() const { return images * pixels; }
  template <class T> SINTER_FN auto load(In<T> x) const {
    return [x](Place i) { return V(x[i.at]); };
  }
  template <class N> SINTER_FN RowNumber<compute_t<N>> numbers(In<N> x, int64_t step = 1) const {
    return {x[c * step]};
  }
  SINTER_FN bool check_label(int, uint32_t*) const { return true; }  // check_range() has seen it
  template <class F> SINTER_FN Number number(const F& f) const { return {f(Place{})}; }
  template <class F> SINTER_FN Number sum(const F& f) const {
    double total = 0;
    for (int64_t n = 0; n < images; ++n) {
      const int64_t first = (n * channels + c) * pixels;
      total += double(row_sum<V>(pixels, [&](int64_t k) { return f(Place{k, first + k}); }));
    }
    return {V(total)};
  }
  template <class X> SINTER_FN Number pick(const X& x, int label) const {
    const int64_t at = std::max(label, 0);  // kNoLabel has none
    return {x(Place{at, c * pixels + at})};
  }
  template <class T, class F> SINTER_FN void store(Out<T> y, const F& f) const {
    for (int64_t n = 0; n < images; ++n) {
      const int64_t first = (n * channels + c) * pixels;
      for (int64_t k = 0; k < pixels; ++k) y.put(first + k, T(f(Place{k, first + k})));
    }
  }
  template <class F> SINTER_FN void once(const F& f) const { f(Place{}, c); }
};

// On all threads.
template <class Body>
void run_where_they_lie(const Body& body, int64_t images, int64_t channels, int64_t pixels) {
  using V = typename Body::V;
  const int64_t bytes = Body::kWork * images * pixels * static_cast<int64_t>(sizeof(V));
  parallel_for(channels, grain_of(bytes), [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) {
      ChannelRow<V> row{c, images, channels, pixels};
      body(row);
    }
  });
}
template <class Body> void run_channels(const Body& body, const Tensor& x) {
  run_where_they_lie(body, x.size(0), x.size(1), numel_of_dims(x, 2));
}
template <class Body> void run_rows(const Body& body) {
  using V = typename Body::V;
  if constexpr (Body::kTiles == 0) {
    run_where_they_lie(body, 1, body.rows, body.cols);
  } else {
    const int64_t bytes = body.cols * Body::kWork * static_cast<int64_t>(sizeof(V));
    for_row_tiles(body.rows, bytes, [&](int64_t first, int64_t rows) {
      V* tiles = thread_buffer<V, BufferFor::kernel>(Body::kTiles * body.cols * kLanes);
      TileRows<V> row{first, rows, body.cols, tiles};
      body(row);
    });
  }
}

}  // namespace sinter::on_cpu

namespace sinter {

// dweight of a norm from dy and x: the sum over rows of dy n, where n is normalised_of(V())(x,
// row).
template <class F> void weight_grad_of_norm(const Call& call, const F& normalised_of) {
  const Tensor& dy = call.in[0];
  const on_cpu::RowShape shape(dy);
  const int64_t cols = shape.cols, rows = shape.rows;
  visit_float(dy.dtype(), [&]<class T>(T) {
    using V = compute_t<T>;
    const T *g = dy.data<T>(), *x = call.in[1].data<T>();
    const auto normalised = normalised_of(V());
    for_columns(cols, 2 * rows * int64_t(sizeof(T)), [&](int64_t first, int64_t width) {
      const auto term = [&](int64_t r, int64_t c) {
        const int64_t at = r * cols + first + c;
        return V(g[at]) * normalised(V(x[at]), r);
      };
      column_sums_of(rows, width, term, call.out[0].data<V>() + first);
    });
  });
}

}  // namespace sinter
