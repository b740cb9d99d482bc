// glu: h = act(g) * u, and its backward: du = dh act(g), dg = (dh u) act'(g), act(g) made again
// instead of read. One pass each: glu reads two tensors and writes one, glu_backward reads three
// and writes two. Element by element the plain ops' arithmetic: the same bits in f32.
#include "ops/fused/glu.h"
#include "ops/kernels.h"

// B batch, H hidden
namespace sinter {
namespace {

void check(const char* op, Operands in, const char* const* names) {
  check_floating(op, names[0], in[0]);
  for (size_t i = 0; i < in.size(); ++i) {
    check_rank(op, names[i], in[i], 2);
    check_same_dtype(op, names[0], in[0], names[i], in[i]);
    SINTER_CHECK(in[i].shape() == in[0].shape(), shape,
        cat(op, ": shapes differ: ", describe({{names[0], &in[0]}, {names[i], &in[i]}}),
            "; they must be equal"));
  }
}

Tensors infer(Operands in, const Attrs&) {
  static constexpr const char* kNames[] = {"g", "u"};
  check("glu", in, kNames);
  return {meta_like(in[0])};
}
Tensors infer_backward(Operands in, const Attrs& attrs) {
  static constexpr const char* kNames[] = {"dh", "g", "u"};
  check("glu_backward", in, kNames);
  if (!attrs.as<GluAttrs>().merged) return {meta_like(in[0]), meta_like(in[0])};
  return {Tensor::meta({in[0].size(0), 2 * in[0].size(1)}, in[0].dtype(), in[0].device())};
}

Cost cost(Operands in, Operands out, const Attrs& attrs) {
  return cost_of(in[0].numel() * (act_flops(attrs.as<GluAttrs>().act) + 1), in, out);
}
Cost cost_backward(Operands in, Operands out, const Attrs& attrs) {
  return cost_of(in[0].numel() * (act_backward_flops(attrs.as<GluAttrs>().act) + 2), in, out);
}

void cpu(const Call& call) {
  const int64_t rows = call.out[0].size(0), cols = call.out[0].size(1);
  visit_float(call.out[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    using V = compute_t<T>;
    const Rows<T> gate(call.in[0]), up(call.in[1]);
    T* out = call.out[0].data<T>();
    visit_act(call.as<GluAttrs>().act, [&](const auto& op) {
      for_row_blocks(rows, cols, 3 * sizeof(T) + op.flops, [&](int64_t b, int64_t at, int64_t n) {
        const T* __restrict g = gate[b] + at, * __restrict u = up[b] + at;
        T* __restrict h = out + b * cols + at;
        for (int64_t i = 0; i < n; ++i) h[i] = op.forward(V(g[i])) * V(u[i]);
      });
    });
  });
}

void cpu_backward(const Call& call) {
  const Tensor& dh_in = call.in[0];
  const int64_t rows = dh_in.size(0), cols = dh_in.size(1);
  visit_float(dh_in.dtype(), [&](auto zero) {
    using T = decltype(zero);
    using V = compute_t<T>;
    const Rows<T> grad(dh_in), gate(call.in[1]), up(call.in[2]);
    const GluGradRows<T> out(call.out, call.as<GluAttrs>().merged);
    visit_act(call.as<GluAttrs>().act, [&](const auto& op) {
      for_row_blocks(rows, cols, 5 * sizeof(T) + op.backward_flops, [&](int64_t b, int64_t at, int64_t n) {
        const T* __restrict dh = grad[b] + at, * __restrict g = gate[b] + at, * __restrict u = up[b] + at;
        T* __restrict dg = out.dg + b * out.step + at, * __restrict du = out.du + b * out.step + at;
        for (int64_t i = 0; i < n; ++i) {
          const GluGrads<V> d = glu_grads(op, V(dh[i]), V(g[i]), V(u[i]));
          dg[i] = d.dg;
          du[i] = d.du;
        }
      });
    });
  });
}

Tensors reference(Operands in, const Attrs& attrs) {
  return {mul(act_reference(attrs.as<GluAttrs>().act, in[0])[0], in[1])};
}
Tensors reference_backward(Operands in, const Attrs& attrs) {
  const auto& [act, merged] = attrs.as<GluAttrs>();
  const Tensor &dh = in[0], &g = in[1];
  const Tensor dg = act_backward_of_input(act, mul(dh, in[2]), g),
               du = mul(dh, act_reference(act, g)[0]);
  if (!merged) return {dg, du};
  return {side_by_side(dg, du)};
}

}  // namespace

const OpDef kGluOp{.name = "glu",
    .min_inputs = 2,
    .max_inputs = 2,
    .attrs = attr_type<GluAttrs>(),
    .infer = infer,
    .cost = cost,
    .cpu = cpu,
    .cuda = SINTER_IF_CUDA(on_cuda::glu),
    .simt = on_simt::glu,
    .strided = 0b11,
    .reference = reference};
const OpDef kGluBackwardOp{.name = "glu_backward",
    .min_inputs = 3,
    .max_inputs = 3,
    .attrs = attr_type<GluAttrs>(),
    .infer = infer_backward,
    .cost = cost_backward,
    .cpu = cpu_backward,
    .cuda = SINTER_IF_CUDA(on_cuda::glu_backward),
    .simt = on_simt::glu_backward,
    .strided = 0b111,
    .reference = reference_backward};

}  // namespace sinter
