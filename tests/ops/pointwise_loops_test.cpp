// The walk over operands of any strides (ops/pointwise/pointwise_loops.h): results of several
// blocks, of short and of long rows, against elements that are looked up one by one.
#include <gtest/gtest.h>

#include "core/parallel.h"
#include "ops/ops.h"
#include "tests/test_util.h"

namespace sinter {
namespace {

// Element i, counted row-major, of what the operand is broadcast to.
template <class T> double element(const Tensor& t, const Shape& shape, int64_t i) {
  int64_t offset = 0;
  for (int d = shape.rank() - 1; d >= 0; i /= shape[d], --d) {
    const int at = d - (shape.rank() - t.rank());
    if (at >= 0 && t.size(at) > 1) offset += i % shape[d] * t.strides()[at];
  }
  return double(t.data<T>()[offset]);
}

// Operands of that shape or broadcast to it, dense and turned.
Tensors operands_of(const Shape& shape, DType type, uint64_t seed) {
  const auto make = [&](const Shape& of) { return cast(sample_tensor(of, seed++), type); };
  Shape rows = shape, last{shape[-1]}, turned = shape;
  rows[-1] = 1;
  Tensors all{make(shape), make(last), make(rows), make({})};
  if (shape.rank() < 2) return all;
  std::swap(turned[-1], turned[-2]);
  all.push_back(transpose(make(turned)));
  return all;
}

template <class T> void check(const Shape& shape) {
  const DType type = dtype_of<T>;
  for (const Tensor& a : operands_of(shape, type, 1)) {
    for (const Tensor& b : operands_of(shape, type, 7)) {
      const Tensor condition = cast(gt(a, 0 * a), DType::u8);
      const Tensor difference = sub(a, b), chosen = where(condition, a, b);
      const Shape& got = difference.shape();
      for (int64_t i = 0; i < difference.numel(); ++i) {
        const double x = element<T>(a, got, i), y = element<T>(b, got, i);
        ASSERT_EQ(double(difference.data<T>()[i]), double(T(compute_t<T>(x) - compute_t<T>(y))))
            << a.describe() << " and " << b.describe() << ", element " << i;
        ASSERT_EQ(double(chosen.data<T>()[i]), x > 0 ? x : y)
            << a.describe() << " and " << b.describe() << ", element " << i;
      }
    }
  }
}

TEST(PointwiseLoops, ReadWhatTheStridesSay) {
  const int threads = num_threads();
  for (const int some : {1, 3}) {
    set_num_threads(some);
    for (const Shape& shape : {Shape{3001}, Shape{700, 7}, Shape{5, 700}, Shape{2100, 1},
             Shape{2, 3, 1100}, Shape{40, 9, 8}, Shape{1, 1}, Shape{3, 0}, Shape{40000, 3}}) {
      SCOPED_TRACE(shape.str());
      check<float>(shape);
      check<double>(shape);
      check<bf16>(shape);
    }
  }
  set_num_threads(threads);
}

}  // namespace
}  // namespace sinter
