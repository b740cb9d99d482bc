#include "ops/product/gemm_library.h"

#include <atomic>

#include "ops/product/matrix_view.h"

namespace sinter {
namespace {
std::atomic<GemmChoice> choice{GemmChoice::model};
std::atomic<bool> tf32{false};
}  // namespace

bool library_gemm(const Tensor& a, bool trans_a, const Tensor& b, bool trans_b, const Tensor& bias,
    const Tensor& c, const std::function<void()>& own, const GemmEpilogue& epilogue) {
  const int64_t k = a.size(trans_a ? 0 : 1);
  if (choice == GemmChoice::own || k == 0 || c.numel() == 0 || !MatrixView::takes(a) ||
      !MatrixView::takes(b))
    return false;
  const MatrixView va(a), vb(b);
  Gemm gemm = gemm_of(va, trans_a, vb, trans_b, c.dtype());
  if (bias.defined()) gemm.bias = bias.dtype();
  return cublaslt_gemm(
      gemm, va.data, vb.data, bias.defined() ? bias.raw() : nullptr, c.raw(), epilogue, own);
}

void set_allow_tf32(bool allow) { tf32 = allow; }
bool allow_tf32() { return tf32; }
void set_gemm_choice(GemmChoice value) { choice = value; }
GemmChoice gemm_choice() { return choice; }

}  // namespace sinter
