// gather_rows and its adjoint scatter_add_rows. Every element has one owner and sums go in the
// order of the index list: no atomics.
#include "ops/ops.h"
#include "ops/pointwise_kernels.cuh"

// B of the batch, D values per row
namespace sinter::SINTER_KERNEL_NS {

SINTER_DEVICE_FN bool in_range(int64_t i, int64_t n) {
  return static_cast<uint64_t>(i) < static_cast<uint64_t>(n);
}

// y[b, c] = table[index[b], c], c in units of N elements, one to a thread. Reads B rows and the
// index, writes B rows.
template <class T, int N>
SINTER_KERNEL_BOUNDS(kItemBlock)
gather_rows_units(int64_t units, int64_t units_per_row, int64_t rows, In<T> table,
    In<int64_t> index, Out<T> y, uint32_t* flag) {
  for (int64_t i = first_item(); i < units; i += item_step()) {
    const int64_t b = i / units_per_row, row = index[b];
    if (in_range(row, rows)) {
      y.store_vec(
          i * N, table.template load_vec<N>((row * units_per_row + i - b * units_per_row) * N));
    } else {
      fault(flag, Fault::index_out_of_range, b, row, rows);
    }
  }
}

// table[r, c] = sum over b with index[b] = r of rows[b, c], b ascending. A warp owns 32 columns of
// one row of the table and reads the whole index, 32 entries at a time. Reads rows once (all that
// match), the index once per warp; writes the table once.
template <class T>
SINTER_KERNEL_BOUNDS(kItemBlock)
scatter_add_rows_warp(int64_t table_rows, int64_t cols, int64_t count, In<T> rows,
    In<int64_t> index, Out<T> table, uint32_t* flag) {
  const int64_t tiles = blocks_for(cols, 32), task = block_x() * warps_per_block() + warp();
  if (task >= table_rows * tiles) return;  // whole warps
  const int64_t row = task / tiles, column = (task - row * tiles) * 32 + lane();
  T sum = T(0);
  for (int64_t b = 0; b < count; b += 32) {
    const int64_t at = b + lane() < count ? index[b + lane()] : -1;
    if (task == 0 && b + lane() < count && !in_range(at, table_rows))
      fault(flag, Fault::index_out_of_range, b + lane(), at, table_rows);
    uint32_t found = ballot(at == row);
    for (int64_t from = b; found != 0; found >>= 1, ++from) {
      if (found & 1 && column < cols)
        sum = T(compute_t<T>(sum) + compute_t<T>(rows[from * cols + column]));
    }
  }
  if (column < cols) table.put(row * cols + column, sum);
}

void gather_rows(const Call& call) {
  const Tensor &table = call.in[0], &index = call.in[1], &y = call.out[0];
  const int64_t n = y.numel();
  if (n == 0) return;
  const int64_t cols = n / index.numel();
  visit_all(y.dtype(), [&]<class T>(T) {
    constexpr int N = kVec<T>;
    const bool wide = cols % N == 0 && is_aligned<T, N>(table) && is_aligned<T, N>(y);
    with_width<N>(wide, [&]<int M>() {
      launch<gather_rows_units<T, M>>(item_grid(n / M), kItemBlock, 0, n / M, cols / M,
          table.size(0), in<T>(table), in<int64_t>(index), out<T>(y), fault_flag());
    });
  });
}

void scatter_add_rows(const Call& call) {
  const Tensor &rows = call.in[0], &index = call.in[1], &table = call.out[0];
  if (table.numel() == 0) return;
  const int64_t table_rows = table.size(0), cols = table.numel() / table_rows;
  visit_float(table.dtype(), [&]<class T>(T) {
    launch<scatter_add_rows_warp<T>>(
        {blocks_for(table_rows * blocks_for(cols, 32), kItemBlock / 32)}, kItemBlock, 0, table_rows,
        cols, index.numel(), in<T>(rows), in<int64_t>(index), out<T>(table), fault_flag());
  });
}

}  // namespace sinter::SINTER_KERNEL_NS
