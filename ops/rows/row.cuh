// Who runs a row on a device: Note [Who runs a row] of row_formulas.h. Included by .cu files only.
#pragma once

#include "ops/rows/block_reduce.cuh"
#include "ops/rows/row_formulas.h"

namespace sinter::SINTER_KERNEL_NS {

// What is no label of `classes` is reported, by one thread.
SINTER_DEVICE_FN bool check_class(
    int label, int64_t classes, int64_t row, bool reports, uint32_t* faults) {
  const bool good = (label >= 0 && label < classes) || label == kNoLabel;
  if (!good && reports) fault(faults, Fault::label_out_of_range, row, label, classes);
  return good;
}

// kWidth neighbouring lanes of a warp, lane l with columns l, l + kWidth, .. in registers. Numbers
// are joined by a fixed xor tree: the same bits in every lane and on every device. REQUIRES: cols
// <= kWidth kPerLane; all lanes of the warp are here.
template <class V, int kPerLane, int kWidth = 32> struct WarpRow {
  using Number = RowNumber<V>;
  struct Place {
    int c, j;
  };
  struct Values {
    V v[kPerLane];
    SINTER_DEVICE_FN V operator()(Place i) const { return v[i.j]; }
  };
  struct Kept : Values {
    Number sum;
  };

  int64_t row;
  int cols;
  template <class F> SINTER_DEVICE_FN void each(const F& f) const {
    SINTER_UNROLL
    for (int j = 0; j < kPerLane; ++j) {
      const int c = lane() % kWidth + kWidth * j;
      if (c < cols) f(Place{c, j});
    }
  }
  template <class T> SINTER_DEVICE_FN Values load(const In<T>& x) const {
    Values values;
    SINTER_UNROLL
    for (int j = 0; j < kPerLane; ++j) {
      const int c = lane() % kWidth + kWidth * j;
      values.v[j] = c < cols ? V(x[row * cols + c]) : V(0);
    }
    return values;
  }
  template <class N>
  SINTER_DEVICE_FN RowNumber<compute_t<N>> numbers(const In<N>& x, int64_t step = 1) const {
    return {x[row * step]};
  }
  SINTER_DEVICE_FN RowNumber<int> place_in(int64_t height) const {
    return {static_cast<int>(row % height)};
  }
  SINTER_DEVICE_FN bool check_label(int label, uint32_t* faults) const {
    return check_class(label, cols, row, lane() % kWidth == 0, faults);
  }
  template <class F> SINTER_DEVICE_FN Number number(const F& f) const { return {f(Place{})}; }
  template <class F> SINTER_DEVICE_FN Number max(const F& f) const { return join<MaxOf>(f); }
  template <class F> SINTER_DEVICE_FN Number sum(const F& f) const { return join<SumOf>(f); }
  template <class F> SINTER_DEVICE_FN Kept keep(const Values&, const F& f) const {
    Kept e;
    e.sum = sum([&](Place i) { return e.v[i.j] = f(i); });
    return e;
  }
  SINTER_DEVICE_FN Number pick(const Values& x, int label) const {
    V picked = 0;
    each([&](Place i) { picked = i.c == label ? x(i) : picked; });
    return {shfl(picked, lane() / kWidth * kWidth + (label & (kWidth - 1)))};
  }
  template <class T, class F> SINTER_DEVICE_FN void store(const Out<T>& y, const F& f) const {
    each([&](Place i) { y.put(row * cols + i.c, T(f(i))); });
  }
  template <class F> SINTER_DEVICE_FN void once(const F& f) const {
    if (lane() % kWidth == 0) f(Place{}, row);
  }

 private:
  template <class R, class F> SINTER_DEVICE_FN Number join(const F& f) const {
    V v = R::template start<V>();
    each([&](Place i) { v = R::join(v, f(i)); });
    SINTER_UNROLL
    for (int mask = kWidth / 2; mask > 0; mask >>= 1) v = R::join(v, shfl_xor(v, mask));
    return {v};
  }
};

// Where column c of a row is, and value c of a channel, images in order, in [N, channels, pixels].
struct RowPlace {
  int64_t first;
  SINTER_DEVICE_FN int64_t operator()(int64_t c) const { return first + c; }
};
struct ChannelPlace {
  int64_t channels, pixels, channel;
  SINTER_DEVICE_FN int64_t operator()(int64_t c) const {
    return (c / pixels * channels + channel) * pixels + c % pixels;
  }
};

// A block, thread t with columns t, t + threads, ..
template <class V, class At> struct BlockRow {
  using Number = RowNumber<V>;
  struct Place {
    int64_t c, at;
  };
  template <class F> struct Kept {
    F f;
    Number sum;
    SINTER_DEVICE_FN V operator()(Place i) const { return f(i); }
  };

  int64_t row, cols;
  At at;
  Shared<V, 32>& scratch;
  SINTER_DEVICE_FN int64_t size() const { return cols; }
  template <class F> SINTER_DEVICE_FN void each(const F& f) const {
    for (int64_t c = thread_x(); c < cols; c += threads_per_block()) f(Place{c, at(c)});
  }
  template <class T> SINTER_DEVICE_FN auto load(const In<T>& x) const {
    return [x](Place i) { return V(x[i.at]); };
  }
  template <class T> SINTER_DEVICE_FN auto columns(const In<T>& x) const {
    return [x](Place i) { return V(x[i.c]); };
  }
  template <class N>
  SINTER_DEVICE_FN RowNumber<compute_t<N>> numbers(const In<N>& x, int64_t step = 1) const {
    return {x[row * step]};
  }
  SINTER_DEVICE_FN RowNumber<int64_t> place_in(int64_t height) const { return {row % height}; }
  SINTER_DEVICE_FN bool check_label(int label, uint32_t* faults) const {
    return check_class(label, cols, row, thread_x() == 0, faults);
  }
  template <class F> SINTER_DEVICE_FN Number number(const F& f) const { return {f(Place{})}; }
  template <class F> SINTER_DEVICE_FN Number max(const F& f) const { return join<MaxOf>(f); }
  template <class F> SINTER_DEVICE_FN Number sum(const F& f) const { return join<SumOf>(f); }
  template <class X, class F> SINTER_DEVICE_FN Kept<F> keep(const X&, const F& f) const {
    return {f, sum(f)};
  }
  template <class X> SINTER_DEVICE_FN Number pick(const X& x, int label) const {
    return {label >= 0 && label < cols ? x(Place{label, at(label)}) : V(0)};
  }
  template <class T, class F> SINTER_DEVICE_FN void store(const Out<T>& y, const F& f) const {
    each([&](Place i) { y.put(i.at, T(f(i))); });
  }
  template <class F> SINTER_DEVICE_FN void once(const F& f) const {
    if (thread_x() == 0) f(Place{}, row);
  }

 private:
  template <class R, class F> SINTER_DEVICE_FN Number join(const F& f) const {
    V v = R::template start<V>();
    each([&](Place i) { v = R::join(v, f(i)); });
    return {block_join<R>(v, scratch)};
  }
};

// A warp owns a row, a block owns one, or a channel, or a channel of one image. What is read is
// read once by a warp; by a block as often as the formula asks, the first time from memory.
template <class Body, int kPerLane> SINTER_KERNEL rows_by_warp(Body body) {
  WarpRow<typename Body::V, kPerLane> row{
      block_x() * warps_per_block() + warp(), static_cast<int>(body.cols)};
  if (row.row < body.rows) body(row);  // whole warps leave
}
template <class Body> SINTER_KERNEL rows_by_block(Body body) {
  using V = typename Body::V;
  BlockRow<V, RowPlace> row{block_x(), body.cols, {block_x() * body.cols}, shared<Shared<V, 32>>()};
  body(row);
}
template <class Body> SINTER_KERNEL channels_by_block(Body body, int64_t images, int64_t pixels) {
  using V = typename Body::V;
  BlockRow<V, ChannelPlace> row{
      block_x(), images * pixels, {grid_x(), pixels, block_x()}, shared<Shared<V, 32>>()};
  body(row);
}
template <class Body> SINTER_KERNEL planes_by_block(Body body, int64_t channels, int64_t pixels) {
  using V = typename Body::V;
  BlockRow<V, RowPlace> row{
      block_x() % channels, pixels, {block_x() * pixels}, shared<Shared<V, 32>>()};
  body(row);
}

template <class Body> void run_rows(const Body& body) {
  if (body.rows == 0) return;
  if constexpr (Body::kByWarp) {
    constexpr int kWarps = 4;
    if (body.cols <= 1024)
      return with_columns_per_lane(body.cols, [&]<int N>() {
        launch<rows_by_warp<Body, N>>({blocks_for(body.rows, kWarps)}, kWarps * 32, 0, body);
      });
  }
  launch<rows_by_block<Body>>(
      {body.rows}, block_for(body.cols, 512), sizeof(Shared<typename Body::V, 32>), body);
}
// For the channels of x, or where no channel is summed for its planes.
template <class Body> void run_channels(const Body& body, const Tensor& x) {
  const int64_t images = x.size(0), channels = x.size(1), pixels = numel_of_dims(x, 2);
  constexpr size_t kBytes = sizeof(Shared<typename Body::V, 32>);
  if constexpr (Body::kByPlane) {
    if (x.numel() > 0)
      launch<planes_by_block<Body>>(
          {images * channels}, block_for(pixels, 256), kBytes, body, channels, pixels);
  } else {
    launch<channels_by_block<Body>>(
        {channels}, block_for(images * pixels, 1024), kBytes, body, images, pixels);
  }
}

}  // namespace sinter::SINTER_KERNEL_NS
