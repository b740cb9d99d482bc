// sum, mean and max over any dims; sum_rows, over all but the last: the bias gradient, in f32 for
// bf16; and sum_to, the adjoint of broadcasting. One pass per run of neighbouring reduced dims, the
// last first. The gradient of sum and mean is a view; that of max goes to the first maximum.
#include "ops/kernels.h"
#include "ops/ops.h"
#include "ops/rows/row_loops.h"

namespace sinter {
namespace {

// Bit d: dim d is reduced.
uint32_t reduced_dims(const char* op, const ReduceAttrs& attrs, int rank) {
  uint32_t mask = 0;
  for (const int64_t dim : attrs.dims) {
    const uint32_t bit = 1u << normalize_dim(op, dim, rank);
    SINTER_CHECK(!(mask & bit), shape,
        str(op, ": a dim is given twice: ", attrs.dims.str(), "; each of ", rank, " at most once"));
    mask |= bit;
  }
  return attrs.dims.rank() ? mask : (1u << rank) - 1;
}

Shape reduced_shape(const Shape& x, uint32_t mask, bool keepdim) {
  Shape out;
  for (int d = 0; d < x.rank(); ++d) {
    if (!(mask >> d & 1)) {
      out.push_back(x[d]);
    } else if (keepdim) {
      out.push_back(1);
    }
  }
  return out;
}

template <const OpDef& op> Tensors infer(Operands in, const Attrs& attrs) {
  const Tensor& x = in[0];
  const auto& a = attrs.as<ReduceAttrs>();
  const uint32_t mask = reduced_dims(op.name.c_str(), a, x.rank());
  const Shape shape = reduced_shape(x.shape(), mask, a.keepdim);
  SINTER_CHECK(&op != &kMaxOp || x.numel() > 0 || shape.numel() == 0, shape,
      str("max: nothing to compare: x is ", x.describe(),
          "; every reduced dim must have at least 1 element"));
  return {Tensor::shape_only(shape, x.dtype(), x.device())};
}

Cost mean_cost(Operands in, Operands out, const Attrs&) {
  return cost_of(in[0].numel() + out[0].numel(), in, out);
}

struct Sum {
  template <class V, class T> static V row(const T* x, int64_t n) {
    return row_sum<V>(n, [&](int64_t i) { return V(x[i]); });
  }
  template <class V, class T>
  static void columns(const T* x, int64_t rows, int64_t cols, int64_t n, V* out) {
    column_sums(x, rows, cols, n, out);
  }
};
struct Max {
  template <class V, class T> static V row(const T* x, int64_t n) {
    V m = V(x[0]);
    for (int64_t i = 1; i < n; ++i) m = math::max_or_nan(m, V(x[i]));
    return m;
  }
  template <class V, class T>
  static void columns(const T* x, int64_t rows, int64_t cols, int64_t n, V* out) {
    for (int64_t c = 0; c < n; ++c) out[c] = V(x[c]);
    for (int64_t r = 1; r < rows; ++r) {
      for (int64_t c = 0; c < n; ++c) out[c] = math::max_or_nan(out[c], V(x[r * cols + c]));
    }
  }
};

// [outer, n, inner] -> [outer, inner]
template <class R, class V, class T>
void reduce_middle(const T* x, int64_t outer, int64_t n, int64_t inner, V* y) {
  const int64_t bytes = int64_t(sizeof(T)) * n;
  if (inner == 1) {
    parallel_for(outer, grain_of(bytes), [&](int64_t begin, int64_t end) {
      for (int64_t o = begin; o < end; ++o) y[o] = R::template row<V>(x + o * n, n);
    });
  } else if (outer == 1) {
    for_columns(inner, bytes,
        [&](int64_t first, int64_t width) { R::columns(x + first, n, inner, width, y + first); });
  } else {
    parallel_for(outer, grain_of(bytes * inner), [&](int64_t begin, int64_t end) {
      for (int64_t o = begin; o < end; ++o)
        R::columns(x + o * n * inner, n, inner, inner, y + o * inner);
    });
  }
}

template <class R> void reduce(const Call& call, uint32_t mask, bool mean = false) {
  const Tensor &x = call.in[0], &y = call.out[0];
  if (y.numel() == 0) return;
  visit_float(x.dtype(), [&]<class T>(T) {
    using V = compute_t<T>;
    const V* now = nullptr;  // what is left after the passes so far
    int64_t inner = 1;
    for (int d = x.rank() - 1; d >= 0; --d) {
      if (!(mask >> d & 1)) {
        inner *= x.size(d);
        continue;
      }
      int64_t n = x.size(d);
      for (; d > 0 && mask >> (d - 1) & 1; --d) n *= x.size(d - 1);
      const int64_t outer = numel_of_dims(x, 0, d);
      V* next = now && now == thread_buffer<V, BufferFor::kernel>(0)
                    ? thread_buffer<V, BufferFor::second>(outer * inner)
                    : thread_buffer<V, BufferFor::kernel>(outer * inner);
      if (now) {
        reduce_middle<R>(now, outer, n, inner, next);
      } else {
        reduce_middle<R>(x.data<T>(), outer, n, inner, next);
      }
      now = next;
    }
    const V factor = mean ? V(1) / V(x.numel() / y.numel()) : V(1);
    // A scalar has no dim to reduce, and no `now`.
    for (int64_t i = 0; i < y.numel(); ++i)
      y.data<T>()[i] = T((now ? now[i] : V(x.data<T>()[i])) * factor);
  });
}
uint32_t mask_of(const Call& call) {
  return reduced_dims(call.op.name.c_str(), call.as<ReduceAttrs>(), call.in[0].rank());
}
void sum_cpu(const Call& call) { reduce<Sum>(call, mask_of(call)); }
void mean_cpu(const Call& call) { reduce<Sum>(call, mask_of(call), true); }
void max_cpu(const Call& call) { reduce<Max>(call, mask_of(call)); }
void sum_rows_cpu(const Call& call) {
  const Tensor& x = call.in[0];
  const int64_t cols = x.size(-1), rows = cols ? x.numel() / cols : 0;
  visit_float(x.dtype(),
      [&]<class T>(T) { sum_columns(x.data<T>(), rows, cols, call.out[0].data<compute_t<T>>()); });
}

Tensors sum_rows_grad(const Saved& saved, Operands grads) {
  const Tensor &x = saved.in[0], &dy = grads[0];
  return {broadcast_to(dy.dtype() == x.dtype() ? dy : cast(dy, x.dtype()), x.shape())};
}

// The gradient of every output, spread over what it was reduced from.
Tensor broadcast_grad(const char* op, const Saved& saved, const Tensor& dy) {
  const Tensor& x = saved.in[0];
  return broadcast_to(reshape(dy, reduced_shape(x.shape(),
                                      reduced_dims(op, saved.as<ReduceAttrs>(), x.rank()), true)),
      x.shape());
}
Tensors sum_grad(const Saved& saved, Operands grads) {
  return {broadcast_grad("sum", saved, grads[0])};
}
Tensors mean_grad(const Saved& saved, Operands grads) {
  const double count = double(saved.in[0].numel()) / double(std::max<int64_t>(grads[0].numel(), 1));
  return {broadcast_grad("mean", saved, scale(grads[0], 1 / count))};
}
Tensors max_grad(const Saved& saved, Operands grads) {
  return {apply1(kMaxBackwardOp, {grads[0], saved.in[0], saved.out[0]}, saved.attrs)};
}

void check_max_backward(Operands in, const Attrs& attrs) {
  const auto& a = attrs.as<ReduceAttrs>();
  const Shape wanted =
      reduced_shape(in[1].shape(), reduced_dims("max_backward", a, in[1].rank()), a.keepdim);
  SINTER_CHECK(in[0].shape() == wanted && in[2].shape() == wanted, shape,
      str("max_backward: shapes do not fit: ",
          describe({{"dy", &in[0]}, {"x", &in[1]}, {"y", &in[2]}}), "; dy and y must be ",
          wanted.str()));
}

void max_backward_cpu(const Call& call) {
  const Tensor &dy = call.in[0], &x = call.in[1], &y = call.in[2];
  const uint32_t mask = reduced_dims("max_backward", call.as<ReduceAttrs>(), x.rank());
  visit_float(x.dtype(), [&]<class T>(T) {
    using V = compute_t<T>;
    char* given = thread_buffer<char, BufferFor::kernel>(y.numel());
    std::fill_n(given, y.numel(), char{0});
    std::array<int64_t, kMaxRank> step{}, index{};  // of y, per dim of x
    const int64_t* const size = x.shape().begin();
    int64_t dense = 1, at = 0;
    for (int d = x.rank() - 1; d >= 0; --d) {
      if (mask >> d & 1) continue;
      step[d] = dense;
      dense *= x.size(d);
    }
    for (int64_t i = 0; i < x.numel(); ++i) {
      const V v = V(x.data<T>()[i]), m = V(y.data<T>()[at]);
      const bool take = (v == m || (v != v && m != m)) && !given[at];
      call.out[0].data<T>()[i] = take ? dy.data<T>()[at] : T(0);
      given[at] |= take;
      for (int d = x.rank() - 1; d >= 0; --d) {
        at += step[d];
        if (++index[d] < size[d]) break;
        at -= step[d] * size[d];
        index[d] = 0;
      }
    }
  });
}

}  // namespace

SINTER_COLUMN_SUMS(, float, float);
SINTER_COLUMN_SUMS(, double, double);
SINTER_COLUMN_SUMS(, float, bf16);

const OpDef kSumRowsOp = listed<kSumRowsOp>({.formula = "y = sum of all rows of x",
    .cost = cost_per_element<1>,
    .cpu = sum_rows_cpu,
    .backward = sum_rows_grad});
const OpDef kSumOp = listed<kSumOp>({.formula = "y = sum of x over dims",
    .attrs = attr_type<ReduceAttrs>(),
    .infer = infer<kSumOp>,
    .cost = cost_per_element<1>,
    .cpu = sum_cpu,
    .backward = sum_grad});
const OpDef kMeanOp = listed<kMeanOp>({.formula = "y = mean of x over dims",
    .attrs = attr_type<ReduceAttrs>(),
    .infer = infer<kMeanOp>,
    .cost = mean_cost,
    .cpu = mean_cpu,
    .backward = mean_grad});
const OpDef kMaxOp = listed<kMaxOp>({.formula = "y = maximum of x over dims, and where it is",
    .attrs = attr_type<ReduceAttrs>(),
    .infer = infer<kMaxOp>,
    .cost = cost_per_element<1>,
    .cpu = max_cpu,
    .backward = max_grad,
    .saves_in = 1,
    .saves_out = 1});
const OpDef kMaxBackwardOp =
    listed<kMaxBackwardOp>({.formula = "dx = dy at the first maximum, else 0",
        .attrs = attr_type<ReduceAttrs>(),
        .check = check_max_backward,
        .cost = cost_per_element<0, 1>,
        .cpu = max_backward_cpu});

Tensor sum_rows(const Tensor& x, Role role) { return apply1(kSumRowsOp, {x}, {}, role); }
Tensor sum(const Tensor& x, const Dims& dims, bool keepdim) {
  return apply1(kSumOp, {x}, ReduceAttrs{dims, keepdim});
}
Tensor mean(const Tensor& x, const Dims& dims, bool keepdim) {
  return apply1(kMeanOp, {x}, ReduceAttrs{dims, keepdim});
}
Tensor max(const Tensor& x, const Dims& dims, bool keepdim) {
  return apply1(kMaxOp, {x}, ReduceAttrs{dims, keepdim});
}

Tensor sum_to(const Tensor& x, const Shape& shape) {
  check_defined("sum_to", "x", x);
  if (x.shape() == shape) return x;
  const int extra = x.rank() - shape.rank();
  Dims dims;
  for (int d = 0; d < x.rank(); ++d) {
    const int64_t wanted = d < extra ? 1 : shape[d - extra];
    SINTER_CHECK(extra >= 0 && (wanted == x.size(d) || wanted == 1), shape,
        str("sum_to: shapes do not fit: x is ", x.describe(), ", wanted ", shape.str(), "; at dim ",
            d, " ", x.size(d), " and ", wanted));
    if (wanted != x.size(d) || d < extra) dims.push_back(d);
  }
  const Tensor y = dims.rank() ? sum(x, dims) : x;
  return y.shape() == shape ? y : reshape(y, shape);
}

}  // namespace sinter
