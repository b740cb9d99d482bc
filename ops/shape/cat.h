// What cat and pad_slice put side by side, for their kernels.
#pragma once

#include <array>
#include <span>

#include "ops/ops.h"

namespace sinter {

// A row of the result, which is its dims from the one of the op on, is these pieces one behind the
// other: of each operand its next `length` elements, or as many zeros.
struct SideBySide {
  struct Piece {
    const Tensor* x = nullptr;  // nullptr: zeros
    int64_t length = 0;
  };
  explicit SideBySide(const Call& call);
  std::span<const Piece> pieces() const { return {pieces_.data(), n_}; }
  int64_t row;

 private:
  size_t n_ = 0;
  std::array<Piece, kMostCatInputs> pieces_;  // no memory is asked for
};

}  // namespace sinter
