// What classifier_head and row_chain share: a block owns 16 rows, whole. Operands of an mma from
// tiles that lie in shared memory as rows do in memory, and the loss of the rows with its gradient.
#pragma once

#include "ops/product/gemm_launch.cuh"
#include "ops/rows/row.cuh"

// C classes
namespace sinter::SINTER_KERNEL_NS {

inline constexpr int kHeadThreads = 256, kHeadWarps = kHeadThreads / 32, kHeadRows = 16;

// 16 rows from `row` on, columns k.., of a tile whose columns are terms of the sums: one fragment
// of A, or two of B side by side.
template <bool kIsA, class T, class Tile>
SINTER_DEVICE_FN Vec<uint32_t, 4> fragments_of_rows(const Tile& tile, int row, int k) {
  const int quarter = lane() / 8;
  auto f =
      ldmatrix_x4(tile, row + outer_of<kIsA>(quarter) + lane() % 8, k + k_of<kIsA, T>(quarter));
  round_for_mma<kIsA, T>(f);
  return f;
}
// 16 columns from `column` on of a tile whose rows, k.., are terms of the sums: two fragments of B.
template <class T, class Tile>
SINTER_DEVICE_FN Vec<uint32_t, 4> fragments_of_columns(const Tile& tile, int k, int column) {
  const int quarter = lane() / 8;
  Vec<uint32_t, 4> f;
  if constexpr (std::is_same_v<T, bf16>) {
    f = ldmatrix_x4_trans(
        tile, k + k_of<false, T>(quarter) + lane() % 8, column + outer_of<false>(quarter));
  } else {
    SINTER_UNROLL
    for (int q = 0; q < 4; ++q)
      f.v[q] = math::to_bits(
          tile(k + k_of<false, T>(q) + lane() % 4, column + outer_of<false>(q) + lane() / 4));
    round_for_mma<false, T>(f);
  }
  return f;
}
template <class T>
SINTER_DEVICE_FN void mma_twice(
    Vec<float, 4> (&sums)[2], const Vec<uint32_t, 4>& a, const Vec<uint32_t, 4>& b) {
  mma_of<T>(sums[0], a, Vec<uint32_t, 2>{{b.v[0], b.v[1]}});
  mma_of<T>(sums[1], a, Vec<uint32_t, 2>{{b.v[2], b.v[3]}});
}

template <class T> struct LossOperands {
  using V = compute_t<T>;
  Bias<T> bias;
  In<int32_t> labels;
  In<V> grad_output;
  int64_t grad_output_step;
  int classes;
  Target<V> target;
  Out<V> loss;
  Out<T> dz;
  uint32_t* faults;

  LossOperands(const Tensor& weight, const Tensor& bias, const Tensor& labels,
      const Tensor& grad_output, double smoothing, const Tensor& loss, const Tensor& dz)
      : bias(bias),
        labels(in<int32_t>(labels)),
        grad_output(in<V>(grad_output)),
        grad_output_step(grad_output.strides()[0]),
        classes(static_cast<int>(weight.size(0))),
        target(smoothing, weight.size(0)),
        loss(out<V>(loss)),
        dz(out<T>(dz)),
        faults(fault_flag()) {}
};

// The loss of 16 rows from `first` on, of which `rows` exist. A thread has of row thread / 16 the
// classes thread % 16, + 16, ..; kC is C padded to 16 or 64. What it reads beside the logits is on
// its way from the beginning.
template <class T, int kC> class LossOfRows {
  using V = compute_t<T>;
  using Row = WarpRow<V, kC / 16, 16>;

 public:
  using Logits = typename Row::Values;
  SINTER_DEVICE_FN LossOfRows(const LossOperands<T>& x, int64_t first, int64_t rows)
      : x_(x),
        row_{first + thread_x() / 16, x.classes},
        real_(row_.row < rows),
        label_{real_ ? x.labels[row_.row] : 0},
        scale_{real_ ? x.grad_output[row_.row * x.grad_output_step] : V(0)} {
    SINTER_UNROLL
    for (int j = 0; j < kC / 16; ++j)
      bias_.v[j] = column(j) < x.classes ? x.bias.at(column(j)) : V(0);
  }
  static SINTER_DEVICE_FN int column(int j) { return lane() % 16 + 16 * j; }

  // Of the logits without bias. put(row of 16, column, dz), zeros in columns that are no class.
  template <class Put> SINTER_DEVICE_FN void operator()(Logits& z, const Put& put) {
    const int r = thread_x() / 16;
    row_.each([&](auto i) { z.v[i.j] = z.v[i.j] + bias_.v[i.j]; });
    const bool good = row_.check_label(label_, x_.faults);
    SINTER_UNROLL
    for (int j = 0; j < kC / 16; ++j) put(r, column(j), T(0.0f));
    cross_entropy(
        row_, z, label_, x_.target, true, scale_,
        [&](V loss) {
          row_.once([&](auto, int64_t at) {
            if (real_) x_.loss.put(at, good ? loss : V(NAN));
          });
        },
        [&](const auto& dz) {
          row_.each([&](auto i) {
            const T v = T(dz(i));
            put(r, i.c, v);
            if (real_) x_.dz.put(row_.row * row_.cols + i.c, v);
          });
        });
  }

 private:
  const LossOperands<T>& x_;
  Row row_;
  bool real_;
  RowNumber<int> label_;
  RowNumber<V> scale_;
  Logits bias_;
};

}  // namespace sinter::SINTER_KERNEL_NS
