// A 2-D tensor as a GEMM operand: dense rows, or the transposed view of such, are taken as they
// are; other strides are copied dense.
#pragma once

#include <optional>

#include "core/device/cpu_gemm.h"
#include "core/tensor.h"

namespace sinter {

// A dense copy of a matrix of the CPU, in memory that the thread keeps for its next copy: nothing
// is allocated once it has grown. Copies of one thread must end in the reverse order of their
// making.
class DenseCopy {
 public:
  explicit DenseCopy(const Tensor& matrix);
  ~DenseCopy();
  DenseCopy(const DenseCopy&) = delete;
  DenseCopy& operator=(const DenseCopy&) = delete;
  const void* data() const { return data_; }

 private:
  void* data_;
};

struct MatrixView {
  explicit MatrixView(const Tensor& t);
  // Taken as it is? A copy is made by the host: REQUIRES a tensor of the CPU then.
  static bool takes(const Tensor& t);
  const void* data = nullptr;
  int64_t rows = 0, cols = 0;
  DType dtype = DType::f32;
  int64_t ld = 1;      // elements from one stored row to the next
  bool trans = false;  // stored as columns
 private:
  static bool layout(const Tensor& t, int64_t& ld, bool& trans);
  std::optional<DenseCopy> copy_;
};

// The product op(a) op(b) with a dense result of type `out`; op(x) is x or its transpose.
Gemm gemm_of(const MatrixView& a, bool trans_a, const MatrixView& b, bool trans_b, DType out);
// c = op(a) op(b) (+ bias over columns) on the CPU.
void multiply(const MatrixView& a, bool trans_a, const MatrixView& b, bool trans_b,
    const Tensor& bias, DType out, void* c);

}  // namespace sinter
