// Matrix products by Eigen: the reference, and the only one for f64. Threads are ours: blocks of
// C's longer side.
#define EIGEN_DONT_PARALLELIZE
#pragma GCC diagnostic ignored "-Wuninitialized"  // g++ 12's own AVX-512 header sets off both
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <Eigen/Core>

#include "core/device/cpu_gemm.h"
#include "core/parallel.h"

namespace sinter::detail {
namespace {

template <class T>
using Matrix = Eigen::Map<std::conditional_t<std::is_const_v<T>,
                              const Eigen::Matrix<std::remove_const_t<T>, -1, -1, Eigen::RowMajor>,
                              Eigen::Matrix<T, -1, -1, Eigen::RowMajor>>,
    Eigen::Unaligned, Eigen::OuterStride<>>;

template <class T> void run(const Gemm& desc, const T* a, const T* b, const T* bias, T* c) {
  // One block of rows [i, i + rows) and columns [j, j + cols).
  const auto block = [&](int64_t i, int64_t rows, int64_t j, int64_t cols) {
    Matrix<T> out(c + i * desc.ldc + j, rows, cols, Eigen::OuterStride<>(desc.ldc));
    out.setZero();
    const auto with_lhs = [&](const auto& lhs) {
      if (desc.trans_b) {
        out.noalias() +=
            lhs * Matrix<const T>(b + j * desc.ldb, cols, desc.k, Eigen::OuterStride<>(desc.ldb))
                      .transpose();
      } else {
        out.noalias() += lhs * Matrix<const T>(b + j, desc.k, cols, Eigen::OuterStride<>(desc.ldb));
      }
    };
    if (desc.trans_a) {
      with_lhs(Matrix<const T>(a + i, desc.k, rows, Eigen::OuterStride<>(desc.lda)).transpose());
    } else {
      with_lhs(Matrix<const T>(a + i * desc.lda, rows, desc.k, Eigen::OuterStride<>(desc.lda)));
    }
    if (bias) out.rowwise() += Eigen::Map<const Eigen::Matrix<T, 1, -1>>(bias + j, cols);
  };
  // Strips whose bounds do not depend on the number of threads: the order in which Eigen sums an
  // element depends on the size of the product that it is part of. At most 32, so that packing the
  // other operand for each costs little; an eighth of a byte per product, as gemm_small counts.
  const int64_t side = std::max(desc.m, desc.n), other = std::min(desc.m, desc.n);
  const int64_t strip = std::max<int64_t>(48, (side / 32 + 15) / 16 * 16);
  const int64_t strips = (side + strip - 1) / strip;
  parallel_for(strips, grain_of(strip * other * desc.k / 8), [&](int64_t begin, int64_t end) {
    for (int64_t s = begin; s < end; ++s) {
      const int64_t first = s * strip, count = std::min(strip, side - first);
      if (desc.m >= desc.n) {
        block(first, count, 0, desc.n);
      } else {
        block(0, desc.m, first, count);
      }
    }
  });
}

}  // namespace

void gemm_eigen(const Gemm& desc, const void* a, const void* b, const void* bias, void* c) {
  const auto typed = [&](auto zero) {
    using T = decltype(zero);
    run<T>(desc, static_cast<const T*>(a), static_cast<const T*>(b), static_cast<const T*>(bias),
        static_cast<T*>(c));
  };
  if (desc.in == DType::f64) return typed(double{});
  typed(float{});
}

#define SINTER_TEXT(x) #x
#define SINTER_VERSION(a, b, c) SINTER_TEXT(a) "." SINTER_TEXT(b) "." SINTER_TEXT(c)
const char* eigen_name() {
  return "Eigen " SINTER_VERSION(EIGEN_WORLD_VERSION, EIGEN_MAJOR_VERSION, EIGEN_MINOR_VERSION);
}

}  // namespace sinter::detail
