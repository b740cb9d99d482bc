// glu: h = act(g) * u, and its backward: du = dh act(g), dg = (dh u) act'(g), act(g) made again
// instead of read. One pass each: glu reads two tensors and writes one, glu_backward reads three
// and writes two. Element by element the plain ops' arithmetic: the same bits in f32.
#include "ops/fused/glu.h"
#include "ops/kernels.h"

// B batch, H hidden
namespace sinter {
namespace {

// The plain ops broadcast; the kernels do not.
std::string limit(Operands in, const Attrs&) {
  for (const Tensor& t : in) {
    if (t.rank() != 2 || t.shape() != in[0].shape())
      return cat("an operand is ", t.describe(), " beside ", in[0].describe(),
          "; all must be of one shape [B, H]");
  }
  return "";
}

template <size_t N> std::vector<Form> forms() {
  std::vector<Form> all;
  for (const Act act : kActivations) {  // others are no gates of the models that we know
    if (act_saves(act) == pointwise::Saves::inputs)
      all.push_back({Tensors(N, Tensor()), GluAttrs{act}});
  }
  for (Form& form : all) {
    for (Tensor& t : form.in) t = Tensor::meta({2, 3});
  }
  return all;
}

// Not the reference's: act(g) and act'(g) share their work.
Cost cost_backward(Operands in, Operands out, const Attrs& attrs) {
  return cost_of(in[0].numel() * (act_backward_flops(attrs.as<GluAttrs>().act) + 2), in, out);
}

void cpu(const Call& call) {
  const int64_t rows = call.out[0].size(0), cols = call.out[0].size(1);
  visit_float(call.out[0].dtype(), [&]<class T>(T) {
    const Rows<T> gate(call.in[0]), up(call.in[1]);
    T* out = call.out[0].data<T>();
    const Act act = call.as<GluAttrs>().act;
    const GluRow<T, T> row = glu_row<T, T>(act);
    const int64_t bytes = 3 * sizeof(T) + act_flops(act);
    for_row_blocks(rows, cols, bytes, [&](int64_t b, int64_t at, int64_t n) {
      row(gate[b] + at, up[b] + at, out + b * cols + at, n);
    });
  });
}

void cpu_backward(const Call& call) {
  const Tensor& dh_in = call.in[0];
  const int64_t rows = dh_in.size(0), cols = dh_in.size(1);
  visit_float(dh_in.dtype(), [&]<class T>(T) {
    const Rows<T> grad(dh_in), gate(call.in[1]), up(call.in[2]);
    const GluGradRows<T> out(call.out, call.as<GluAttrs>().merged);
    const Act act = call.as<GluAttrs>().act;
    const GluGradRow<T, T> row = glu_grad_row<T, T>(act);
    const int64_t bytes = 5 * sizeof(T) + act_backward_flops(act);
    for_row_blocks(rows, cols, bytes, [&](int64_t b, int64_t at, int64_t n) {
      row(grad[b] + at, gate[b] + at, up[b] + at, out.dg + b * out.step + at,
          out.du + b * out.step + at, n);
    });
  });
}

Tensors reference(Operands in, const Attrs& attrs) {
  return {mul(act_reference(attrs.as<GluAttrs>().act, in[0]), in[1])};
}
Tensors reference_backward(Operands in, const Attrs& attrs) {
  const auto& [act, merged] = attrs.as<GluAttrs>();
  const Tensor &dh = in[0], &g = in[1];
  const Tensor dg = act_backward_of_input(act, mul(dh, in[2]), g),
               du = mul(dh, act_reference(act, g));
  if (!merged) return {dg, du};
  return {side_by_side(dg, du)};
}

}  // namespace

template <class T, class In> GluRow<T, In> glu_row(Act act) {
  return visit_act(act, []<class Op>(Op) -> GluRow<T, In> {
    return [](const In* __restrict g, const In* __restrict u, T* __restrict h, int64_t n) {
      using V = compute_t<T>;
      for (int64_t i = 0; i < n; ++i) h[i] = Op().forward(V(g[i])) * V(u[i]);
    };
  });
}
template <class T, class In> GluGradRow<T, In> glu_grad_row(Act act) {
  return visit_act(act, []<class Op>(Op) -> GluGradRow<T, In> {
    return [](const In* __restrict dh, const T* __restrict g, const T* __restrict u,
               T* __restrict dg, T* __restrict du, int64_t n) {
      using V = compute_t<T>;
      for (int64_t i = 0; i < n; ++i) {
        const GluGrads<V> d = glu_grads(Op(), V(dh[i]), V(g[i]), V(u[i]));
        dg[i] = d.dg;
        du[i] = d.du;
      }
    };
  });
}
template GluRow<bf16, float> glu_row(Act);  // for gated_linear
template GluGradRow<bf16, float> glu_grad_row(Act);
template GluRow<float, float> glu_row(Act);
template GluGradRow<float, float> glu_grad_row(Act);
template GluRow<double, double> glu_row(Act);
template GluGradRow<double, double> glu_grad_row(Act);

const OpDef kGluOp{.name = "glu",
    .formula = "h = act(g) u",
    .min_inputs = 2,
    .attrs = attr_type<GluAttrs>(),
    .infer = infer_of<kGluOp>,
    .cost = cost_of_reference<kGluOp>,
    .cpu = cpu,
    SINTER_KERNELS(glu),
    .strided = 0b11,
    .reference = reference,
    .limit = limit,
    .forms = forms<2>};
const OpDef kGluBackwardOp{.name = "glu_backward",
    .formula = "du = dh act(g), dg = dh u act'(g)",
    .min_inputs = 3,
    .attrs = attr_type<GluAttrs>(),
    .infer = infer_of<kGluBackwardOp>,
    .cost = cost_backward,
    .cpu = cpu_backward,
    SINTER_KERNELS(glu_backward),
    .strided = 0b111,
    .reference = reference_backward,
    .limit = limit,
    .forms = forms<3>};

}  // namespace sinter
