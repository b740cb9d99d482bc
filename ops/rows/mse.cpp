// mse: x and target [B, ..] to one loss per row: the mean of (x - target)^2 over the row. dx = 2
// dloss (x - target) / D; d target = -dx.
#include "ops/kernels.h"
#include "ops/ops.h"
#include "ops/rows/row_cpu.h"

// B rows, D values per row
namespace sinter {
namespace {

Cost cost(Operands in, Operands out, const Attrs&) {
  return cost_of(3 * in[0].numel() + out[0].numel(), in, out);
}

void cpu(const Call& call) {
  const Tensor& x = call.in[0];
  const int64_t n = numel_of_dims(x, 1);
  visit_float(x.dtype(), [&]<class T>(T) {
    using V = compute_t<T>;
    parallel_for(x.size(0), grain_of(2 * n * int64_t(sizeof(T))), [&](int64_t begin, int64_t end) {
      for (int64_t b = begin; b < end; ++b) {
        const T *p = x.data<T>() + b * n, *q = call.in[1].data<T>() + b * n;
        call.out[0].data<V>()[b] = row_sum<V>(n, [&](int64_t i) {
          return on_cpu::square_of_difference(V(p[i]), V(q[i]));
        }) / V(n);
      }
    });
  });
}

Tensors backward(const Saved& saved, Operands grads) {
  const Tensor &x = saved.in[0], &target = saved.in[1];
  Tensors out(2);
  if (saved.wants(0)) out[0] = apply1(kMseBackwardOp, {grads[0], x, target});
  if (saved.wants(1)) out[1] = apply1(kMseBackwardOp, {grads[0], target, x});
  return out;
}

Cost backward_cost(Operands in, Operands out, const Attrs&) {
  Cost c = cost_of(2 * in[1].numel() + in[0].numel(), in.subspan(1), out);
  c.bytes_read += bytes_unless_broadcast(in[0]);
  return c;
}

void backward_cpu(const Call& call) {
  const Tensor &dloss = call.in[0], &x = call.in[1];
  const int64_t n = numel_of_dims(x, 1), step = dloss.strides()[0];
  visit_float(x.dtype(), [&]<class T>(T) {
    visit_float(dloss.dtype(), [&]<class D>(D) {
      using V = compute_t<T>;
      const auto* d = dloss.data<D>();
      parallel_for(
          x.size(0), grain_of(3 * n * int64_t(sizeof(T))), [&](int64_t begin, int64_t end) {
            for (int64_t b = begin; b < end; ++b) {
              const V g = V(d[b * step]) * (V(2) / V(n));
              const T *p = x.data<T>() + b * n, *q = call.in[2].data<T>() + b * n;
              T* out = call.out[0].data<T>() + b * n;
              for (int64_t i = 0; i < n; ++i) out[i] = T(on_cpu::mse_gradient(g, V(p[i]), V(q[i])));
            }
          });
    });
  });
}

}  // namespace

const OpDef kMseOp{.name = "mse",
    .formula = "loss = mean((x - target)^2), by rows",
    .signature = kSignature<kMseOp>,
    .cost = cost,
    .cpu = cpu,
    SINTER_KERNELS(mse),
    .backward = backward,
    .saves_in = 0b11};
const OpDef kMseBackwardOp{.name = "mse_backward",
    .formula = "dx = 2 dloss (x - target) / D, dtarget = -dx",
    .signature = kSignature<kMseBackwardOp>,
    .cost = backward_cost,
    .cpu = backward_cpu,
    SINTER_KERNELS(mse_backward),
    .strided = 0b001};

Tensor mse(const Tensor& x, const Tensor& target) { return apply1(kMseOp, {x, target}); }

}  // namespace sinter
