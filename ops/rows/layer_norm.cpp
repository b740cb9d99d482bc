// layer_norm over the last dim, of N columns (Ba, Kiros, Hinton, arXiv 1607.06450), and its
// backwards. mean and rstd, one number for each row, are saved for them.
//   n = (x - mean) rstd      rstd = 1 / sqrt(mean((x - mean)^2) + eps)
//   y = n weight + bias
//   g = dy weight            dx = rstd (g - mean(g) - n mean(g n))
//   dweight = sum over the rows of dy n                  dbias = sum_rows(dy)
#include "ops/kernels.h"
#include "ops/ops.h"
#include "ops/rows/row_loops.h"

// N columns
namespace sinter {
namespace {

int64_t rows_of(const Tensor& x) { return x.size(-1) ? x.numel() / x.size(-1) : 0; }

void check(Operands, const Attrs& attrs) {
  const double eps = attrs.as<LayerNormAttrs>().eps;
  SINTER_CHECK(eps >= 0, usage, cat("layer_norm: eps is ", eps, "; it must be at least 0"));
}

Cost cost(Operands in, Operands out, const Attrs&) {
  return cost_of(8 * in[0].numel() + 5 * out[1].numel(), in, out);
}
Cost backward_cost(Operands in, Operands out, const Attrs&) {
  return cost_of(11 * in[0].numel() + 2 * in[3].numel(), in, out);
}

void cpu(const Call& call) {
  const Tensor& y = call.out[0];
  const int64_t cols = y.size(-1);
  visit_float(y.dtype(), [&]<class T>(T) {
    using V = compute_t<T>;
    const T *weight = call.in[1].data<T>(), *bias = call.in[2].data<T>();
    const V eps = V(call.as<LayerNormAttrs>().eps);
    const int64_t bytes = 4 * cols * int64_t(sizeof(V));
    for_row_tiles(rows_of(y), bytes, [&](int64_t row, int64_t rows) {
      V* x = thread_buffer<V, BufferFor::kernel>(cols * kLanes);
      load_tile(call.in[0].data<T>() + row * cols, rows, cols, x);
      alignas(64) V mean[kLanes], rstd[kLanes];
      normalise_tile(x, cols, eps, weight, bias, mean, rstd);
      store_tile(x, rows, cols, y.data<T>() + row * cols);
      std::copy_n(mean, rows, call.out[1].data<V>() + row);
      std::copy_n(rstd, rows, call.out[2].data<V>() + row);
    });
  });
}

void backward_cpu(const Call& call) {
  const Tensor& dx = call.out[0];
  const int64_t cols = dx.size(-1);
  visit_float(dx.dtype(), [&]<class T>(T) {
    using V = compute_t<T>;
    const T* weight = call.in[2].data<T>();
    const int64_t bytes = 6 * cols * int64_t(sizeof(V));
    for_row_tiles(rows_of(dx), bytes, [&](int64_t row, int64_t rows) {
      V* g = thread_buffer<V, BufferFor::kernel>(2 * cols * kLanes);  // dy, then g, then dx
      V* n = g + cols * kLanes;                                       // x, then n
      load_tile(call.in[0].data<T>() + row * cols, rows, cols, g);
      load_tile(call.in[1].data<T>() + row * cols, rows, cols, n);
      alignas(64) V mean[kLanes] = {}, rstd[kLanes] = {}, sum[kLanes], product[kLanes];
      std::copy_n(call.in[3].data<V>() + row, rows, mean);
      std::copy_n(call.in[4].data<V>() + row, rows, rstd);
      for (int64_t c = 0; c < cols; ++c) {
        const V w = V(weight[c]);
        for (int64_t l = 0; l < kLanes; ++l) {
          g[c * kLanes + l] *= w;
          n[c * kLanes + l] = (n[c * kLanes + l] - mean[l]) * rstd[l];
        }
      }
      tile_sum(cols, sum, [&](int64_t c, int64_t l) { return g[c * kLanes + l]; });
      tile_sum(cols, product,
          [&](int64_t c, int64_t l) { return g[c * kLanes + l] * n[c * kLanes + l]; });
      for (int64_t l = 0; l < kLanes; ++l) {
        sum[l] /= V(cols);
        product[l] /= V(cols);
      }
      for (int64_t c = 0; c < cols; ++c) {
        for (int64_t l = 0; l < kLanes; ++l) {
          const int64_t at = c * kLanes + l;
          g[at] = rstd[l] * (g[at] - sum[l] - n[at] * product[l]);
        }
      }
      store_tile(g, rows, cols, dx.data<T>() + row * cols);
    });
  });
}

// A thread sums strips of kLanes columns, in runs of 32 rows, so that the error grows as rows / 32.
void weight_grad_cpu(const Call& call) {
  const Tensor& dy = call.in[0];
  const int64_t cols = dy.size(-1), rows = rows_of(dy);
  visit_float(dy.dtype(), [&]<class T>(T) {
    using V = compute_t<T>;
    const T *g = dy.data<T>(), *x = call.in[1].data<T>();
    const V *mean = call.in[2].data<V>(), *rstd = call.in[3].data<V>();
    V* dweight = call.out[0].data<V>();
    const auto sum_strip = [&](int64_t first, int64_t width) {
      alignas(64) V total[kLanes] = {};
      for (int64_t begin = 0; begin < rows; begin += 32) {
        alignas(64) V run[kLanes] = {};
        for (int64_t r = begin; r < std::min(begin + 32, rows); ++r) {
          for (int64_t l = 0; l < width; ++l) {
            const int64_t at = r * cols + first + l;
            run[l] += V(g[at]) * ((V(x[at]) - mean[r]) * rstd[r]);
          }
        }
        for (int64_t l = 0; l < width; ++l) total[l] += run[l];
      }
      std::copy_n(total, width, dweight + first);
    };
    parallel_for((cols + kLanes - 1) / kLanes, grain_of(2 * rows * kLanes * int64_t(sizeof(T))),
        [&](int64_t begin, int64_t end) {
          for (int64_t s = begin; s < end; ++s)
            sum_strip(s * kLanes, std::min(kLanes, cols - s * kLanes));
        });
  });
}

// Of y alone: mean and rstd, which the public function does not give, have none.
Tensors backward(const Saved& saved, Operands grads) {
  const Tensor &dy = grads[0], &x = saved.in[0], &mean = saved.out[1], &rstd = saved.out[2];
  Tensors out(3);
  if (saved.wants(0))
    out[0] = apply1(kLayerNormBackwardOp, {dy, x, saved.in[1], mean, rstd}, {}, Role::dgrad);
  if (saved.wants(1)) out[1] = apply1(kLayerNormWeightGradOp, {dy, x, mean, rstd}, {}, Role::wgrad);
  if (saved.wants(2)) out[2] = sum_rows(dy, Role::bgrad);
  return out;
}

}  // namespace

const OpDef kLayerNormOp{.name = "layer_norm",
    .formula = "y = (x - mean) / sqrt(var + eps) weight + bias, by rows",
    .signature = kSignature<kLayerNormOp>,
    .attrs = attr_type<LayerNormAttrs>(),
    .check = check,
    .cost = cost,
    .cpu = cpu,
    SINTER_KERNELS(layer_norm),
    .backward = backward,
    .saves_in = 0b011,
    .saves_out = 0b110};
const OpDef kLayerNormBackwardOp{.name = "layer_norm_backward",
    .formula = "dx = rstd (g - mean(g) - n mean(g n)), g = dy weight, n = (x - mean) rstd",
    .signature = kSignature<kLayerNormBackwardOp>,
    .cost = backward_cost,
    .cpu = backward_cpu,
    SINTER_KERNELS(layer_norm_backward)};
const OpDef kLayerNormWeightGradOp{.name = "layer_norm_weight_grad",
    .formula = "dweight = sum over rows of dy (x - mean) rstd",
    .signature = kSignature<kLayerNormWeightGradOp>,
    .cost = cost_per_element<4>,
    .cpu = weight_grad_cpu,
    SINTER_KERNELS(layer_norm_weight_grad)};

Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps) {
  return apply(kLayerNormOp, {x, weight, bias}, LayerNormAttrs{eps})[0];
}

}  // namespace sinter
