// layer_norm over the last dim, of N columns (Ba, Kiros, Hinton, arXiv 1607.06450), and its
// backwards (formulas: ops/rows/row_formulas.h). mean and rstd, one number for each row, are saved
// for them. dweight = sum over the rows of dy n; dbias = sum_rows(dy).
#include "ops/kernels.h"
#include "ops/ops.h"
#include "ops/rows/row_cpu.h"

// N columns
namespace sinter {
namespace {

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

// A thread sums strips of kLanes columns, in runs of 32 rows, so that the error grows as rows / 32.
void weight_grad_cpu(const Call& call) {
  const Tensor& dy = call.in[0];
  const int64_t cols = dy.size(-1), rows = on_cpu::RowShape(dy).rows;
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
            run[l] += V(g[at]) * on_cpu::normalised(V(x[at]), mean[r], rstd[r]);
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
    .cpu = on_cpu::run_op<on_cpu::LayerNorm>,
    SINTER_KERNELS(layer_norm),
    .backward = backward,
    .saves_in = 0b011,
    .saves_out = 0b110};
const OpDef kLayerNormBackwardOp{.name = "layer_norm_backward",
    .formula = "dx = rstd (g - mean(g) - n mean(g n)), g = dy weight, n = (x - mean) rstd",
    .signature = kSignature<kLayerNormBackwardOp>,
    .cost = backward_cost,
    .cpu = on_cpu::run_op<on_cpu::LayerNormBackward>,
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
