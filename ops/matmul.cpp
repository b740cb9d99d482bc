// matmul: C[M, N] = op(A)[M, K] op(B)[K, N], op(X) = X or X^T. Also the products of linear's
// backward, told apart by their Role.
#include "core/device/cpu_gemm.h"
#include "core/parallel.h"
#include "ops/kernels.h"
#include "ops/matrix_view.h"
#include "ops/structured.h"

namespace sinter {

bool MatrixView::layout(const Tensor& t, int64_t& ld, bool& trans) {
  const int64_t rows = t.size(0), cols = t.size(1);
  const int64_t s0 = rows > 1 ? t.strides()[0] : std::max<int64_t>(cols, 1),
                s1 = cols > 1 ? t.strides()[1] : std::max<int64_t>(rows, 1);
  trans = false;
  ld = std::max<int64_t>(cols, 1);
  if (t.is_contiguous()) return true;
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

MatrixView::MatrixView(const Tensor& t) {
  data = t.raw();
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

DenseCopy::DenseCopy(const Tensor& matrix) {
  CopyMemory& memory = copy_memory;
  if (memory.blocks.size() == memory.live) memory.blocks.emplace_back();
  std::unique_ptr<Storage>& block = memory.blocks[memory.live];
  const size_t bytes = static_cast<size_t>(matrix.numel()) * size_of(matrix.dtype());
  if (!block || block->bytes() < bytes) block = std::make_unique<Storage>(bytes, kCpu);
  data_ = block->data();
  ++memory.live;
  const int64_t cols = matrix.size(1), by_row = matrix.strides()[0], by_col = matrix.strides()[1];
  visit_all(matrix.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const T* from = matrix.data<T>();
    parallel_for(matrix.size(0), grain_of(2 * cols * static_cast<int64_t>(sizeof(T))),
        [&](int64_t begin, int64_t end) {
          T* to = static_cast<T*>(data_) + begin * cols;
          for (int64_t r = begin; r < end; ++r) {
            for (int64_t c = 0; c < cols; ++c) *to++ = from[r * by_row + c * by_col];
          }
        });
  });
}

DenseCopy::~DenseCopy() { --copy_memory.live; }

namespace {

Tensors infer(Operands in, const Attrs& attrs) {
  const auto& [trans_a, trans_b, out] = attrs.as<MatmulAttrs>();
  const Tensor &a = in[0], &b = in[1];
  check_floating("matmul", "a", a);
  check_rank("matmul", "a", a, 2);
  check_rank("matmul", "b", b, 2);
  check_same_dtype("matmul", "a", a, "b", b);
  const int inner_a = trans_a ? 0 : 1, inner_b = trans_b ? 1 : 0;
  SINTER_CHECK(a.size(inner_a) == b.size(inner_b), shape,
      cat("matmul: inner sizes differ: ", describe({{"a", &a}, {"b", &b}}),
          trans_a ? ", a transposed" : "", trans_b ? ", b transposed" : "", "; a.shape[", inner_a,
          "] is ", a.size(inner_a), ", b.shape[", inner_b, "] is ", b.size(inner_b)),
      a.size(inner_a) == b.size(1 - inner_b) ? cat("trans_b = ", trans_b ? "false" : "true") : "");
  SINTER_CHECK(out == a.dtype() || out == wide(a.dtype()), dtype,
      cat("matmul: output type does not fit: ", describe({{"a", &a}, {"b", &b}}), "; out is ",
          name_of(out), ", allowed ", name_of(a.dtype()), " or ", name_of(wide(a.dtype()))));
  return {Tensor::meta({a.size(1 - inner_a), b.size(1 - inner_b)}, out, a.device())};
}

Cost cost(Operands in, Operands out, const Attrs& attrs) {
  return cost_of(2 * out[0].numel() * in[0].size(attrs.as<MatmulAttrs>().trans_a ? 0 : 1), in, out);
}

void cpu(const Call& call) {
  const auto& attrs = call.as<MatmulAttrs>();
  const MatrixView a(call.in[0]), b(call.in[1]);
  const Tensor& c = call.out[0];
  const Gemm desc{.m = c.size(0),
      .n = c.size(1),
      .k = call.in[0].size(attrs.trans_a ? 0 : 1),
      .trans_a = a.trans != attrs.trans_a,
      .trans_b = b.trans != attrs.trans_b,
      .lda = a.ld,
      .ldb = b.ld,
      .ldc = std::max<int64_t>(c.size(1), 1),
      .in = call.in[0].dtype(),
      .out = c.dtype()};
  gemm(desc, a.data, b.data, nullptr, c.raw());
}

Tensors backward(const Saved& saved, Operands grads) {
  const auto& [ta, tb, out] = saved.as<MatmulAttrs>();
  const Tensor &a = saved.in[0], &b = saved.in[1];
  const DType type = a.dtype();
  const Tensor dc = grads[0].dtype() != type ? cast(grads[0], type) : grads[0];
  Tensors result(2);
  if (saved.wants(0))
    result[0] = ta ? matmul_as(b, dc, tb, true, type, Role::none)
                   : matmul_as(dc, b, false, !tb, type, Role::none);
  if (saved.wants(1))
    result[1] = tb ? matmul_as(dc, a, true, ta, type, Role::none)
                   : matmul_as(a, dc, !ta, false, type, Role::none);
  return result;
}

std::vector<Sample> samples() {
  std::vector<Sample> all;
  for (const bool ta : {false, true}) {
    for (const bool tb : {false, true}) {
      const Shape a = ta ? Shape{11, 7} : Shape{7, 11}, b = tb ? Shape{5, 11} : Shape{11, 5};
      all.push_back({.in = {sample_tensor(a, 1), sample_tensor(b, 2)},
          .attrs = MatmulAttrs{ta, tb, DType::f64},
          .what = cat("odd, ", ta, tb)});
    }
  }
  const MatmulAttrs plain{false, false, DType::f64};
  all.push_back({.in = {sample_tensor({1, 17}, 1), sample_tensor({17, 1}, 2)},
      .attrs = plain,
      .what = "one element"});
  all.push_back({.in = {sample_tensor({0, 3}, 1), sample_tensor({3, 4}, 2)},
      .attrs = plain,
      .what = "empty batch"});
  all.push_back({.in = {transpose(sample_tensor({5, 6}, 1)), transpose(sample_tensor({4, 5}, 2))},
      .attrs = plain,
      .what = "transposed views"});
  all.push_back({.in = {broadcast_to(sample_tensor({1, 5}, 1), {3, 5}), sample_tensor({5, 2}, 2)},
      .attrs = plain,
      .what = "spread rows",
      .differentiable = false});
  all.push_back(bad_sample(
      {sample_tensor({3, 4}, 1), sample_tensor({5, 4}, 2)}, plain, "inner sizes differ"));
  all.push_back(
      bad_sample({sample_tensor({3, 4, 5}, 1), sample_tensor({5, 4}, 2)}, plain, "three dims"));
  return all;
}

}  // namespace

const OpDef kMatmulOp{.name = "matmul",
    .min_inputs = 2,
    .max_inputs = 2,
    .attrs = attr_type<MatmulAttrs>(),
    .infer = infer,
    .cost = cost,
    .cpu = cpu,
    .cuda = SINTER_IF_CUDA(on_cuda::matmul),
    .simt = on_simt::matmul,
    .backward = backward,
    .saves_in = 0b11,
    .strided = 0b11,
    .samples = samples};

Tensor matmul(const Tensor& a, const Tensor& b, bool trans_a, bool trans_b) {
  return matmul_as(a, b, trans_a, trans_b, a.defined() ? a.dtype() : DType::f32, Role::none);
}
Tensor matmul_as(
    const Tensor& a, const Tensor& b, bool trans_a, bool trans_b, DType out, Role role) {
  return apply1(kMatmulOp, {a, b}, MatmulAttrs{trans_a, trans_b, out}, role);
}

}  // namespace sinter
