// A 2-D tensor as a GEMM operand: dense rows, or the transposed view of such, are taken as they are; other strides are copied dense.
#pragma once

#include "core/tensor.h"

namespace sinter {

struct MatrixView {
  explicit MatrixView(const Tensor& t);
  // Taken as it is? A copy is made by the host: REQUIRES a tensor of the CPU then.
  static bool takes(const Tensor& t);
  const void* data = nullptr;
  int64_t ld = 1;      // elements from one stored row to the next
  bool trans = false;  // stored as columns
 private:
  static bool layout(const Tensor& t, int64_t& ld, bool& trans);
  Tensor dense_;  // keeps the copy alive
};

// Writes x, of any strides, densely to `to`. REQUIRES: room for x.numel() elements of x's type.
void copy_dense(const Tensor& x, void* to);

}  // namespace sinter
