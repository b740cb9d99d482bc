// What becomes of a row, each formula once for all devices: softmax and its kin, cross entropy,
// layer norm, batch norm, the losses and argmax. Clipping's norm is no row's: it is a sum over
// gradients of any number and size, which no warp or block owns, but many blocks share, in pieces
// of their own on each side (clip.h, clip.cu). What becomes of a gradient by it stands here.
//
// Note [Who runs a row]
//   This header is compiled for the CPU, for the emulator and for CUDA, each with its own In and
//   Out. An op is a struct of its operands; called with a row, it does what is to be done to that
//   one. A row is one of
//
//     TileRows     the CPU: 16 rows side by side, one to each lane of a vector      row_cpu.h
//     ChannelRow   the CPU: a channel of a batch of images, or a row where it lies  row_cpu.h
//     WarpRow      a warp, or half of one, which holds the row in registers         row.cuh
//     BlockRow     a block of threads, which reads the row again from the cache     row.cuh
//
//   Values are functions of a place i, whose column is i.c: x(i). So are numbers of a row, m(i),
//   for a tile has 16 of each. Every row offers
//
//     row.load(In) row.columns(In)   x(i) of its own values; of one vector for all rows
//     row.numbers(In, step)          the number of this row in a vector
//     row.place_in(height)           which row of its matrix of so many it is
//     row.max(f) row.sum(f)          over all places: a number
//     row.number(f)                  a number worked out from others, such as the log of a sum
//     row.keep(x, f)                 e: e(i) is f(i), and the number e.sum its sum. A tile has e in
//                                    place of x, a warp in registers, a block works f out again
//     row.pick(x, label)             the number x at the column that is the label
//     row.store(Out, f)              f(i) of every place; a tile writes over its first operand
//     row.once(f)                    f(i, row) once for each row, to store numbers
#pragma once

#include <algorithm>
#include <limits>
#include <type_traits>

#include "ops/ops.h"

// The CPU's operands, as core/device/kernel.h has them for devices, which no file includes beside
// this.
#ifndef SINTER_KERNEL_NS
#define SINTER_KERNEL_NS on_cpu
#define SINTER_DEVICE_FN SINTER_FN
namespace sinter::on_cpu {
template <class T> struct In {
  const T* data = nullptr;
  explicit operator bool() const { return data; }
  T operator[](int64_t i) const { return data[i]; }
};
template <class T> struct Out {
  T* data = nullptr;
  explicit operator bool() const { return data; }
  void put(int64_t i, T v) const { data[i] = v; }
};
template <class T> struct InOut : Out<T> {
  T operator[](int64_t i) const { return this->data[i]; }
};
template <class T> In<T> in(const Tensor& t) { return {t.defined() ? t.data<T>() : nullptr}; }
template <class T> Out<T> out(const Tensor& t) { return {t.defined() ? t.data<T>() : nullptr}; }
template <class T> InOut<T> in_out(const Tensor& t) { return {out<T>(t)}; }
inline uint32_t* fault_flag() { return nullptr; }  // check_range() sees what is wrong before
}  // namespace sinter::on_cpu
#endif

