// A product with an end: what linear_act, input_grad_act, gated_linear_backward, conv_act,
// conv_norm_act and product_chain are. For their kernels and for the rule that finds them
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
//   steps (ops/pointwise/chain.h) whose operand 0 is the sums. Fused ops with a name of their own
//   are rows: the attributes say which program they mean.
#pragma once

#include "ops/fused/activation.h"
#include "ops/ops.h"
#include "ops/product/matrix_view.h"
#include "ops/rows/row_loops.h"

namespace sinter {

//   The running statistics of batch_norm2d_eval are numbers of a channel that do not depend on x:
//       scale = weight / sqrt(running_var + eps)
//       y = conv2d(x, W) scale + (b - running_mean) scale + bias
//   A convolution takes them in (`normed`) before its program runs: on the CPU into its weights and
//   its bias, in a kernel into the sums of a channel.
struct ProductEnd {
  ProductKind product;
  ChainProgram program;
  // Inputs of the op: a, b, those of batch_norm2d_eval behind its x if `normed`, then the bias if
  // `biased`, then operands 1.. of the program.
  bool biased = false;
  bool halves = false;  // both results are the halves of one's columns
  int64_t stride_h = 1, stride_w = 1, pad_h = 0, pad_w = 0;
  bool normed = false;
  double eps = 0;  // of the norm

  size_t bias_at() const { return normed ? 6 : 2; }
  size_t first_operand() const { return bias_at() + (biased ? 1 : 0); }
  Tensor bias(Operands in) const { return biased ? optional_input(in, bias_at()) : Tensor(); }
  // Of the inputs those behind the product, operands 1.. of the program.
  Operands operands(Operands in) const { return in.subspan(std::min(first_operand(), in.size())); }
};
ProductEnd end_of(const LinearActAttrs& attrs);
ProductEnd end_of(const InputGradActAttrs& attrs);
ProductEnd end_of(const GluAttrs& attrs);  // gated_linear_backward's
ProductEnd end_of(const ConvActAttrs& attrs);
ProductEnd end_of(const ConvNormActAttrs& attrs);
ProductEnd end_of(const ProductChainAttrs& attrs);

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

// Rows of a [B, H] tensor on the CPU: taken where they lie if the elements of a row are neighbours,
// else copied.
template <class T> struct RowsOf {
  explicit RowsOf(const Tensor& t) : data(t.data<T>()), step(t.strides()[0]) {
    if (t.size(1) <= 1 || t.strides()[1] == 1) return;
    data = static_cast<const T*>(copy.emplace(t).data());
    step = t.size(1);
  }
  const T* operator[](int64_t b) const { return data + b * step; }
  const T* data;
  int64_t step;
  std::optional<DenseCopy> copy;
};

// An operand of the steps as [rows, cols], with a stride of 0 along what it is broadcast over.
Tensor expanded(const Tensor& t, int64_t rows, int64_t cols);

// The steps over rows on the CPU, on all threads. T: the type of the results and of the operands
// behind operand 0, which may lie where a result goes; Z its own.
template <class Z, class T> class RowSteps {
 public:
  RowSteps(const ChainProgram& program, Operands operands, std::span<Tensor> results, bool halves)
      : out(results, halves), program_(program), loop_(program), flat_(out.step == out.cols) {
    for (size_t k = 0; k < operands.size(); ++k) {
      operands_[k].emplace(expanded(operands[k], results[0].size(0), out.cols));
      flat_ = flat_ && operands_[k]->step == out.cols;
    }
  }
  // n rows from `first` on; those of operand 0 lie at z, `step` apart.
  void operator()(const Z* z, int64_t step, int64_t first, int64_t n) const {
    const int64_t cols = out.cols;
    const bool flat = flat_ && step == cols;
    const int64_t bytes = int64_t(sizeof(Z)) + chain_flops(program_) +
                          int64_t(sizeof(T)) * (program_.n_inputs + program_.n_outputs - 1);
    parallel_for(n, grain_of(cols * bytes), [&](int64_t begin, int64_t last) {
      const int64_t rows = flat ? last - begin : 1;
      for (int64_t row = begin; row < last; row += rows) {
        const T* in[kChainInputs];
        T* to[kChainOutputs];
        for (int k = 1; k < program_.n_inputs; ++k) in[k - 1] = (*operands_[k - 1])[first + row];
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
  bool flat_;  // all of them, and the results, are dense
};
// f(first row, rows) for panels of rows whose sums, `bytes` a row, stay in the second cache until f
// has done with them; of so many rows that each product is worth its setup.
template <class F> void for_panels(int64_t rows, int64_t bytes, const F& f) {
  constexpr int64_t kLeast = 256, kBytes = 2 << 20;
  const int64_t panel = std::max(kLeast, kBytes / std::max<int64_t>(bytes, 1));
  for (int64_t b = 0; b < rows; b += panel) f(b, std::min(panel, rows - b));
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
