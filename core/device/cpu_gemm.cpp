#include "core/device/cpu_gemm.h"

#include <algorithm>
#include <utility>

#include "core/parallel.h"
#include "core/thread_buffer.h"

namespace sinter {
namespace {

thread_local const char* made_by = nullptr;  // a library

// dst[i, j] = src[i, j], rounded; src is dense.
void round_rows(int64_t rows, int64_t cols, const float* src, bf16* dst, int64_t ld_dst) {
  parallel_for(rows, grain_of(cols * 4), [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      for (int64_t j = 0; j < cols; ++j) dst[i * ld_dst + j] = src[i * cols + j];
  });
}

// bf16 operands where no library multiplies them: by own kernels, rounded once at the end.
void gemm_by_own_kernels(
    const Gemm& desc, const void* a, const void* b, const void* bias, void* c) {
  Gemm wide = desc;
  wide.out = wide.bias = DType::f32;
  const bool own_c = desc.out == DType::bf16;
  float* sums = static_cast<float*>(c);
  if (own_c) {
    sums = thread_buffer<float, BufferFor::result>(desc.m * desc.n);
    wide.ldc = desc.n;
  }
  if (bias && desc.bias == DType::bf16) {
    float* const wide_bias = thread_buffer<float, BufferFor::bias>(desc.n);
    std::copy_n(static_cast<const bf16*>(bias), desc.n, wide_bias);
    bias = wide_bias;
  }
  detail::gemm_small(wide, a, b, static_cast<const float*>(bias), sums);
  if (own_c) round_rows(desc.m, desc.n, sums, static_cast<bf16*>(c), desc.ldc);
}

// Does no library take what own kernels are faster at, or as fast?
bool may_be_own(const Gemm& desc) {
  return desc.in == DType::bf16 ? !detail::onednn_multiplies_bf16()
                                : desc.in == DType::f32 && has_onednn();
}

// k == 0: the sum is empty.
void bias_only(const Gemm& desc, const void* bias, void* c) {
  visit_float(desc.out, [&](auto out) {
    using Out = decltype(out);
    visit_float(desc.bias, [&](auto bias_type) {
      const auto* shift = static_cast<const decltype(bias_type)*>(bias);
      for (int64_t i = 0; i < desc.m; ++i) {
        Out* row = static_cast<Out*>(c) + i * desc.ldc;
        for (int64_t j = 0; j < desc.n; ++j)
          row[j] = static_cast<compute_t<Out>>(shift ? double(shift[j]) : 0.0);
      }
    });
  });
}

void check(const Gemm& desc, const void* bias) {
  const auto& [m, n, k, trans_a, trans_b, lda, ldb, ldc, in, out, bias_type] = desc;
  SINTER_ASSERT(lda >= (trans_a ? m : k) && ldb >= (trans_b ? k : n) && ldc >= n,
      "gemm: leading dims ", lda, ", ", ldb, ", ", ldc, " for m, n, k of ", m, ", ", n, ", ", k);
  SINTER_ASSERT((in == DType::f32 && out == DType::f32) ||
                    (in == DType::f64 && out == DType::f64) ||
                    (in == DType::bf16 && (out == DType::bf16 || out == DType::f32)),
      "gemm: ", name_of(in), " to ", name_of(out));
  SINTER_ASSERT(!bias || bias_type == in || (in == DType::bf16 && bias_type == DType::f32),
      "gemm: bias ", name_of(bias_type), " on ", name_of(in));
}

}  // namespace

void gemm(const Gemm& desc, const void* a, const void* b, const void* bias, void* c) {
  check(desc, bias);
  if (desc.m <= 0 || desc.n <= 0) return;
  if (desc.k <= 0) return bias_only(desc, bias, c);
  if (detail::gemm_bf16_fits(desc)) return detail::gemm_bf16(desc, a, b, bias, c);
  if (has_onednn() && desc.in != DType::f64) {
    if (detail::gemm_small_fits(desc))
      return detail::gemm_small(
          desc, a, b, static_cast<const float*>(bias), static_cast<float*>(c));
    if (detail::gemm_onednn(desc, a, b, bias, c)) {
      made_by = detail::onednn_name();
      return;
    }
  }
  detail::gemm_without_onednn(desc, a, b, bias, c);
}

void gemm_batch(const Gemm& desc, const GemmBatch& batch, const void* a, const void* b, void* c) {
  check(desc, nullptr);
  const int64_t products = batch.products();
  if (products * desc.m * desc.n <= 0) return;
  if (desc.k > 0 && detail::gemm_bf16_fits(desc))
    return detail::gemm_bf16(desc, a, b, nullptr, c, batch);
  if (has_onednn() && desc.in != DType::f64 && desc.k > 0 && products > 1) {
    if (detail::gemm_small_fits(desc))
      return detail::gemm_small(desc, a, b, nullptr, static_cast<float*>(c), batch);
    if (detail::gemm_onednn(desc, batch, a, b, c)) {
      made_by = detail::onednn_name();
      return;
    }
  }
  using detail::at;
  // A thread makes whole products, or all threads one after the other.
  const int64_t grain =
      products < num_threads() ? products : grain_of(desc.m * desc.n * desc.k / 8);
  parallel_for(products, grain, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p)
      gemm(desc, at(a, desc.in, batch.a_of(p)), at(b, desc.in, batch.b_of(p)), nullptr,
          at(c, desc.out, p * desc.m * desc.n));
  });
}

