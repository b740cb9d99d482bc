// classifier_head: the end of a classifier and the beginning of its backward in one pass over the
// rows:
//   z[B, C] = h W^T + b;   loss and dz as in softmax_xent;   dh[B, H] = (dz W) * act'(saved)
// z lives in registers, f32 for bf16 operands. saved is what h's activation kept (see
// input_grad_act). Devices with kernels only: on the CPU the three ops it stands for keep their
// operands in cache anyway.
#include "ops/fused/activation.h"
#include "ops/kernels.h"
#include "ops/structured.h"

// B batch, C classes, H hidden
namespace sinter {
namespace {

enum : size_t { kH, kWeight, kLabels, kSeed, kBias, kSaved };  // the last two may be absent

Tensor optional(Operands in, size_t i) { return i < in.size() ? in[i] : Tensor(); }

constexpr const char* kName = "classifier_head";

Tensors infer(Operands in, const Attrs& attrs) {
  const auto& [act, smoothing] = attrs.as<HeadAttrs>();
  const Tensor &h = in[kH], &weight = in[kWeight], &labels = in[kLabels], &seed = in[kSeed];
  const Tensor bias = optional(in, kBias), saved = optional(in, kSaved);
  check_floating(kName, "h", h);
  check_rank(kName, "h", h, 2);
  check_rank(kName, "weight", weight, 2);
  check_same_dtype(kName, "h", h, "weight", weight);
  check_rank(kName, "labels", labels, 1);
  check_dtype(kName, "labels", labels, DType::i32);
  check_rank(kName, "seed", seed, 1);
  check_dtype(kName, "seed", seed, wide(h.dtype()));
  SINTER_CHECK(h.dtype() != DType::f64, dtype,
      cat(kName, ": unsupported dtype: h is ", h.describe(), "; allowed f32, bf16"));
  const int64_t rows = h.size(0), classes = weight.size(0);
  const auto facts = [&] {
    return describe({{"h", &h}, {"weight", &weight}, {"labels", &labels}, {"seed", &seed}});
  };
  SINTER_CHECK(h.size(1) == weight.size(1), shape,
      cat(kName, ": features differ: ", facts(), "; h.shape[1] is ", h.size(1),
          ", weight.shape[1] is ", weight.size(1)));
  SINTER_CHECK(classes <= kHeadClasses, shape,
      cat(kName, ": too many classes: ", facts(), "; ", classes, ", at most ", kHeadClasses));
  SINTER_CHECK(labels.size(0) == rows && seed.size(0) == rows, shape,
      cat(kName, ": a label and a seed per row are wanted: ", facts(), "; h.shape[0] is ", rows));
  SINTER_CHECK(smoothing >= 0 && smoothing < 1, usage,
      cat(kName, ": label_smoothing out of range: ", smoothing, "; allowed [0, 1)"));
  if (bias.defined()) {
    check_rank(kName, "bias", bias, 1);
    SINTER_CHECK(bias.size(0) == classes, shape,
        cat(kName, ": bias does not fit: ", describe({{"weight", &weight}, {"bias", &bias}}),
            "; it must be [", classes, "]"));
    if (bias.dtype() != wide(h.dtype())) check_same_dtype(kName, "h", h, "bias", bias);
  }
  if (act != Act::none) {
    const Shape kept = act == Act::relu ? relu_mask_shape(h.shape()) : h.shape();
    check_dtype(kName, "saved", saved, act == Act::relu ? DType::u8 : h.dtype());
    SINTER_CHECK(saved.shape() == kept, shape,
        cat(kName, ": what was saved does not fit: ", describe({{"h", &h}, {"saved", &saved}}),
            "; saved must be ", kept.str()));
  }
  return {Tensor::meta({rows}, wide(h.dtype()), h.device()),
      Tensor::meta({rows, classes}, h.dtype(), h.device()),
      Tensor::meta(h.shape(), h.dtype(), h.device())};
}

// The sum of linear's, softmax_xent's and input_grad_act's, without z.
Cost cost(Operands in, Operands out, const Attrs& attrs) {
  const auto& [act, smoothing] = attrs.as<HeadAttrs>();
  const int64_t rows = in[kH].size(0), cells = out[1].numel(), hidden = in[kH].numel();
  const int64_t product = 2 * hidden * in[kWeight].size(0);
  Cost c =
      cost_of(2 * product + (optional(in, kBias).defined() ? cells : 0) + 9 * cells + 3 * rows +
                  (smoothing > 0 ? cells + 2 * rows : 0) + hidden * act_backward_flops(act),
          in.first(kSeed), out);
  c.bytes_read += bytes_of(optional(in, kBias)) + bytes_unless_spread(in[kSeed]) +
                  (act == Act::relu ? (hidden + 7) / 8 : bytes_of(optional(in, kSaved)));
  return c;
}

Tensors reference(Operands in, const Attrs& attrs) {
  const auto& [act, smoothing] = attrs.as<HeadAttrs>();
  const DType dtype = in[kH].dtype();
  const Tensor z = linear_to(in[kH], in[kWeight], optional(in, kBias), wide(dtype));
  const Tensors z_in{z, in[kLabels], in[kSeed]};
  Tensors out =
      kSoftmaxXentOp.reference(z_in, SoftmaxXentAttrs{smoothing, true, dtype == DType::bf16});
  const Tensors back_in{out[1], in[kWeight], optional(in, kSaved)};
  out.push_back(kInputGradActOp.reference(back_in, InputGradActAttrs{act})[0]);
  return out;
}

}  // namespace

const OpDef kClassifierHeadOp{.name = "classifier_head",
    .min_inputs = 4,
    .max_inputs = 6,
    .attrs = attr_type<HeadAttrs>(),
    .infer = infer,
    .cost = cost,
    .cuda = SINTER_IF_CUDA(on_cuda::classifier_head),
    .simt = on_simt::classifier_head,
    .strided = 0b1000,
    .reference = reference};

}  // namespace sinter
