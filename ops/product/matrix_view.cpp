#include "ops/product/matrix_view.h"

namespace sinter {

bool MatrixView::layout(const Tensor& t, int64_t& ld, bool& trans) {
  const int64_t rows = t.size(-2), cols = t.size(-1);
  trans = false;
  ld = std::max<int64_t>(cols, 1);
  if (t.is_contiguous()) return true;
  const int64_t s0 = rows > 1 ? t.strides()[-2] : std::max<int64_t>(cols, 1),
                s1 = cols > 1 ? t.strides()[-1] : std::max<int64_t>(rows, 1);
  const bool by_rows = (cols <= 1 || s1 == 1) && s0 >= cols,
             by_columns = (rows <= 1 || s0 == 1) && s1 >= rows;
  if (by_rows || by_columns) {
    trans = !by_rows;
    ld = by_rows ? s0 : s1;
  }
  return by_rows || by_columns;
}

bool MatrixView::takes(const Tensor& t) {
  int64_t ld;
  bool trans;
  return layout(t, ld, trans);
}

MatrixView::MatrixView(const Tensor& t)
    : data(t.raw()), rows(t.size(-2)), cols(t.size(-1)), dtype(t.dtype()) {
  if (!layout(t, ld, trans)) data = copy_.emplace(t).data();
}

Gemm gemm_of(const MatrixView& a, bool trans_a, const MatrixView& b, bool trans_b, DType out) {
  const int64_t n = trans_b ? b.rows : b.cols;
  return {.m = trans_a ? a.cols : a.rows,
      .n = n,
      .k = trans_a ? a.rows : a.cols,
      .trans_a = a.trans != trans_a,
      .trans_b = b.trans != trans_b,
      .lda = a.ld,
      .ldb = b.ld,
      .ldc = std::max<int64_t>(n, 1),
      .in = a.dtype,
      .out = out};
}

void multiply(const MatrixView& a, bool trans_a, const MatrixView& b, bool trans_b,
    const Tensor& bias, DType out, void* c) {
  Gemm product = gemm_of(a, trans_a, b, trans_b, out);
  if (bias.defined()) product.bias = bias.dtype();
  gemm(product, a.data, b.data, bias.defined() ? bias.raw() : nullptr, c);
}

}  // namespace sinter