void gemm_blocks(
    const Gemm& desc, const void* a, const void* b, const TakeBlock& take, const void* bias) {
  check(desc, bias);
  if (desc.m * desc.n <= 0) return;
  if (desc.k > 0 && desc.out == DType::f32 &&
      (detail::gemm_bf16_fits(desc, true) || gemm_blocks_are_rows(desc)))
    return detail::gemm_bf16(desc, a, b, bias, nullptr, {}, &take);
  if (may_be_own(desc) && desc.out == DType::f32 && desc.k > 0 && !bias &&
      detail::gemm_small_blocks(desc, a, b, take))
    return;
  visit_float(desc.out, [&]<class T>(T) {
    T* const c = thread_buffer<T, BufferFor::sums>(desc.m * desc.n);
    Gemm dense = desc;
    dense.ldc = desc.n;
    gemm(dense, a, b, bias, c);
    parallel_for(
        desc.m, grain_of(4 * desc.n * int64_t(sizeof(T))), [&](int64_t begin, int64_t end) {
          take({begin, 0, end - begin, desc.n, c + begin * desc.n, desc.n});
        });
  });
}

bool gemm_blocks_are_rows(const Gemm& desc) { return detail::gemm_bf16_blocks_are_rows(desc); }

bool gemm_rows_stand_alone(const Gemm& desc) {
  if (detail::gemm_bf16_fits(desc, true)) return desc.m > 0 && desc.n > 0 && desc.k > 0;
  return may_be_own(desc) && desc.m > 0 && desc.n > 0 && desc.k > 0 && !desc.trans_b &&
         (desc.in == DType::bf16 || desc.k <= kBlockTerms || detail::gemm_small_fits(desc));
}

void detail::gemm_without_onednn(
    const Gemm& desc, const void* a, const void* b, const void* bias, void* c) {
  if (desc.in == DType::bf16) return gemm_by_own_kernels(desc, a, b, bias, c);
  made_by = detail::eigen_name();
  gemm_eigen(desc, a, b, bias, c);
}

const char* take_gemm_library() { return std::exchange(made_by, nullptr); }

bool has_onednn() { return detail::onednn_name() != nullptr; }

const char* gemm_backend_name() {
  return has_onednn() ? detail::onednn_name() : detail::eigen_name();
}

}  // namespace sinter
