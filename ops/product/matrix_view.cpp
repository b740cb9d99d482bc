#include "ops/product/matrix_view.h"

#include "core/parallel.h"
#include "ops/op.h"

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
    if (batch.count[known] > 1) {
      // One dim with that behind it?
      const int64_t inner = batch.count[known];
      if (of_a != batch.a[known] * inner || of_b != batch.b[known] * inner) known = 0;
    }
    if (batch.count[known] == 1) batch.a[known] = of_a, batch.b[known] = of_b;
    batch.count[known] *= count;
  }
  return batch;
}

void multiply(const MatrixView& a, bool trans_a, const MatrixView& b, bool trans_b,
    const Tensor& bias, DType out, void* c) {
  Gemm product = gemm_of(a, trans_a, b, trans_b, out);
  if (bias.defined()) product.bias = bias.dtype();
  gemm(product, a.data, b.data, bias.defined() ? bias.raw() : nullptr, c);
}

}  // namespace sinter
