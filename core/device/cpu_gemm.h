// Matrix products on the CPU: C[m, n] = A B (+ bias over columns). The oneDNN backend takes own
// kernels for small shapes, where those are faster; the Eigen backend is Eigen alone. Both are
// tested; a flag chooses. The sums' order never depends on the number of threads in the own
// kernels; in a library it may. A is [m, k] or, transposed, stored [k, m]; B is [k, n] or,
// transposed, stored [n, k]. Leading dims count elements of the stored rows. Operands are both f32,
// f64 or bf16; bf16 accumulates in f32 and may store f32. f64 is always Eigen. Thread-safe; threads
// by parallel.h.
#pragma once

#include <compare>
#include <cstdint>

#include "core/context.h"
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

// bias: n values or nullptr. C must not overlap the operands. k == 0 gives the bias or zero. m or n
// == 0 does nothing.
void gemm(const Gemm& desc, const void* a, const void* b, const void* bias, void* c);

// The backend in use; setting oneDNN where the build lacks it throws not_built. Default: oneDNN
// when built in.
GemmBackend gemm_backend();
void set_gemm_backend(GemmBackend backend);
bool has_onednn();
// "oneDNN 2.6.3" or "Eigen 3.4.0".
const char* gemm_backend_name();

}  // namespace sinter