namespace sinter::SINTER_KERNEL_NS {

// The operands of a struct: each In and InOut the next of the call's inputs, each Out the next of
// its results. What is undefined, or not given, is not there.
struct TakeOperands {
  Operands inputs, results;
  static const Tensor& next(Operands& tensors) {
    static const Tensor none;
    if (tensors.empty()) return none;
    const Tensor& first = tensors[0];
    tensors = tensors.subspan(1);
    return first;
  }
  template <class T> void operator()(In<T>& x) { x = in<T>(next(inputs)); }
  template <class T> void operator()(InOut<T>& x) { x = in_out<T>(next(inputs)); }
  template <class T> void operator()(Out<T>& y) { y = out<T>(next(results)); }
};
template <class... Operand> void take_operands(const Call& call, Operand&... operands) {
  TakeOperands take{call.in, call.out};
  (take(operands), ...);
}

// What an op on rows says beside: kWork, about the passes over a row; kTiles, how many of its
// operands the CPU has as tiles, 0: it reads rows where they lie; kByWarp: a device's warp holds a
// row in registers, else a block reads it again.
struct RowShape {
  static constexpr bool kByWarp = false;
  int64_t cols, rows;
  RowShape(int64_t rows, int64_t cols) : cols(cols), rows(rows) {}
  explicit RowShape(const Tensor& x) : cols(x.size(-1)), rows(cols ? x.numel() / cols : 0) {}
};

// A number of a row that is no tile's.
template <class V> struct RowNumber {
  V value;
  template <class Place> SINTER_DEVICE_FN V operator()(Place) const { return value; }
  SINTER_DEVICE_FN operator V() const { return value; }
};

// Which columns of a row of softmax live: all, or with `causal` those up to the row's own number in
// its matrix, as PyTorch's, whose first column every row has. The others are not there, whatever
// they hold: their weight is 0. A row whose living columns are all -inf has weights of 0, too, and
// no NaN.
struct AllLive {
  static constexpr bool kAll = true;
  template <class Place> SINTER_DEVICE_FN bool operator()(Place) const { return true; }
};
template <class Number> struct LiveUpTo {
  static constexpr bool kAll = false;
  Number last;
  template <class Place> SINTER_DEVICE_FN bool operator()(Place i) const { return i.c <= last(i); }
};
// The largest of the living; of a causal row 0 where that is -inf.
template <class V, class Row, class X, class Live>
SINTER_DEVICE_FN auto largest(const Row& row, const X& x, const Live& live) {
  if constexpr (Live::kAll) {
    return row.max(x);
  } else {
    constexpr V kNone = -std::numeric_limits<V>::infinity();
    const auto m = row.max([&](auto i) { return live(i) ? x(i) : kNone; });
    return row.number([&](auto i) { return m(i) == kNone ? V(0) : m(i); });
  }
}

struct LogSoftmax {  // y = (x - max) - ln(sum of e^(x - max))
  template <class V, class Row, class T, class Live>
  static SINTER_DEVICE_FN void run(Row& row, In<T> operand, In<T>, Out<T> y, const Live& live) {
    const auto x = row.load(operand);
    const auto m = largest<V>(row, x, live);
    const auto sum = row.sum([&](auto i) { return live(i) ? math::exp(x(i) - m(i)) : V(0); });
    const auto log = row.number([&](auto i) { return math::log(sum(i)); });
    row.store(y, [&](auto i) {
      const V value = (x(i) - m(i)) - log(i);
      if constexpr (Live::kAll) return value;
      return live(i) && sum(i) != V(0) ? value : -std::numeric_limits<V>::infinity();
    });
  }
};
struct Softmax {  // y = e^(x - max) / sum of e^(x - max)
  template <class V, class Row, class T, class Live>
  static SINTER_DEVICE_FN void run(Row& row, In<T> operand, In<T>, Out<T> y, const Live& live) {
    const auto x = row.load(operand);
    const auto m = largest<V>(row, x, live);
    const auto e = row.keep(x, [&](auto i) { return live(i) ? math::exp(x(i) - m(i)) : V(0); });
    const auto inverse =
        row.number([&](auto i) { return !Live::kAll && e.sum(i) == V(0) ? V(0) : 1 / e.sum(i); });
    row.store(y, [&](auto i) { return e(i) * inverse(i); });
  }
};
struct LogSoftmaxBackward {  // dx = dy - e^y sum(dy)
  template <class V, class Row, class T, class Live>
  static SINTER_DEVICE_FN void run(
      Row& row, In<T> grad, In<T> result, Out<T> dx, const Live& live) {
    const auto dy = row.load(grad), y = row.load(result);
    const auto sum = row.sum([&](auto i) { return live(i) ? dy(i) : V(0); });
    row.store(dx, [&](auto i) { return live(i) ? dy(i) - math::exp(y(i)) * sum(i) : V(0); });
  }
};
struct SoftmaxBackward {  // dx = y (dy - sum(dy y))
  template <class V, class Row, class T, class Live>
  static SINTER_DEVICE_FN void run(
      Row& row, In<T> grad, In<T> result, Out<T> dx, const Live& live) {
    const auto dy = row.load(grad), y = row.load(result);
    const auto sum = row.sum([&](auto i) { return live(i) ? dy(i) * y(i) : V(0); });
    row.store(dx, [&](auto i) { return live(i) ? y(i) * (dy(i) - sum(i)) : V(0); });
  }
};
// One of these over the last dim.
template <class Formula, class T> struct SoftmaxRows : RowShape {
  using V = compute_t<T>;
  static constexpr int kTiles = 2, kWork = 4;
  static constexpr bool kByWarp = true;
  In<T> a, b;
  Out<T> y;
  int64_t height = 0;  // of a matrix whose rows are causal; 0: they are not
  explicit SoftmaxRows(const Call& call) : RowShape(call.out[0]) {
    take_operands(call, a, b, y);
    if (call.as<SoftmaxAttrs>().causal) height = call.out[0].size(-2);
  }
  template <class Row> SINTER_DEVICE_FN void operator()(Row& row) const {
    if (height == 0) return Formula::template run<V>(row, a, b, y, AllLive());
    const auto last = row.place_in(height);
    Formula::template run<V>(row, a, b, y, LiveUpTo<decltype(last)>{last});
  }
};

// The target of a loss: 1 at the label, of which label smoothing takes its share for all classes.
template <class V> struct Target {
  V own, others;  // at the label beside what all have; of every class
  Target(double smoothing, int64_t classes)
      : own(static_cast<V>(1 - smoothing)),
        others(static_cast<V>(smoothing / static_cast<double>(std::max<int64_t>(classes, 1)))) {}

  // nll, by the label's log-probability and the sum of all, 0 without smoothing; and its gradient
  // by one of them.
  SINTER_DEVICE_FN V nll(V picked, V sum) const { return -own * picked - others * sum; }
  SINTER_DEVICE_FN V nll_gradient(bool is_label, V dloss) const {
    return is_label ? -dloss * (own + others) : V(0) - dloss * others;
  }
};

// Cross entropy of logits z:
//   loss = ln(sum of e^(z - max)) - own (z[label] - max) - others sum(z - max)
//   dz = (softmax(z) - target) dloss
// put_loss(loss); with `grad` store(dz), both functions of a place. z is not to be read again.
template <class Row, class Z, class Label, class V, class Scale, class PutLoss, class Store>
SINTER_DEVICE_FN void cross_entropy(Row& row, const Z& z, const Label& label,
    const Target<V>& target, bool grad, const Scale& dloss, const PutLoss& put_loss,
    const Store& store) {
  const auto m = row.max(z);
  const auto picked = row.pick(z, label);
  const auto weight = row.number([&](auto i) { return label(i) == kNoLabel ? V(0) : V(dloss(i)); });
  auto all = row.number([](auto) { return V(0); });
  if (target.others > V(0)) all = row.sum([&](auto i) { return z(i) - m(i); });
  const auto e = row.keep(z, [&](auto i) { return math::exp(z(i) - m(i)); });
  put_loss(row.number([&](auto i) {
    const V loss = math::log(e.sum(i)) - target.others * all(i) - target.own * (picked(i) - m(i));
    return label(i) == kNoLabel ? V(0) : loss;
  }));
  if (!grad) return;
  const auto inverse = row.number([&](auto i) { return 1 / e.sum(i); });
  store([&](auto i) {
    const V p = e(i) * inverse(i) - target.others;
    return (i.c == label(i) ? p - target.own : p) * weight(i);
  });
}
// softmax_xent. grad_output and dz are not there without the gradient.
template <class T, class D> struct XentRows : RowShape {
  using V = compute_t<T>;
  static constexpr int kTiles = 1, kWork = 8;
  static constexpr bool kByWarp = true;
  In<T> z;
  In<int32_t> labels;
  In<V> grad_output;
  Out<V> loss;
  Out<D> dz;
  int64_t step = 0;  // of grad_output
  Target<V> target;
  uint32_t* faults = fault_flag();
  XentRows(const Call& call, double label_smoothing)
      : RowShape(call.in[0]), target(label_smoothing, cols) {
    take_operands(call, z, labels, grad_output, loss, dz);
    rows = call.in[0].size(0);  // of no classes, too, whose labels are refused
    if (dz) step = call.in[2].strides()[0];
  }
  template <class Row> SINTER_DEVICE_FN void operator()(Row& row) const {
    const auto label = row.numbers(labels);
    const bool good = row.check_label(label, faults), grad = static_cast<bool>(dz);
    auto dloss = row.number([](auto) { return V(0); });
    if (grad) dloss = row.numbers(grad_output, step);
    cross_entropy(
        row, row.load(z), label, target, grad, dloss,
        [&](const auto& of) {
          row.once([&](auto i, int64_t r) { loss.put(r, good ? of(i) : V(NAN)); });
        },
        [&](const auto& f) { row.store(dz, f); });
  }
};

// nll: the label's log-probability, and with label smoothing that of all classes.
template <class T> struct Nll : RowShape {
  using V = compute_t<T>;
  static constexpr int kTiles = 0, kWork = 1;
  In<T> logp;
  In<int32_t> labels;
  Out<V> loss;
  Target<V> target;
  uint32_t* faults = fault_flag();
  explicit Nll(const Call& call)
      : RowShape(call.in[0].size(0), call.in[0].size(1)),
        target(call.as<NllAttrs>().label_smoothing, cols) {
    take_operands(call, logp, labels, loss);
  }
  template <class Row> SINTER_DEVICE_FN void operator()(Row& row) const {
    const auto x = row.load(logp);
    const auto label = row.numbers(labels);
    const bool good = row.check_label(label, faults);
    const auto picked = row.pick(x, label);
    auto all = row.number([](auto) { return V(0); });
    if (target.others > V(0)) all = row.sum(x);
    row.once([&](auto i, int64_t r) {
      const V of_row = label(i) == kNoLabel ? V(0) : target.nll(picked(i), all(i));
      loss.put(r, good ? of_row : V(NAN));
    });
  }
};
// D: the type of the losses' gradient, which may be that of the sums. step: its stride, 0 for one
// that all rows have.
template <class T, class D> struct NllBackward : RowShape {
  using V = compute_t<T>;
  static constexpr int kTiles = 0, kWork = 1;
  In<D> dloss;
  In<int32_t> labels;
  Out<T> dlogp;
  int64_t step;
  Target<V> target;
  uint32_t* faults = fault_flag();
  explicit NllBackward(const Call& call)
      : RowShape(call.out[0].size(0), call.out[0].size(1)),
        step(call.in[0].strides()[0]),
        target(call.as<NllBackwardAttrs>().label_smoothing, cols) {
    take_operands(call, dloss, labels, dlogp);
  }
  template <class Row> SINTER_DEVICE_FN void operator()(Row& row) const {
    const auto label = row.numbers(labels);
    const auto given = row.numbers(dloss, step);
    const auto g =
        row.number([&](auto i) { return label(i) == kNoLabel ? V(0) : static_cast<V>(given(i)); });
    row.check_label(label, faults);
    row.store(dlogp, [&](auto i) { return target.nll_gradient(i.c == label(i), g(i)); });
  }
};

// mse: the mean of the squares of the differences, and its gradient.
template <class V> SINTER_DEVICE_FN V square_of_difference(V x, V target) {
  const V d = x - target;
  return d * d;
}
template <class T> struct Mse : RowShape {
  using V = compute_t<T>;
  static constexpr int kTiles = 0, kWork = 2;
  In<T> x, target;
  Out<V> loss;
  explicit Mse(const Call& call) : RowShape(call.in[0].size(0), numel_of_dims(call.in[0], 1)) {
    take_operands(call, x, target, loss);
  }
  template <class Row> SINTER_DEVICE_FN void operator()(Row& row) const {
    const auto p = row.load(x), q = row.load(target);
    const auto sum = row.sum([&](auto i) { return square_of_difference(p(i), q(i)); });
    row.once([&](auto i, int64_t r) { loss.put(r, sum(i) / static_cast<V>(cols)); });
  }
};
template <class T, class D> struct MseBackward : RowShape {
  using V = compute_t<T>;
  static constexpr int kTiles = 0, kWork = 3;
  In<D> dloss;
  In<T> x, target;
  Out<T> dx;
  int64_t step;  // of dloss, as for nll
  explicit MseBackward(const Call& call)
      : RowShape(call.out[0].size(0), numel_of_dims(call.out[0], 1)),
        step(call.in[0].strides()[0]) {
    take_operands(call, dloss, x, target, dx);
  }
  template <class Row> SINTER_DEVICE_FN void operator()(Row& row) const {
    const auto p = row.load(x), q = row.load(target);
    const auto g = row.numbers(dloss, step);
    const V each = V(2) / static_cast<V>(cols);
    const auto factor = row.number([&](auto i) { return static_cast<V>(g(i)) * each; });
    row.store(dx, [&](auto i) { return factor(i) * (p(i) - q(i)); });
  }
};

// A norm's n = (x - mean) rstd.
template <class V> SINTER_DEVICE_FN V normalised(V x, V mean, V rstd) { return (x - mean) * rstd; }
// The mean of a row, the sum of the squares of the deviations from it, and
// rstd = 1 / sqrt(squares / n + eps). Two passes over x, so that nothing cancels. Of no values the
// mean is 0.
template <class Number> struct Moments {
  Number mean, squares, rstd;
};
template <class Row, class X, class V>
SINTER_DEVICE_FN auto moments(const Row& row, const X& x, V eps) {
  const V n = static_cast<V>(row.size() > 0 ? row.size() : 1);
  const auto sum = row.sum(x);
  const auto mean = row.number([&](auto i) { return sum(i) / n; });
  const auto squares = row.sum([&](auto i) { return square_of_difference(x(i), mean(i)); });
  const auto rstd = row.number([&](auto i) { return 1 / math::sqrt(squares(i) / n + eps); });
  return Moments<std::remove_const_t<decltype(mean)>>{mean, squares, rstd};
}

// y = n weight + bias, by columns
template <class T> struct LayerNorm : RowShape {
  using V = compute_t<T>;
  static constexpr int kTiles = 1, kWork = 4;
  In<T> x, weight, bias;
  Out<T> y;
  Out<V> mean, rstd;
  V eps;
  explicit LayerNorm(const Call& call)
      : RowShape(call.out[0]), eps(static_cast<V>(call.as<LayerNormAttrs>().eps)) {
    take_operands(call, x, weight, bias, y, mean, rstd);
  }
  template <class Row> SINTER_DEVICE_FN void operator()(Row& row) const {
    const auto v = row.load(x);
    const auto w = row.columns(weight), b = row.columns(bias);
    const auto m = moments(row, v, eps);
    row.store(y, [&](auto i) { return normalised(v(i), m.mean(i), m.rstd(i)) * w(i) + b(i); });
    row.once([&](auto i, int64_t r) {
      mean.put(r, m.mean(i));
      rstd.put(r, m.rstd(i));
    });
  }
};
// y = f, and what is added to it, unless there is none.
template <class Row, class T, class F>
SINTER_DEVICE_FN void store_sum(Row& row, Out<T> y, In<T> added, const F& f) {
  if (!added) return row.store(y, f);
  const auto other = row.load(added);
  row.store(y, [&](auto i) { return f(i) + other(i); });
}
// g = dy weight, dx = rstd (g - mean(g) - n mean(g n)) + added
template <class T> struct LayerNormBackward : RowShape {
  using V = compute_t<T>;
  static constexpr int kTiles = 3, kWork = 6;
  In<T> dy, x, weight;
  In<V> means, rstds;
  In<T> added;
  Out<T> dx;
  explicit LayerNormBackward(const Call& call) : RowShape(call.out[0]) {
    take_operands(call, dy, x, weight, means, rstds, added, dx);
  }
  template <class Row> SINTER_DEVICE_FN void operator()(Row& row) const {
    const auto grad = row.load(dy), value = row.load(x);
    const auto w = row.columns(weight);
    const auto mean = row.numbers(means), rstd = row.numbers(rstds);
    const auto g = [&](auto i) { return grad(i) * w(i); };
    const auto n = [&](auto i) { return normalised(value(i), mean(i), rstd(i)); };
    const auto sum = row.sum(g), product = row.sum([&](auto i) { return g(i) * n(i); });
    const V count = static_cast<V>(cols);
    const auto mean_g = row.number([&](auto i) { return sum(i) / count; });
    const auto mean_gn = row.number([&](auto i) { return product(i) / count; });
    store_sum(
        row, dx, added, [&](auto i) { return rstd(i) * (g(i) - mean_g(i) - n(i) * mean_gn(i)); });
  }
};

// y = n weight, n = x rstd, rstd = 1 / sqrt(mean(x^2) + eps), by columns; weight may be absent.
template <class T> struct RmsNorm : RowShape {
  using V = compute_t<T>;
  static constexpr int kTiles = 1, kWork = 3;
  In<T> x, weight;
  Out<T> y;
  Out<V> rstd;
  V eps;
  explicit RmsNorm(const Call& call)
      : RowShape(call.out[0]), eps(static_cast<V>(call.as<RmsNormAttrs>().eps)) {
    take_operands(call, x, weight, y, rstd);
  }
  template <class Row> SINTER_DEVICE_FN void operator()(Row& row) const {
    const auto v = row.load(x);
    const auto squares = row.sum([&](auto i) { return v(i) * v(i); });
    const V n = static_cast<V>(cols);
    const auto r = row.number([&](auto i) { return 1 / math::sqrt(squares(i) / n + eps); });
    if (weight) {
      const auto w = row.columns(weight);
      row.store(y, [&](auto i) { return v(i) * r(i) * w(i); });
    } else {
      row.store(y, [&](auto i) { return v(i) * r(i); });
    }
    row.once([&](auto i, int64_t at) { rstd.put(at, r(i)); });
  }
};
// g = dy weight, dx = rstd (g - n mean(g n)) + added
template <class T> struct RmsNormBackward : RowShape {
  using V = compute_t<T>;
  static constexpr int kTiles = 3, kWork = 5;
  In<T> dy, x;
  In<V> rstds;
  In<T> weight, added;
  Out<T> dx;
  explicit RmsNormBackward(const Call& call) : RowShape(call.out[0]) {
    take_operands(call, dy, x, rstds, weight, added, dx);
  }
  template <class Row> SINTER_DEVICE_FN void operator()(Row& row) const {
    const auto grad = row.load(dy), value = row.load(x);
    const auto rstd = row.numbers(rstds);
    if (weight) {
      const auto w = row.columns(weight);
      store(
          row, [&](auto i) { return grad(i) * w(i); }, value, rstd);
    } else {
      store(row, grad, value, rstd);
    }
  }

 private:
  template <class Row, class G, class X, class R>
  SINTER_DEVICE_FN void store(Row& row, const G& g, const X& x, const R& rstd) const {
    const auto n = [&](auto i) { return x(i) * rstd(i); };
    const auto product = row.sum([&](auto i) { return g(i) * n(i); });
    const V count = static_cast<V>(cols);
    const auto mean = row.number([&](auto i) { return product(i) / count; });
    store_sum(row, dx, added, [&](auto i) { return rstd(i) * (g(i) - n(i) * mean(i)); });
  }
};

// batch_norm2d of a channel: y = (x - mean) (rstd weight) + bias. Then the running statistics.
template <class T> struct BatchNorm {
  using V = compute_t<T>;
  static constexpr int kWork = 4;
  static constexpr bool kByPlane = false;
  In<T> x, weight, bias;
  InOut<T> running_mean, running_var;
  InOut<int64_t> batches;
  Out<T> y;
  Out<V> mean, rstd;
  V momentum, eps;
  explicit BatchNorm(const Call& call)
      : momentum(static_cast<V>(call.as<BatchNormAttrs>().momentum)),
        eps(static_cast<V>(call.as<BatchNormAttrs>().eps)) {
    take_operands(call, x, weight, bias, running_mean, running_var, batches, y, mean, rstd);
  }
  template <class Row> SINTER_DEVICE_FN void operator()(Row& row) const {
    const auto v = row.load(x);
    const auto m = moments(row, v, eps);
    const V factor = m.rstd * row.numbers(weight), b = row.numbers(bias);
    row.store(y, [&](auto i) { return (v(i) - m.mean) * factor + b; });
    row.once([&](auto, int64_t c) {
      mean.put(c, m.mean);
      rstd.put(c, m.rstd);
      if (c == 0) batches.put(0, batches[0] + 1);
      if (row.size() == 0) return;
      const V variance = m.squares / (static_cast<V>(row.size()) - V(1));
      running_mean.put(c, T((V(1) - momentum) * V(running_mean[c]) + momentum * m.mean));
      running_var.put(c, T((V(1) - momentum) * V(running_var[c]) + momentum * variance));
    });
  }
};
// batch_norm2d_eval: y = x scale + shift, of a channel
template <class V> struct ScaleAndShift {
  V scale, shift;
  SINTER_DEVICE_FN ScaleAndShift(V weight, V bias, V mean, V var, V eps)
      : scale(weight / math::sqrt(var + eps)), shift(bias - mean * scale) {}
  SINTER_DEVICE_FN V operator()(V x) const { return x * scale + shift; }
};
template <class T> struct BatchNormEval {
  using V = compute_t<T>;
  static constexpr int kWork = 2;
  static constexpr bool kByPlane = true;
  In<T> x, weight, bias, mean, var;
  Out<T> y;
  V eps;
  explicit BatchNormEval(const Call& call) : eps(static_cast<V>(call.as<BatchNormAttrs>().eps)) {
    take_operands(call, x, weight, bias, mean, var, y);
  }
  template <class Row> SINTER_DEVICE_FN void operator()(Row& row) const {
    const auto v = row.load(x);
    const ScaleAndShift<V> norm(
        row.numbers(weight), row.numbers(bias), row.numbers(mean), row.numbers(var), eps);
    row.store(y, [&](auto i) { return norm(v(i)); });
  }
};
// dweight = sum(dy n), dbias = sum(dy)
template <class T> struct BatchNormWeightGrad {
  using V = compute_t<T>;
  static constexpr int kWork = 3;
  static constexpr bool kByPlane = false;
  In<T> dy, x;
  In<V> means, rstds;
  Out<V> dweight, dbias;
  explicit BatchNormWeightGrad(const Call& call) {
    take_operands(call, dy, x, means, rstds, dweight, dbias);
  }
  template <class Row> SINTER_DEVICE_FN void operator()(Row& row) const {
    const auto g = row.load(dy), v = row.load(x);
    const V mean = row.numbers(means), rstd = row.numbers(rstds);
    const V product = row.sum([&](auto i) { return g(i) * normalised(v(i), mean, rstd); });
    const V sum = row.sum(g);
    row.once([&](auto, int64_t c) {
      dweight.put(c, product);
      dbias.put(c, sum);
    });
  }
};
// dx = rstd weight (dy - dbias / n - (x - mean) (rstd dweight / n))
template <class T> struct BatchNormBackward {
  using V = compute_t<T>;
  static constexpr int kWork = 3;
  static constexpr bool kByPlane = true;
  In<T> dy, x, weight;
  In<V> means, rstds, dweight, dbias;
  Out<T> dx;
  V count;
  explicit BatchNormBackward(const Call& call)
      : count(static_cast<V>(call.out[0].size(0) * numel_of_dims(call.out[0], 2))) {
    take_operands(call, dy, x, weight, means, rstds, dweight, dbias, dx);
  }
  template <class Row> SINTER_DEVICE_FN void operator()(Row& row) const {
    const auto g = row.load(dy), v = row.load(x);
    const V mean = row.numbers(means), rstd = row.numbers(rstds);
    const V slope = rstd * row.numbers(dweight) / count, offset = row.numbers(dbias) / count;
    const V factor = rstd * row.numbers(weight);
    row.store(dx, [&](auto i) { return factor * (g(i) - offset - (v(i) - mean) * slope); });
  }
};

// What gradients are multiplied by, given the sum of their squares; 1: they stay. A NaN norm
// reaches them, and so the loss. The norm of numbers below 3e38 may be far larger: a factor that is
// too small for a normal f32 is two.
template <class V> struct ClipFactor {
  V first, second;
  SINTER_DEVICE_FN ClipFactor(double squares, double max_norm) {
    constexpr double kLeast = 1e-30;
    const double norm = math::sqrt(squares), factor = norm <= max_norm ? 1 : max_norm / norm;
    const bool is_two = factor > 0 && factor < kLeast;
    first = V(is_two ? kLeast : factor);
    second = V(is_two ? factor / kLeast : 1.0);
  }
  SINTER_DEVICE_FN bool keeps() const { return first == V(1); }
  SINTER_DEVICE_FN V operator()(V x) const { return x * first * second; }
};

// A sum of squares in V of values whose own sum is asked for in f64: had V room for them? Some that
// are too small for it then do not show in the rest. NaN and Inf have it nowhere.
template <class V> SINTER_DEVICE_FN bool has_room_for(double sum, double least) {
  return sizeof(V) == sizeof(double) || (sum >= least && sum <= 3e38);
}

// argmax along any dim: the place of the first value that no other comes before; a NaN counts as
// the largest. A row whose values may lie apart is no tile's: one thread walks it, or the lanes of
// a warp, which then meet.
struct OneLane {
  static constexpr int64_t count = 1;
  static SINTER_DEVICE_FN int64_t lane() { return 0; }
  template <class F> static SINTER_DEVICE_FN void meet(const F&) {}
};
template <class T> struct Argmax {
  using V = compute_t<T>;
  In<T> x;
  Out<int64_t> index;
  int64_t rows, cols, step;  // step: from a value of a row to the next one
  explicit Argmax(const Call& call) : rows(call.out[0].numel()) {
    take_operands(call, x, index);
    const Tensor& t = call.in[0];
    const int dim = normalize_dim("argmax", call.as<DimAttrs>().dim, t.rank());
    cols = t.size(dim);
    step = numel_of_dims(t, dim + 1);
  }
  static SINTER_DEVICE_FN bool is_larger(V v, V w) { return v > w || (v != v && w == w); }
  template <class Lanes> SINTER_DEVICE_FN void run(int64_t row) const {
    const int64_t first = row / step * cols * step + row % step;
    V best = V(x[first]);
    int64_t at = 0;
    const auto meet = [&](V v, int64_t c) {
      if (!is_larger(v, best) && (is_larger(best, v) || c >= at)) return;
      best = v;
      at = c;
    };
    for (int64_t c = Lanes::lane(); c < cols; c += Lanes::count) meet(V(x[first + c * step]), c);
    Lanes::meet([&](const auto& exchange) { meet(exchange(best), exchange(at)); });
    if (Lanes::lane() == 0) index.put(row, at);
  }
};

// body(row) for all its rows, or for the channels of x. Each side has its own.
template <class Body> void run_rows(const Body& body);
template <class Body> void run_channels(const Body& body, const Tensor& x);

// The kernels of the ops.
template <template <class> class Body> void run_op(const Call& call) {
  visit_float(call.in[0].dtype(), [&]<class T>(T) {
    if constexpr (std::is_base_of_v<RowShape, Body<T>>) {
      run_rows(Body<T>(call));
    } else {
      run_channels(Body<T>(call), call.in[0]);
    }
  });
}
// Of the gradient of a loss, whose first operand is that of the loss.
template <template <class, class> class Body> void run_gradient(const Call& call) {
  visit_float(call.out[0].dtype(), [&]<class T>(T) {
    visit_float(call.in[0].dtype(), [&]<class D>(D) { run_rows(Body<T, D>(call)); });
  });
}
template <class Formula> void run_softmax(const Call& call) {
  visit_float(call.in[0].dtype(), [&]<class T>(T) { run_rows(SoftmaxRows<Formula, T>(call)); });
}
// Of XentRows; low: dz is bf16.
template <template <class, class> class Body>
void run_xent(const Call& call, double label_smoothing, bool low) {
  visit_float(call.in[0].dtype(), [&]<class T>(T) {
    if (low) return run_rows(Body<T, bf16>(call, label_smoothing));
    run_rows(Body<T, T>(call, label_smoothing));
  });
}

}  // namespace sinter::SINTER_KERNEL_NS
