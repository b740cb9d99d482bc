// embedding: y[n] = weight[token[n]], embedding_add: y[n] = weight[token[n]] + added[n % places],
// and the table's gradient.   N tokens, V rows of D numbers
#include "ops/fused/fused.h"
#include "ops/kernel_args.h"

namespace sinter::SINTER_KERNEL_NS {

constexpr int kBlock = 128, kColumnsPerLane = 4;

// Thread: one number of y. Reads N D numbers and, for each, its token and what is added, of `size`
// numbers; writes N D.
template <class T>
SINTER_KERNEL embedding_rows(int64_t count, int64_t D, int64_t V, int64_t size, In<int32_t> tokens,
    In<T> weight, In<T> added, Out<T> y, uint32_t* faults) {
  const int64_t at = block_x() * threads_per_block() + thread_x();
  if (at >= count) return;
  const int64_t n = at / D, d = at - n * D;
  const int32_t token = tokens[n];
  if (token < 0 || token >= V) {
    fault(faults, Fault::index_out_of_range, n, token, V);
    return;
  }
  const T value = weight[token * D + d];
  y.put(at, added ? T(compute_t<T>(value) + compute_t<T>(added[at % size])) : value);
}

// A warp has a row of the table and 128 of its columns, 4 to a lane: it looks at all tokens, 32 at
// a time, and adds the rows of dy whose token is its own, in their order. So no sum depends on who
// is first. Reads V D / 128 times the N tokens, from the cache, and dy once; writes V D.
template <class T>
SINTER_KERNEL embedding_sums(int64_t N, int64_t D, int64_t V, In<T> dy, In<int32_t> tokens,
    Out<compute_t<T>> dweight, uint32_t* faults) {
  using Sum = compute_t<T>;
  const int64_t row = block_x() * warps_per_block() + warp(),
                first = block_y() * 32 * kColumnsPerLane + lane();
  if (row >= V) return;  // whole warps leave
  Sum sum[kColumnsPerLane] = {};
  for (int64_t begin = 0; begin < N; begin += 32) {
    const int64_t n = begin + lane();
    const int32_t token = n < N ? tokens[n] : static_cast<int32_t>(row) - 1;
    if (row == 0 && n < N && (token < 0 || token >= V))
      fault(faults, Fault::index_out_of_range, n, token, V);
    for (uint32_t mine = ballot(n < N && token == row); mine != 0; mine &= mine - 1) {
      const int64_t from = (begin + first_bit(mine)) * D;
      SINTER_UNROLL
      for (int k = 0; k < kColumnsPerLane; ++k) {
        const int64_t d = first + 32 * k;
        if (d < D) sum[k] += Sum(dy[from + d]);
      }
    }
  }
  SINTER_UNROLL
  for (int k = 0; k < kColumnsPerLane; ++k) {
    const int64_t d = first + 32 * k;
    if (d < D) dweight.put(row * D + d, sum[k]);
  }
}

void embedding(const Call& call) {
  const Tensor &tokens = call.in[0], &weight = call.in[1], &y = call.out[0];
  const Tensor added = optional_input(call.in, 2);
  if (y.numel() == 0) return;
  visit_float(weight.dtype(), [&]<class T>(T) {
    launch<embedding_rows<T>>({blocks_for(y.numel(), kBlock)}, kBlock, 0, y.numel(), weight.size(1),
        weight.size(0), added.defined() ? added.numel() : 1, in<int32_t>(tokens), in<T>(weight),
        in<T>(added), out<T>(y), fault_flag());
  });
}
void embedding_add(const Call& call) { embedding(call); }

void embedding_weight_grad(const Call& call) {
  const Tensor &dy = call.in[0], &tokens = call.in[1], &dweight = call.out[0];
  if (dweight.numel() == 0) return;
  const int64_t rows = dweight.size(0), d = dweight.size(1);
  visit_float(dy.dtype(), [&]<class T>(T) {
    const Grid grid{blocks_for(rows, kBlock / 32), blocks_for(d, 32 * kColumnsPerLane)};
    launch<embedding_sums<T>>(grid, kBlock, 0, tokens.numel(), d, rows, in<T>(dy),
        in<int32_t>(tokens), out<compute_t<T>>(dweight), fault_flag());
  });
}

}  // namespace sinter::SINTER_KERNEL_NS
