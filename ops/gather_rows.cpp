// gather_rows: table [N, ..] and i64 index [B] to [B, ..], of any element type; batches are drawn
// with it. Its adjoint scatter_add_rows adds rows into a table of zeros: each thread owns columns
// and goes through the rows in order, so the sums are the same in every run.
#include "core/parallel.h"
#include "ops/kernels.h"
#include "ops/ops.h"

// N rows of the table, B of the batch, D values per row
namespace sinter {
namespace {

void check_index(const char* op, const char* name, const Tensor& rows, const Tensor& index) {
  check_has_rows(op, name, rows);
  check_rank(op, "index", index, 1);
  check_dtype(op, "index", index, DType::i64);
}
Shape with_rows(Shape shape, int64_t rows) {
  shape[0] = rows;
  return shape;
}

Tensors infer(Operands in, const Attrs&) {
  check_index("gather_rows", "table", in[0], in[1]);
  return {
      Tensor::shape_only(with_rows(in[0].shape(), in[1].size(0)), in[0].dtype(), in[0].device())};
}
Cost cost(Operands in, Operands out, const Attrs&) {
  return {.flops = 0,
      .bytes_read = bytes_of(out[0]) + bytes_of(in[1]),
      .bytes_written = bytes_of(out[0])};
}

void cpu(const Call& call) {
  const Tensor &table = call.in[0], &index = call.in[1];
  check_range("gather_rows", "index", "at item", index, "rows", table.size(0));
  const int64_t bytes = numel_of_dims(table, 1) * int64_t(size_of(table.dtype()));
  if (bytes == 0) return;
  const char* from = static_cast<const char*>(table.raw());
  char* to = static_cast<char*>(call.out[0].raw());
  parallel_for(index.numel(), grain_of(2 * bytes), [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b)
      std::memcpy(to + b * bytes, from + index.data<int64_t>()[b] * bytes, size_t(bytes));
  });
}

Tensors backward(const Saved& saved, Operands grads) {
  return {
      apply1(kScatterAddRowsOp, {grads[0], saved.in[1]}, ScatterAttrs{saved.in[0].size(0)}), {}};
}

Tensors scatter_infer(Operands in, const Attrs& attrs) {
  check_floating("scatter_add_rows", "rows", in[0]);
  check_index("scatter_add_rows", "rows", in[0], in[1]);
  check_same_rows("scatter_add_rows", "rows", in[0], "index", in[1]);
  return {Tensor::shape_only(
      with_rows(in[0].shape(), attrs.as<ScatterAttrs>().rows), in[0].dtype(), in[0].device())};
}
Cost scatter_cost(Operands in, Operands out, const Attrs&) {
  return cost_of(in[0].numel(), in, out);
}

void scatter_cpu(const Call& call) {
  const Tensor &rows = call.in[0], &index = call.in[1], &table = call.out[0];
  const int64_t n = table.size(0), count = rows.size(0), cols = numel_of_dims(rows, 1);
  check_range("scatter_add_rows", "index", "at item", index, "rows", n);
  visit_float(rows.dtype(), [&]<class T>(T) {
    using V = compute_t<T>;
    parallel_for(
        cols, grain_of((n + 2 * count) * int64_t(sizeof(T))), [&](int64_t begin, int64_t end) {
          for (int64_t r = 0; r < n; ++r)
            std::fill(table.data<T>() + r * cols + begin, table.data<T>() + r * cols + end, T(0));
          for (int64_t b = 0; b < count; ++b) {
            const T* from = rows.data<T>() + b * cols;
            T* to = table.data<T>() + index.data<int64_t>()[b] * cols;
            for (int64_t c = begin; c < end; ++c) to[c] = T(V(to[c]) + V(from[c]));
          }
        });
  });
}
Tensors scatter_grad(const Saved& saved, Operands grads) {
  return {gather_rows(grads[0], saved.in[1]), {}};
}

}  // namespace

const OpDef kGatherRowsOp{.name = "gather_rows",
    .formula = "y[i] = table[index[i]]",
    .min_inputs = 2,
    .max_inputs = 2,
    .infer = infer,
    .cost = cost,
    .cpu = cpu,
    SINTER_KERNELS(gather_rows),
    .backward = backward,
    .saves_in = 0b10};
const OpDef kScatterAddRowsOp{.name = "scatter_add_rows",
    .formula = "table[index[i]] += dy[i], from zeros",
    .min_inputs = 2,
    .max_inputs = 2,
    .attrs = attr_type<ScatterAttrs>(),
    .infer = scatter_infer,
    .cost = scatter_cost,
    .cpu = scatter_cpu,
    SINTER_KERNELS(scatter_add_rows),
    .backward = scatter_grad,
    .saves_in = 0b10};

Tensor gather_rows(const Tensor& table, const Tensor& index) {
  return apply1(kGatherRowsOp, {table, index});
}

}  // namespace sinter
