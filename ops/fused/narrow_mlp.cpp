// narrow_mlp: forward, cross entropy and backward of a chain of narrow layers in one launch: no
// activation and no gradient of one is ever in memory. It has no kernel for the CPU, whose caches
// do that for the plain ops.
#include "ops/fused/narrow_mlp.h"

#include "core/device/memory.h"
#include "ops/fused/activation.h"
#include "ops/kernels.h"
#include "ops/ops.h"

// B batch, C classes; layer l is [O, I]
namespace sinter {
namespace {

constexpr size_t kFirst = 3;  // of the layers' operands

size_t layers_of(Operands in) { return (in.size() - kFirst) / 2; }
const Tensor& weight_of(Operands in, size_t l) { return in[kFirst + 2 * l]; }
const Tensor& bias_of(Operands in, size_t l) { return in[kFirst + 2 * l + 1]; }

// Not the reference's, which makes relu's mask again from what relu gave.
Cost cost(Operands in, Operands out, const Attrs& attrs) {
  const auto& [act, smoothing, input_grad] = attrs.as<NarrowMlpAttrs>();
  const int64_t rows = in[0].size(0);
  const size_t layers = layers_of(in);
  int64_t flops = 0;
  for (size_t l = 0; l < layers; ++l) {
    const int64_t outs = weight_of(in, l).size(0), ins = weight_of(in, l).size(1),
                  product = 2 * rows * outs * ins;
    flops += 2 * product + (bias_of(in, l).defined() ? 2 * rows * outs : 0);  // forward, dW
    if (l + 1 < layers) flops += rows * outs * act_flops(act);
    if (l > 0 || input_grad) flops += product + rows * ins * act_backward_flops(act);
  }
  const Tensors logits{
      Tensor::meta({rows, weight_of(in, layers - 1).size(0)}, in[0].dtype(), in[0].device()), in[1],
      in[2]};
  flops += kSoftmaxXentOp.cost(logits, {}, SoftmaxXentAttrs{.label_smoothing = smoothing}).flops;
  Cost c = cost_of(flops, in, out);
  c.bytes_read += bytes_unless_broadcast(in[2]) - bytes_of(in[2]);
  return c;
}

Tensors reference(Operands in, const Attrs& attrs) {
  const auto& [act, smoothing, input_grad] = attrs.as<NarrowMlpAttrs>();
  const size_t layers = layers_of(in);
  Tensors rows{in[0]};
  for (size_t l = 0; l < layers; ++l) {
    const Tensor z = linear(rows[l], weight_of(in, l), bias_of(in, l));
    rows.push_back(l + 1 < layers ? act_reference(act, z)[0] : z);
  }
  const Tensors xent = call_fused(
      kSoftmaxXentOp, {rows[layers], in[1], in[2]}, SoftmaxXentAttrs{.label_smoothing = smoothing});
  Tensor dz = xent[1];
  Tensors gradients;  // of the last layer first, db before dW
  for (size_t l = layers; l-- > 0;) {
    if (bias_of(in, l).defined()) gradients.push_back(sum_rows(dz, Role::bgrad));
    gradients.push_back(matmul_as(dz, rows[l], true, false, dz.dtype(), Role::wgrad));
    if (l == 0 && !input_grad) break;
    const Tensor d = matmul_as(dz, weight_of(in, l), false, false, dz.dtype(), Role::dgrad);
    dz = act == Act::relu
             ? act_backward_of_input(act, d, rows[l])
             : act_backward_reference(act, d, rows[l]);  // relu' of its result is that of its input
  }
  Tensors out{xent[0]};
  if (input_grad) out.push_back(dz);
  out.insert(out.end(), gradients.rbegin(), gradients.rend());
  return out;
}

std::string limit(Operands in, const Attrs& attrs) {
  const Act act = attrs.as<NarrowMlpAttrs>().act;
  if (act != Act::none && act_saves(act) == pointwise::Saves::inputs)
    return cat("act is ", print_value(act), "; one whose backward reads its result");
  if (in.size() % 2 == 0 || layers_of(in) < 2)
    return cat(
        in.size() - kFirst, " weights and biases; two for each of 2 to ", kNarrowLayers, " layers");
  std::vector<int64_t> widths{in[0].size(1)};
  for (size_t l = 0; l < layers_of(in); ++l) widths.push_back(weight_of(in, l).size(0));
  return narrow_mlp_limit(widths, in[0].dtype(), in[0].device());
}

}  // namespace

std::string narrow_mlp_limit(std::span<const int64_t> widths, DType dtype, Device device) {
  if (dtype != DType::f32 && dtype != DType::f64)
    return cat("the operands are ", name_of(dtype), "; f32 or f64");
  const int64_t widest = *std::max_element(widths.begin(), widths.end());
  if (widest > kNarrowWidth) return cat("a width of ", widest, "; at most ", kNarrowWidth);
  if (widths.size() - 1 > kNarrowLayers)
    return cat(widths.size() - 1, " layers; at most ", kNarrowLayers);
  const NarrowLayout layout(widths);
  const int64_t bytes = layout.size * int64_t(size_of(dtype));
  if (layout.weights > kNarrowWeights)
    return cat(layout.weights, " weights; at most ", kNarrowWeights);
  if (bytes > kNarrowMostBytes)
    return cat(
        bytes, " bytes of shared memory for weights and 64 rows; at most ", kNarrowMostBytes);
  if (bytes <= kNarrowBytes) return "";
  if (const size_t has = shared_memory_limit(device); has < size_t{kNarrowMostBytes})
    return cat(bytes, " bytes of shared memory for weights and 64 rows; at most ", kNarrowBytes,
        " on this card, whose blocks have ", has);
  return "";
}

const OpDef kNarrowMlpOp{.name = "narrow_mlp",
    .formula =
        "forward, cross entropy and backward of a chain of narrow layers: loss, dW and db of each",
    .min_inputs = kFirst + 1,  // a bias may be absent
    .max_inputs = kFirst + 2 * kNarrowLayers,
    .attrs = attr_type<NarrowMlpAttrs>(),
    .infer = infer_of<kNarrowMlpOp>,
    .cost = cost,
    SINTER_KERNELS(narrow_mlp),
    .strided = 0b100,
    .reference = reference,
    .limit = limit};

}  // namespace sinter
