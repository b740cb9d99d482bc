// Matrix products on the CPU: C[m, n] = A B (+ bias over columns), by oneDNN, with own kernels for
// small shapes, where those are faster, and for bf16, by AMX or where the processor has no
// instructions for it; f64, and f32 in a build without oneDNN, by Eigen. The sums' order never
// depends on the number of threads in the own kernels; in oneDNN it may. A is [m, k] or,
// transposed, stored [k, m]; B is [k, n] or, transposed, stored [n, k]. Leading dims count elements
// of the stored rows. Operands are both f32, f64 or bf16; bf16 accumulates in f32 and may store
// f32, and a processor's instructions for it take numbers below 2^-126 as 0. Thread-safe; threads
// by parallel.h.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>

#include "core/device/side.h"
#include "core/dtype.h"

namespace sinter {

struct Gemm {
  int64_t m = 0, n = 0, k = 0;
  bool trans_a = false, trans_b = false;
  int64_t lda = 0, ldb = 0, ldc = 0;
  DType in = DType::f32, out = DType::f32;
  DType bias = DType::f32;  // the type of the bias, if there is one
  auto operator<=>(const Gemm&) const = default;
};

// Products of one kind, count[0] x count[1] of them: how many elements lie from an operand to the
// next, 0 where they share it. Their results lie behind each other, dense.
struct GemmBatch {
  int64_t count[2] = {1, 1}, a[2] = {0, 0}, b[2] = {0, 0};
  SINTER_FN int64_t products() const { return count[0] * count[1]; }
  SINTER_FN int64_t a_of(int64_t p) const { return p / count[1] * a[0] + p % count[1] * a[1]; }
  SINTER_FN int64_t b_of(int64_t p) const { return p / count[1] * b[0] + p % count[1] * b[1]; }
  auto operator<=>(const GemmBatch&) const = default;
};

// bias: n values or nullptr. C must not overlap the operands. k == 0 gives the bias or zero. m or n
// == 0 does nothing.
void gemm(const Gemm& desc, const void* a, const void* b, const void* bias, void* c);

// REQUIRES: ldc is n.
void gemm_batch(const Gemm& desc, const GemmBatch& batch, const void* a, const void* b, void* c);

// A block of a result, rows i.. and columns j.., in memory of the thread that made it; a row is
// `ld` elements behind the one before.
struct GemmBlock {
  int64_t i, j, rows, cols;
  const void* c;
  int64_t ld;
};
using TakeBlock = std::function<void(const GemmBlock&)>;
// gemm() of which nobody keeps C: disjoint blocks that cover it are given to `take`, which must not
// throw, each by the thread that made it; while it lies in the cache, if its terms are few enough.
void gemm_blocks(const Gemm& desc, const void* a, const void* b, const TakeBlock& take,
    const void* bias = nullptr);
// Are the blocks whole rows, near each other, at no more than the price of a product?
bool gemm_blocks_are_rows(const Gemm& desc);
// Measured on a Zen with AVX2: of more terms, the panels of a block's long rows leave the L2 cache.
inline constexpr int64_t kBlockTerms = 64;

// Is a row of C the same to the bit, whichever other rows a product has? Then threads may share
// them out.
bool gemm_rows_stand_alone(const Gemm& desc);

// The library that made the last product of this thread, which is then forgotten; nullptr: none did
// since, as own kernels make it.
const char* take_gemm_library();

// Is it built in?
bool has_onednn();
// "oneDNN 2.6.3" or "Eigen 3.4.0".
const char* gemm_backend_name();

// The products behind gemm(), each with its contract; for gemm() and its tests only. m, n, k >= 1
// here and leading dims are checked.
namespace detail {

// Where an operand's element lies.
inline const void* at(const void* p, DType type, int64_t element) {
  return static_cast<const char*>(p) + element * int64_t(size_of(type));
}
inline void* at(void* p, DType type, int64_t element) {
  return const_cast<void*>(at(const_cast<const void*>(p), type, element));
}

// gemm() of a build without oneDNN, and what that does not take. REQUIRES: k >= 1.
void gemm_without_onednn(const Gemm& desc, const void* a, const void* b, const void* bias, void* c);
// f32 or f64, whole operands of one type; any shape.
void gemm_eigen(const Gemm& desc, const void* a, const void* b, const void* bias, void* c);
const char* eigen_name();

// From how many products m n k on, and with B as it is how long a longest side, oneDNN's BLAS
// kernel beats its matmul: large products whose B lies in long rows (Ice Lake, 2 threads, 2048 x
// 3072 x 768: 100 GFLOP/s by matmul, 210 by sgemm). Tests ask for it where the products are few.
struct SgemmFrom {
  double products_of_transposed = 0x1p33, products = 0x1p29;
  int64_t side = 3072;
};
// False if oneDNN has no such product (nothing is written then).
bool gemm_onednn(const Gemm& desc, const void* a, const void* b, const void* bias, void* c,
    const SgemmFrom& from = {});
bool gemm_onednn(const Gemm& desc, const GemmBatch& batch, const void* a, const void* b, void* c);
bool onednn_multiplies_bf16();  // has this processor instructions for it?
const char* onednn_name();      // "oneDNN 2.6.3", or nullptr where the build lacks it

// Own kernels for the shapes in which a library's call, its packing or its fork costs more than it
// gains.
bool gemm_small_fits(const Gemm& desc);
// Any shape and layout of f32 or, without a batch, bf16; bias and C are f32 with either.
void gemm_small(const Gemm& desc, const void* a, const void* b, const float* bias, float* c,
    const GemmBatch& batch = {});
// False if a block would be all of C, of few rows or more terms: nothing is done then.
bool gemm_small_blocks(const Gemm& desc, const void* a, const void* b, const TakeBlock& take);

// Own products of bf16 by the processor's instructions for it; false where it has none, or a
// library is faster. With `take`, f32 blocks of C are given to it.
bool gemm_bf16_fits(const Gemm& desc, bool in_blocks = false);
bool gemm_bf16_blocks_are_rows(const Gemm& desc);
void gemm_bf16(const Gemm& desc, const void* a, const void* b, const void* bias, void* c,
    const GemmBatch& batch = {}, const TakeBlock* take = nullptr);

}  // namespace detail

}  // namespace sinter
