// narrow_mlp: forward, cross entropy and backward of a chain of narrow layers in one launch: no
// activation and no gradient of one is ever in memory. It has no kernel for the CPU, whose caches
// do that for the plain ops.
#include "ops/fused/narrow_mlp.h"

#include "ops/fused/activation.h"
#include "ops/kernels.h"
#include "ops/structured.h"

// B batch, C classes; layer l is [O, I]
namespace sinter {
namespace {

constexpr char kName[] = "narrow_mlp";
constexpr size_t kFirst = 3;  // of the layers' operands

size_t layers_of(Operands in) { return (in.size() - kFirst) / 2; }
const Tensor& weight_of(Operands in, size_t l) { return in[kFirst + 2 * l]; }
const Tensor& bias_of(Operands in, size_t l) { return in[kFirst + 2 * l + 1]; }

Tensors infer(Operands in, const Attrs& attrs) {
  const auto& [act, smoothing, input_grad] = attrs.as<NarrowMlpAttrs>();
  const Tensor &x = in[0], &labels = in[1], &seed = in[2];
  const size_t layers = layers_of(in);
  check_floating(kName, "x", x);
  check_rank(kName, "x", x, 2);
  check_rank(kName, "labels", labels, 1);
  check_dtype(kName, "labels", labels, DType::i32);
  check_rank(kName, "seed", seed, 1);
  check_same_dtype(kName, "x", x, "seed", seed);
  SINTER_CHECK(labels.size(0) == x.size(0) && seed.size(0) == x.size(0), shape,
      cat(kName, ": a label and a seed per row are wanted: ",
          describe({{"x", &x}, {"labels", &labels}, {"seed", &seed}}), "; x.shape[0] is ",
          x.size(0)));
  SINTER_CHECK(in.size() % 2 == 1 && layers >= 2, shape,
      cat(kName, ": weights and biases are missing: ", describe({{"x", &x}, {"labels", &labels}}),
          " and ", in.size() - 3, " more; after x, labels and seed there are two for each of 2 to ",
          kNarrowLayers, " layers"));
  SINTER_CHECK(act == Act::relu || act == Act::sigmoid || act == Act::tanh || act == Act::none,
      usage,
      cat(kName, ": unsupported activation: ", kActNames[static_cast<size_t>(act)],
          "; its backward must read its result"));
  SINTER_CHECK(smoothing >= 0 && smoothing < 1, usage,
      cat(kName, ": label_smoothing out of range: ", smoothing, "; allowed [0, 1)"));
  std::vector<int64_t> widths{x.size(1)};
  Tensors out{Tensor::meta({x.size(0)}, x.dtype(), x.device())};
  if (input_grad) out.push_back(meta_like(x));
  for (size_t l = 0; l < layers; ++l) {
    const Tensor &weight = weight_of(in, l), &bias = bias_of(in, l);
    check_rank(kName, "weight", weight, 2);
    check_same_dtype(kName, "x", x, "weight", weight);
    SINTER_CHECK(weight.size(1) == widths.back(), shape,
        cat(kName, ": input features of layer ", l, " differ: weight is ", weight.describe(),
            "; weight.shape[1] is ", weight.size(1), ", its input has ", widths.back()));
    widths.push_back(weight.size(0));
    out.push_back(meta_like(weight));
    if (!bias.defined()) continue;
    check_same_dtype(kName, "x", x, "bias", bias);
    SINTER_CHECK(bias.shape() == Shape({weight.size(0)}), shape,
        cat(kName, ": bias of layer ", l,
            " does not fit: ", describe({{"weight", &weight}, {"bias", &bias}}), "; it must be [",
            weight.size(0), "]"));
    out.push_back(meta_like(bias));
  }
  const std::string limit = narrow_mlp_limit(widths, x.dtype());
  SINTER_CHECK(limit.empty(), shape,
      cat(kName, ": the chain is too large: ",
          describe({{"x", &x}, {"first weight", &weight_of(in, 0)}}), "; ", limit));
  return out;
}

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
  c.bytes_read += bytes_unless_spread(in[2]) - bytes_of(in[2]);
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
  const Tensors xent = kSoftmaxXentOp.reference(
      Tensors{rows[layers], in[1], in[2]}, SoftmaxXentAttrs{.label_smoothing = smoothing});
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

}  // namespace

std::string narrow_mlp_limit(std::span<const int64_t> widths, DType dtype) {
  if (dtype != DType::f32 && dtype != DType::f64)
    return cat("no kernel for ", name_of(dtype), ", only for f32 and f64");
  const int64_t widest = *std::max_element(widths.begin(), widths.end());
  if (widest > kNarrowWidth) return cat("a width of ", widest, ", at most ", kNarrowWidth);
  if (widths.size() - 1 > kNarrowLayers)
    return cat(widths.size() - 1, " layers, at most ", kNarrowLayers);
  const NarrowLayout layout(widths);
  const int64_t bytes = layout.size * static_cast<int64_t>(size_of(dtype));
  if (layout.weights > kNarrowWeights)
    return cat(layout.weights, " weights, at most ", kNarrowWeights);
  if (bytes > kNarrowBytes)
    return cat(bytes, " bytes of shared memory for weights and 64 rows, at most ", kNarrowBytes);
  return "";
}

const OpDef kNarrowMlpOp{.name = "narrow_mlp",
    .min_inputs = kFirst + 1,  // a bias may be absent
    .max_inputs = kFirst + 2 * kNarrowLayers,
    .attrs = attr_type<NarrowMlpAttrs>(),
    .infer = infer,
    .cost = cost,
    .cuda = SINTER_IF_CUDA(on_cuda::narrow_mlp),
    .simt = on_simt::narrow_mlp,
    .strided = 0b100,
    .reference = reference};

}  // namespace sinter
