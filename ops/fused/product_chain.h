// A product with an end: product_chain. For its kernels and for the rules that find it
// (capture/rules_pointwise.cpp).
//
// Note [A product and its end]
//   What follows a product one element at a time is done while the product's sums are near: on the
//   CPU panel by panel of its rows, in a kernel tile by tile. So the sums need be in no memory, and
//   a launch is saved for each step.
//
//       x  W  b                         dy  W
//        \ | /                           | /
//       linear -> relu -> y           matmul -> relu_backward(., saved) -> dx
//
//   All of it is one mechanism: two operands and a kind of product, and a program of pointwise
//   steps (ops/pointwise/chain.h) whose operand 0 is the sums (ProductChainAttrs, fused.h).
//
//   The running statistics of batch_norm2d_eval are numbers of a channel that do not depend on x:
//       scale = weight / sqrt(running_var + eps)
//       y = conv2d(x, W) scale + (b - running_mean) scale + bias
//   A convolution takes them in (`normed`) before its program runs: on the CPU into its weights and
//   its bias, in a kernel into the sums of a channel.
#pragma once

#include "ops/fused/activation.h"
#include "ops/ops.h"
#include "ops/product/matrix_view.h"
#include "ops/rows/row_loops.h"

namespace sinter {

// Operands of the shapes of a small product, for the forms of rules.
Form example_of(const ProductChainAttrs& attrs);
// OpDef::label of the two (labels.cpp).
profiler::StaticName label_of_product(const Attrs& attrs);
profiler::StaticName label_of_chain(const Attrs& attrs);

// The results of a program on the CPU, as rows: of tensors of their own, or the halves of one's.
template <class T> struct ResultRows {
  ResultRows(std::span<Tensor> out, bool halves)
      : step(out[0].size(-1)), cols(halves ? step / 2 : step) {
    for (size_t r = 0; r < kChainOutputs; ++r) {
      const size_t place = halves ? 0 : std::min(r, out.size() - 1);
      data[r] = out[place].template data<T>() + (halves && r > 0 ? cols : 0);
    }
  }
  int64_t step, cols;
  T* data[kChainOutputs];
};

// An operand of the steps as rows of [rows, cols] on the CPU: taken where they lie if the elements
// of a row are neighbours, else copied. A column, or a number, is spread over rows as they are run.
template <class T> struct RowsOf {
  explicit RowsOf(const Tensor& t) : RowsOf(t, t.size(0), t.size(1)) {}
  RowsOf(const Tensor& t, int64_t rows, int64_t cols) : data(t.data<T>()) {
    if (t.shape() != Shape{rows, cols}) {
      const Broadcast b = *broadcast_of(t, {rows, cols});
      spread = b.inner != 1 || b.period != cols;
      step = spread && b.period > 1 ? 1 : 0;
      return;
    }
    step = t.strides()[0];
    if (cols <= 1 || t.strides()[1] == 1) return;
    data = static_cast<const T*>(copy.emplace(t).data());
    step = cols;
  }
  // n rows from b on, which lie together unless step says otherwise; `memory` for n * cols.
  const T* rows_at(int64_t b, int64_t n, int64_t cols, T* memory) const {
    for (int64_t i = 0; spread && i < n; ++i)
      std::fill_n(memory + i * cols, cols, data[(b + i) * step]);
    return spread ? memory : (*this)[b];
  }
  const T* operator[](int64_t b) const { return data + b * step; }
  const T* data;
  int64_t step = 0;
  bool spread = false;
  std::optional<DenseCopy> copy;
};

// The steps over rows on the CPU, on all threads. T: the type of the results and of the operands
// behind operand 0, which may lie where a result goes; Z its own.
template <class Z, class T> class RowSteps {
 public:
  RowSteps(const ChainProgram& program, Operands operands, std::span<Tensor> results, bool halves)
      : out(results, halves), program_(program), loop_(program), flat_(out.step == out.cols) {
    for (size_t k = 0; k < operands.size(); ++k) {
      operands_[k].emplace(operands[k], results[0].size(0), out.cols);
      flat_ = flat_ && (operands_[k]->spread || operands_[k]->step == out.cols);
      spreads_ = spreads_ || operands_[k]->spread;
    }
  }
  // n rows from `first` on; those of operand 0 lie at z, `step` apart.
  void operator()(const Z* z, int64_t step, int64_t first, int64_t n) const {
    const int64_t cols = out.cols;
    const bool flat = flat_ && step == cols;
    const int64_t bytes = int64_t(sizeof(Z)) + chain_flops(program_) +
                          int64_t(sizeof(T)) * (program_.n_inputs + program_.n_outputs - 1);
    parallel_for(n, grain_of(cols * bytes), [&](int64_t begin, int64_t last) {
      constexpr int64_t kSpread = 4096;  // elements: with a few operands they stay in the L1 cache
      const int64_t most = !flat      ? 1
                           : spreads_ ? std::max<int64_t>(kSpread / std::max<int64_t>(cols, 1), 1)
                                      : last - begin;
      T* const memory =
          spreads_ ? thread_buffer<T, BufferFor::spread>(kChainInputs * most * cols) : nullptr;
      for (int64_t row = begin; row < last; row += most) {
        const int64_t rows = std::min(most, last - row);
        const T* in[kChainInputs];
        T* to[kChainOutputs];
        for (int k = 1; k < program_.n_inputs; ++k)
          in[k - 1] =
              operands_[k - 1]->rows_at(first + row, rows, cols, memory + (k - 1) * most * cols);
        for (int r = 0; r < program_.n_outputs; ++r) to[r] = out.data[r] + (first + row) * out.step;
        loop_(z + row * step, in, to, rows * cols);
      }
    });
  }
  const ResultRows<T> out;

 private:
  const ChainProgram& program_;
  ChainLoop<Z, T> loop_;
  std::array<std::optional<RowsOf<T>>, kChainInputs> operands_;
  bool flat_;             // all of them, and the results, are dense, or made so
  bool spreads_ = false;  // one of them is a column or a number
};
// f(first row, rows) for panels of rows whose sums, `bytes` a row, stay in the second cache until f
// has done with them; of so many rows that each product is worth its setup. Where threads come out
// even, each has panels of its own, whose sums then are in its cache; else they share each. Sums
// that lie `in_place`, where a result goes, are one panel: being near saves them less than a
// product for each panel costs (1024 x 1024 of 784 terms on two threads: 0.97).
template <class F> void for_panels(int64_t rows, int64_t bytes, bool in_place, const F& f) {
  if (in_place) return f(int64_t{0}, rows);
  constexpr int64_t kLeast = 256, kBytes = 2 << 20;
  const int64_t panel = std::max(kLeast, kBytes / std::max<int64_t>(bytes, 1)),
                panels = (rows + panel - 1) / panel;
  const bool even = rows % panel == 0 && panels % num_threads() == 0;
  parallel_for(panels, even ? 1 : panels, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin * panel; b < std::min(rows, end * panel); b += panel)
      f(b, std::min(panel, rows - b));
  });
}

// The left or the right half of the columns of a dense matrix, where it lies.
inline Tensor half_of(const Tensor& t, int which) {
  const int64_t rows = t.size(0), both = t.size(1);
  return Tensor::view_of(
      t.storage(), t.dtype(), {rows, both / 2}, {both, 1}, t.offset() + which * (both / 2));
}
// (a | b), in plain ops.
inline Tensor side_by_side(const Tensor& a, const Tensor& b) {
  const int64_t cols = a.size(1), all = cols + b.size(1);
  return add(apply1(kPadSliceOp, {a}, PadSliceAttrs{1, 0, all}),
      apply1(kPadSliceOp, {b}, PadSliceAttrs{1, cols, all}));
}

}  // namespace sinter
