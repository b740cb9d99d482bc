// How operands lie: copies of those that no product takes as they are, and products in fewest dims.
#include "core/parallel.h"
#include "ops/op.h"
#include "ops/product/matrix_view.h"

namespace sinter {
namespace {

// Memory of the thread's copies; the first `live` are in use.
struct CopyMemory {
  std::vector<std::unique_ptr<Storage>> blocks;
  size_t live = 0;
};
thread_local CopyMemory copy_memory;

}  // namespace

DenseCopy::DenseCopy(const Tensor& t) {
  CopyMemory& memory = copy_memory;
  if (memory.blocks.size() == memory.live) memory.blocks.emplace_back();
  std::unique_ptr<Storage>& block = memory.blocks[memory.live];
  const size_t bytes = size_t(t.numel()) * size_of(t.dtype());
  if (!block || block->bytes() < bytes) block = std::make_unique<Storage>(bytes, kCpu);
  data_ = block->data();
  ++memory.live;
  const int64_t cols = t.size(-1), by_col = t.strides()[-1];
  visit_all(t.dtype(), [&]<class T>(T) {
    parallel_for(numel_of_dims(t, 0, t.rank() - 1), grain_of(2 * cols * int64_t(sizeof(T))),
        [&](int64_t begin, int64_t end) {
          T* to = static_cast<T*>(data_) + begin * cols;
          for (int64_t row = begin; row < end; ++row) {
            const T* from = t.data<T>();
            for (int64_t d = t.rank() - 2, left = row; d >= 0; left /= t.size(int(d--)))
              from += left % t.size(int(d)) * t.strides()[int(d)];
            for (int64_t c = 0; c < cols; ++c) *to++ = from[c * by_col];
          }
        });
  });
}

DenseCopy::~DenseCopy() { --copy_memory.live; }

GemmBatch batch_of(const Tensor& a, const Strides& strides_a, const Tensor& b,
    const Strides& strides_b, const Tensor& c) {
  GemmBatch batch;
  for (int d = c.rank() - 3, known = 1; d >= 0; --d) {
    const int64_t count = c.size(d);
    const auto step = [&](const Tensor& t, const Strides& strides) {
      const int i = d - c.rank() + t.rank();
      return i < 0 || t.size(i) == 1 ? 0 : strides[i];
    };
    const int64_t of_a = step(a, strides_a), of_b = step(b, strides_b);
    if (count == 1) continue;
    // One dim with that behind it?
    const int64_t inner = batch.count[known];
    if (inner > 1 && (of_a != batch.a[known] * inner || of_b != batch.b[known] * inner)) known = 0;
    if (batch.count[known] == 1) {
      batch.a[known] = of_a;
      batch.b[known] = of_b;
    }
    batch.count[known] *= count;
  }
  return batch;
}

}  // namespace sinter
