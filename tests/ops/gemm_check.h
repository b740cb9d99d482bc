// Operands and sums for tests of the matrix products on the emulator.
#pragma once

#include <gtest/gtest.h>

#include <cmath>

#include "core/device/memory.h"
#include "core/error.h"
#include "ops/ops.h"
#include "tests/closeness.h"

namespace sinter::gemm_check {

inline constexpr Device kSimt{Device::Type::simt, 0};

// A matrix of numbers in [-1, 1) that `dtype` holds exactly, at [i, j]: base + i * row + j * col of
// a storage whose other elements stay poison.
struct Layout {
  const char* what;
  int64_t row, col, base, elements;
};
inline std::vector<Layout> layouts(int64_t rows, int64_t cols) {
  const int64_t wide = (cols + 8) / 8 * 8 + 16, tall = (rows + 8) / 8 * 8 + 16;
  return {{"rows", cols, 1, 0, rows * cols}, {"columns", 1, rows, 0, rows * cols},
      {"rows, aligned, with gaps", wide, 1, 8, rows * wide + 8},
      {"columns, aligned, with gaps", 1, tall, 8, cols * tall + 8},
      {"rows, not aligned", cols + 3, 1, 1, rows * (cols + 3) + 1},
      {"every third element", 3 * cols + 1, 3, 2, rows * (3 * cols + 1) + 2}};
}

template <class T> Tensor matrix_of(int64_t rows, int64_t cols, const Layout& at, uint32_t seed) {
  const Tensor all = Tensor::empty({std::max<int64_t>(at.elements, 1)}, dtype_of<T>, kSimt);
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < cols; ++j) {
      const uint32_t h = (uint32_t(i * 131 + j) + seed) * 2654435761u;
      all.data<T>()[at.base + i * at.row + j * at.col] = T(float(int(h >> 24) - 128) / 128.0f);
    }
  }
  return Tensor::view_of(all.storage(), dtype_of<T>, {rows, cols}, {at.row, at.col}, at.base);
}
template <class T> Tensor matrix(int64_t rows, int64_t cols, uint32_t seed) {
  return matrix_of<T>(rows, cols, layouts(rows, cols)[0], seed);
}

inline double at(const Tensor& t, int64_t i, int64_t j) {
  const int64_t e = i * t.strides()[0] + j * t.strides()[1];
  return visit_float(t.dtype(), [&]<class T>(T) { return double(t.data<T>()[e]); });
}

struct Sum {
  double value = 0, magnitude = 0;
};
inline Sum sum_of(
    const Tensor& a, const Tensor& b, bool trans_a, bool trans_b, int64_t i, int64_t j) {
  Sum s;
  for (int64_t p = 0; p < a.size(trans_a ? 0 : 1); ++p) {
    const double term =
        (trans_a ? at(a, p, i) : at(a, i, p)) * (trans_b ? at(b, j, p) : at(b, p, j));
    s.value += term;
    s.magnitude += std::abs(term);
  }
  return s;
}
// The bound for the same terms in another order, twice that for tensor cores; u of the stored type.
inline double tolerance(const Sum& s, int64_t k, DType in, DType out) {
  const double sums = in == DType::f64 ? 0x1p-53 : 0x1p-24, u = out == DType::bf16 ? 0x1p-8 : sums;
  return (in == DType::bf16 ? 8 : 4) * std::sqrt(double(k)) * sums * s.magnitude +
         2 * u * std::abs(s.value);
}

// c[i, j] is sum(i, j), up to bound(sum). `compare`: what a comparison must find.
template <class F, class Bound>
void expect_sums(
    const Tensor& c, const F& sum, const Bound& bound, const decltype(test::close)& compare) {
  synchronize(kSimt);
  std::vector<double> wanted;
  test::Within within;
  for (int64_t i = 0; i < c.size(0); ++i) {
    for (int64_t j = 0; j < c.size(1); ++j) {
      const Sum s = sum(i, j);
      wanted.push_back(s.value);
      within.each.push_back(bound(s));
    }
  }
  within.empty = c.numel() == 0;
  EXPECT_TRUE(compare(c, wanted, within)) << c.describe();
}
template <class F> void expect_sums(const Tensor& c, const F& sum, int64_t k, DType in) {
  expect_sums(
      c, sum, [&](const Sum& s) { return tolerance(s, k, in, c.dtype()); }, test::close);
}
inline void expect_product(
    const Tensor& c, const Tensor& a, const Tensor& b, bool trans_a, bool trans_b) {
  const auto sum = [&](int64_t i, int64_t j) { return sum_of(a, b, trans_a, trans_b, i, j); };
  expect_sums(c, sum, a.size(trans_a ? 0 : 1), a.dtype());
}

// An Inf and a NaN among ones reach their own rows of the product.
inline void expect_infinite_rows(Device device) {
  for (const int64_t n : {64, 256}) {
    const Tensor a = Tensor::ones({n, 48}), b = Tensor::ones({48, n});
    a.data<float>()[3 * 48 + 5] = INFINITY;
    a.data<float>()[9 * 48 + 7] = NAN;
    const std::vector<float> c = matmul(a.to(device), b.to(device)).to_vector<float>();
    for (int64_t i = 0; i < n * n; ++i) {
      if (i / n == 9) {
        ASSERT_TRUE(std::isnan(c[size_t(i)])) << i;
      } else {
        ASSERT_EQ(c[size_t(i)], i / n == 3 ? INFINITY : 48) << i;
      }
    }
  }
}

}  // namespace sinter::gemm_check
