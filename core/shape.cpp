#include "core/shape.h"

#include <algorithm>

#include "core/error.h"

namespace sinter {

Dims::Dims(std::span<const int64_t> dims) {
  SINTER_CHECK(dims.size() <= kMaxRank, shape,
      sinter::str("shape: too many dims: ", dims.size(), "; at most ", kMaxRank));
  for (const int64_t dim : dims) dims_[rank_++] = dim;
}

void Dims::throw_no_dim(int i) const {
  throw Error(Error::Kind::shape,
      sinter::str("shape: no such dim: ", i, " of ", str(),
          rank_ > 0 ? sinter::str("; allowed ", -rank_, "..", rank_ - 1) : "; it has none"));
}

void Dims::push_back(int64_t dim) {
  SINTER_CHECK(rank_ < kMaxRank, shape,
      sinter::str("shape: too many dims: ", rank_ + 1, "; at most ", kMaxRank));
  dims_[rank_++] = dim;
}

bool Dims::operator==(const Dims& other) const {
  return std::equal(begin(), end(), other.begin(), other.end());
}

int64_t Dims::numel() const {
  int64_t n = 1;
  for (const int64_t dim : *this) n *= dim;
  return n;
}

std::string Dims::str() const {
  std::string out = "[";
  for (int i = 0; i < rank_; ++i) out += (i ? ", " : "") + std::to_string(dims_[i]);
  return out + "]";
}

Strides contiguous_strides(const Shape& shape) {
  Strides strides = shape;
  int64_t step = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    strides[i] = step;
    step *= std::max<int64_t>(shape[i], 1);
  }
  return strides;
}

Dims index_of(int64_t at, const Shape& shape) {
  Dims index = shape;
  for (int d = shape.rank() - 1; d >= 0; at /= shape[d], --d) index[d] = at % shape[d];
  return index;
}

int64_t extent_of(const Shape& shape, const Strides& strides) {
  if (shape.numel() == 0) return 0;
  int64_t extent = 1;
  for (int i = 0; i < shape.rank(); ++i) extent += (shape[i] - 1) * strides[i];
  return extent;
}

void check_shape(const char* op, const Shape& shape) {
  int64_t n = 1;
  for (const int64_t dim : shape) {
    SINTER_CHECK(
        dim >= 0, shape, str(op, ": negative size: ", shape.str(), "; every size must be >= 0"));
    SINTER_CHECK(
        !__builtin_mul_overflow(n, std::max<int64_t>(dim, 1), &n) && n <= (int64_t{1} << 48), shape,
        str(op, ": too many elements: ", shape.str(), "; at most 2^48"));
  }
}

Shape broadcast_shapes(const char* op, const Shape& a, const Shape& b) {
  const int rank = std::max(a.rank(), b.rank());
  Shape out;
  for (int i = 0; i < rank; ++i) {
    const int ia = i - (rank - a.rank()), ib = i - (rank - b.rank());
    const int64_t da = ia < 0 ? 1 : a[ia], db = ib < 0 ? 1 : b[ib];
    SINTER_CHECK(da == db || da == 1 || db == 1, shape,
        str(op, ": shapes do not broadcast: ", a.str(), " and ", b.str(), "; at dim ", i, " ", da,
            " and ", db, " differ and neither is 1"));
    out.push_back(da == 1 ? db : da);
  }
  return out;
}

bool broadcasts_to(const Shape& from, const Shape& shape) {
  const int extra = shape.rank() - from.rank();
  bool fits = extra >= 0;
  for (int d = 0; fits && d < from.rank(); ++d) fits = from[d] == 1 || from[d] == shape[d + extra];
  return fits;
}

int normalize_dim(const char* op, int64_t dim, int rank) {
  SINTER_CHECK(dim >= -rank && dim < rank, shape,
      str(op, ": no such dim: ", dim, " of a tensor of rank ", rank, "; allowed ", -rank, "..",
          rank - 1));
  return int(dim < 0 ? dim + rank : dim);
}

}  // namespace sinter
