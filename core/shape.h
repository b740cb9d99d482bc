// Shape and strides: up to kMaxRank sizes held inline, so a copy allocates nothing. Sizes and
// strides count elements.
#pragma once

#include <array>
#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

namespace sinter {

inline constexpr int kMaxRank = 8;

class Dims {
 public:
  Dims() = default;
  Dims(std::initializer_list<int64_t> dims) : Dims(std::span(dims.begin(), dims.size())) {}
  // One size, or one dim: zeros(5), sum(x, 1).
  template <std::integral I>
    requires(!std::same_as<I, bool>)
  Dims(I dim) : Dims({int64_t(dim)}) {}  // NOLINT: meant to be implicit
  // Throws shape if there are more than kMaxRank.
  explicit Dims(std::span<const int64_t> dims);

  int rank() const { return rank_; }
  // i may be negative: -1 is the last. Throws shape unless -rank <= i < rank.
  int64_t operator[](int i) const { return dims_[place(i)]; }
  int64_t& operator[](int i) { return dims_[place(i)]; }
  const int64_t* begin() const { return dims_.data(); }
  const int64_t* end() const { return dims_.data() + rank_; }
  void push_back(int64_t dim);
  bool operator==(const Dims& other) const;
  // The product of all sizes; 1 for rank 0.
  int64_t numel() const;
  // "[64, 784]"
  std::string str() const;

 private:
  size_t place(int i) const {
    const int at = i < 0 ? i + rank_ : i;
    if (at < 0 || at >= rank_) [[unlikely]]
      throw_no_dim(i);
    return size_t(at);
  }
  [[noreturn]] void throw_no_dim(int i) const;

  std::array<int64_t, kMaxRank> dims_{};
  int32_t rank_ = 0;
};
using Shape = Dims;
using Strides = Dims;

// Row-major strides of a dense tensor.
Strides contiguous_strides(const Shape& shape);
// Of the element that is number `at` in row-major order.
Dims index_of(int64_t at, const Shape& shape);
// Elements from the first to the last that the strides reach, both counted; 0 if there is none.
int64_t extent_of(const Shape& shape, const Strides& strides);
// Checks sizes >= 0 and that the element count fits int64; throws shape, naming `op`.
void check_shape(const char* op, const Shape& shape);
// The common shape by NumPy's rule (align right; 1 stretches); throws shape, naming `op` and both.
Shape broadcast_shapes(const char* op, const Shape& a, const Shape& b);
// Is `shape` the common shape of `from` and itself?
bool broadcasts_to(const Shape& from, const Shape& shape);
// dim in -rank..rank-1 -> 0..rank-1; throws shape, naming `op`.
int normalize_dim(const char* op, int64_t dim, int rank);

}  // namespace sinter
