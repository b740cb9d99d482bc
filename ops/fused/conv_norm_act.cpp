// conv_norm_act: y = act(batch_norm2d_eval(conv2d(x, W) + b)). The running statistics of a channel
// do not depend on x, so they are folded into its weights and bias, and one convolution is left:
//   scale = gamma / sqrt(running_var + eps)
//   y = act(conv2d(x, W scale) + (b - running_mean) scale + beta)
#include "ops/fused/activation.h"
#include "ops/image/conv2d_cpu.h"
#include "ops/kernels.h"

namespace sinter {
namespace {

template <class T> void conv_norm_act_of(const Call& call) {
  using V = compute_t<T>;
  const auto& attrs = call.as<ConvNormActAttrs>();
  const Tensor &weight = call.in[1], &y = call.out[0];
  const conv::Correlation g{conv2d_sizes(call.in[0], weight, y, attrs)};
  V *scale = thread_buffer<V, BufferFor::scale>(2 * g.o), *shift = scale + g.o;
  const auto w = conv::weights_of<T>(weight);
  const auto b = conv::bias_of<T>(optional_input(call.in, 6));
  for (int64_t o = 0; o < g.o; ++o) {
    const auto of = [&](size_t i) { return V(call.in[i].data<T>()[o]); };
    scale[o] = of(2) / math::sqrt(of(5) + static_cast<V>(attrs.eps));
    shift[o] = (b(o) - of(4)) * scale[o] + of(3);
  }
  const ChainProgram program = act_program(attrs.act);
  const ChainLoop<V, V> loop(program);
  // The products are of V, not T: a scaled weight is no bf16.
  const conv::LanesProduct<V> product(
      g, [&](int64_t o, int64_t c, int64_t r, int64_t s) { return w(o, c, r, s) * scale[o]; },
      [&](int64_t o) { return shift[o]; });
  conv::correlate_by(product, g, conv::Parts<V>(g, 2 * num_threads()),
      conv::image_source<T>(g, call.in[0].data<T>()), [&](const conv::Part& part, V* z) {
        loop(z, nullptr, &z, g.o * part.rows * g.q * conv::kImages<V>);
        conv::ImageSink<T>{g, y.data<T>()}(part, z);
      });
}
void conv_norm_act_cpu(const Call& call) {
  visit_float(call.out[0].dtype(), [&]<class T>(T) { conv_norm_act_of<T>(call); });
}

Tensors conv_norm_act_reference(Operands in, const Attrs& attrs) {
  const auto& a = attrs.as<ConvNormActAttrs>();
  const Tensor z =
      conv2d(in[0], in[1], optional_input(in, 6), {a.stride_h, a.stride_w, a.pad_h, a.pad_w});
  return {act_reference(a.act, batch_norm2d_eval(z, in[2], in[3], in[4], in[5], a.eps))};
}

std::vector<Form> conv_norm_act_forms() {
  Tensors in{Tensor::meta({2, 3, 7, 6}), Tensor::meta({4, 3, 3, 3})};
  while (in.size() < 7) in.push_back(Tensor::meta({4}));
  const double eps = 4;  // that of a step counts; tests draw a variance, which is above -4
  std::vector<Form> all;
  for (const Act act : kActivations) all.push_back({in, ConvNormActAttrs{.act = act, .eps = eps}});
  all.push_back({in, ConvNormActAttrs{.act = Act::none, .eps = eps}});
  return all;
}

}  // namespace

const OpDef kConvNormActOp{.name = "conv_norm_act",
    .formula = "y = act(batch_norm2d_eval(conv2d(x, W) + b)), as one convolution",
    .min_inputs = 6,
    .max_inputs = 7,
    .attrs = attr_type<ConvNormActAttrs>(),
    .infer = infer_of<kConvNormActOp>,
    .cost = cost_of_reference<kConvNormActOp>,
    .cpu = conv_norm_act_cpu,
    SINTER_KERNELS(conv_norm_act),
    .reference = conv_norm_act_reference,
    .forms = conv_norm_act_forms};

}  // namespace sinter
