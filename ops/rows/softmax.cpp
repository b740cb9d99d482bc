// softmax and log_softmax over the last dim, and their backwards. The row maximum is subtracted
// first, so nothing overflows.
//   log_softmax   y = (x - max) - log(sum exp(x - max))        dx = dy - exp(y) sum(dy)
//   softmax       y = exp(x - max) / sum exp(x - max)          dx = y (dy - sum(dy y))
#include "core/math.h"
#include "ops/kernels.h"
#include "ops/ops.h"
#include "ops/rows/row_loops.h"

// B rows, C classes
namespace sinter {
namespace {

Cost forward_cost(Operands in, Operands out, const Attrs&) {
  const int64_t n = in[0].numel();
  return cost_of(5 * n + (n ? n / in[0].size(-1) : 0), in, out);
}

// row_op(tile pointers.., cols): on tiles of the inputs, the result in the first.
template <class RowOp> void on_row_tiles(const Call& call, RowOp&& row_op) {
  const Tensor& y = call.out[0];
  const int64_t cols = y.size(-1), rows = cols ? y.numel() / cols : 0;
  visit_float(y.dtype(), [&]<class T>(T) {
    using V = compute_t<T>;
    for_row_tiles(rows, cols * 4 * int64_t(sizeof(V)), [&](int64_t row, int64_t n) {
      V* a = thread_buffer<V, BufferFor::kernel>(2 * cols * kLanes);
      V* b = a + cols * kLanes;
      load_tile(call.in[0].data<T>() + row * cols, n, cols, a);
      if (call.in.size() > 1) load_tile(call.in[1].data<T>() + row * cols, n, cols, b);
      row_op(a, b, cols);
      store_tile(a, n, cols, y.data<T>() + row * cols);
    });
  });
}

void log_softmax_cpu(const Call& call) {
  on_row_tiles(call, []<class V>(V* x, V*, int64_t cols) {
    alignas(64) V m[kLanes], s[kLanes];
    tile_max(x, cols, m);
    tile_sum(cols, s, [&](int64_t c, int64_t l) { return math::exp(x[c * kLanes + l] - m[l]); });
    for (int64_t l = 0; l < kLanes; ++l) s[l] = math::log(s[l]);
    for (int64_t c = 0; c < cols; ++c) {
      for (int64_t l = 0; l < kLanes; ++l) x[c * kLanes + l] = (x[c * kLanes + l] - m[l]) - s[l];
    }
  });
}

void softmax_cpu(const Call& call) {
  on_row_tiles(call, []<class V>(V* x, V*, int64_t cols) {
    alignas(64) V m[kLanes], s[kLanes];
    tile_max(x, cols, m);
    tile_sum(cols, s, [&](int64_t c, int64_t l) {
      return x[c * kLanes + l] = math::exp(x[c * kLanes + l] - m[l]);
    });
    for (int64_t l = 0; l < kLanes; ++l) s[l] = V(1) / s[l];
    for (int64_t c = 0; c < cols; ++c) {
      for (int64_t l = 0; l < kLanes; ++l) x[c * kLanes + l] *= s[l];
    }
  });
}

void log_softmax_backward_cpu(const Call& call) {
  on_row_tiles(call, []<class V>(V* dy, V* y, int64_t cols) {
    alignas(64) V s[kLanes];
    tile_sum(cols, s, [&](int64_t c, int64_t l) { return dy[c * kLanes + l]; });
    for (int64_t c = 0; c < cols; ++c) {
      for (int64_t l = 0; l < kLanes; ++l)
        dy[c * kLanes + l] -= math::exp(y[c * kLanes + l]) * s[l];
    }
  });
}

void softmax_backward_cpu(const Call& call) {
  on_row_tiles(call, []<class V>(V* dy, V* y, int64_t cols) {
    alignas(64) V s[kLanes];
    tile_sum(cols, s, [&](int64_t c, int64_t l) { return dy[c * kLanes + l] * y[c * kLanes + l]; });
    for (int64_t c = 0; c < cols; ++c) {
      for (int64_t l = 0; l < kLanes; ++l)
        dy[c * kLanes + l] = y[c * kLanes + l] * (dy[c * kLanes + l] - s[l]);
    }
  });
}

template <const OpDef& def> Tensors backward(const Saved& saved, Operands grads) {
  return {apply1(def, {grads[0], saved.out[0]})};
}

}  // namespace

const OpDef kSoftmaxOp{.name = "softmax",
    .formula = "y = e^(x - max) / sum of e^(x - max), by rows",
    .signature = kSignature<kSoftmaxOp>,
    .cost = forward_cost,
    .cpu = softmax_cpu,
    SINTER_KERNELS(softmax),
    .backward = backward<kSoftmaxBackwardOp>,
    .saves_out = 1};
const OpDef kSoftmaxBackwardOp{.name = "softmax_backward",
    .formula = "dx = y (dy - sum(dy y)), by rows",
    .signature = kSignature<kSoftmaxBackwardOp>,
    .cost = cost_per_element<4>,
    .cpu = softmax_backward_cpu,
    SINTER_KERNELS(softmax_backward)};
const OpDef kLogSoftmaxOp{.name = "log_softmax",
    .formula = "y = (x - max) - ln(sum of e^(x - max)), by rows",
    .signature = kSignature<kLogSoftmaxOp>,
    .cost = forward_cost,
    .cpu = log_softmax_cpu,
    SINTER_KERNELS(log_softmax),
    .backward = backward<kLogSoftmaxBackwardOp>,
    .saves_out = 1};
const OpDef kLogSoftmaxBackwardOp{.name = "log_softmax_backward",
    .formula = "dx = dy - e^y sum(dy), by rows",
    .signature = kSignature<kLogSoftmaxBackwardOp>,
    .cost = cost_per_element<4>,
    .cpu = log_softmax_backward_cpu,
    SINTER_KERNELS(log_softmax_backward)};

namespace {
// The op over the last dim, or over `dim`, which is moved there and back.
Tensor over_dim(const OpDef& op, const Tensor& x, int64_t dim) {
  if (dim == -1 || !x.defined() || normalize_dim(op.name.c_str(), dim, x.rank()) == x.rank() - 1)
    return apply1(op, {x});
  return transpose(apply1(op, {transpose(x, dim, -1)}), dim, -1);
}
}  // namespace

Tensor softmax(const Tensor& x, int64_t dim) { return over_dim(kSoftmaxOp, x, dim); }
Tensor log_softmax(const Tensor& x, int64_t dim) { return over_dim(kLogSoftmaxOp, x, dim); }

}  // namespace sinter
