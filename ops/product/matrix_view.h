// A tensor as a GEMM operand, or as many of them as its dims in front of the last two say: dense
// rows, or the transposed view of such, are taken as they are, however far apart one matrix is from
// the next; other strides are copied dense.
#pragma once

#include <optional>

#include "core/device/cpu_gemm.h"
#include "core/tensor.h"

namespace sinter {

// A dense copy of a tensor of the CPU, of two dims or more, in memory that the thread keeps for its
// next copy: nothing is allocated once it has grown. Copies of one thread must end in the reverse
// order of their making.
class DenseCopy {
 public:
  explicit DenseCopy(const Tensor& t);
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
  // Of `t`, the tensor that this is a view of, as it lies here.
  Strides strides_of(const Tensor& t) const {
    return copy_ ? contiguous_strides(t.shape()) : t.strides();
  }
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
// The products of a and b, of these strides, whose results are c: in the fewest dims.
GemmBatch batch_of(const Tensor& a, const Strides& strides_a, const Tensor& b,
    const Strides& strides_b, const Tensor& c);
// c = op(a) op(b) (+ bias over columns) on the CPU.
void multiply(const MatrixView& a, bool trans_a, const MatrixView& b, bool trans_b,
    const Tensor& bias, DType out, void* c);

}  // namespace sinter
