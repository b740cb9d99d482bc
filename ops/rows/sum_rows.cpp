// sum_rows: [.., O] -> [O], the sum over all but the last dim; the bias gradient. bf16 gives f32.
#include "ops/kernels.h"
#include "ops/ops.h"
#include "ops/rows/row_loops.h"

namespace sinter {
namespace {

void cpu(const Call& call) {
  const Tensor& x = call.in[0];
  const int64_t cols = x.size(-1), rows = cols ? x.numel() / cols : 0;
  visit_float(x.dtype(), [&]<class T>(T) {
    using V = compute_t<T>;
    // Whole cache lines of sums per thread.
    parallel_for((cols + kLanes - 1) / kLanes, grain_of(rows * kLanes * int64_t(sizeof(T))),
        [&](int64_t begin, int64_t end) {
          const int64_t c = begin * kLanes;
          column_sums<V>(x.data<T>() + c, rows, cols, std::min(end * kLanes, cols) - c,
              call.out[0].data<V>() + c);
        });
  });
}

Tensors backward(const Saved& saved, Operands grads) {
  const Tensor& x = saved.in[0];
  return {broadcast_to(
      grads[0].dtype() == x.dtype() ? grads[0] : cast(grads[0], x.dtype()), x.shape())};
}

}  // namespace

SINTER_COLUMN_SUMS(, float, float);
SINTER_COLUMN_SUMS(, double, double);
SINTER_COLUMN_SUMS(, float, bf16);

const OpDef kSumRowsOp{.name = "sum_rows",
    .formula = "y = sum of all rows of x",
    .signature = kSignature<kSumRowsOp>,
    .cost = cost_per_element<1>,
    .cpu = cpu,
    SINTER_KERNELS(sum_rows),
    .backward = backward};

Tensor sum_rows(const Tensor& x, Role role) { return apply1(kSumRowsOp, {x}, {}, role); }

}  // namespace sinter
