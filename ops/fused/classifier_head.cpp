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

Tensors reference(Operands in, const Attrs& attrs) {
  const auto& [act, smoothing] = attrs.as<HeadAttrs>();
  const DType dtype = in[kH].dtype();
  const Tensor z = linear_to(in[kH], in[kWeight], optional(in, kBias), wide(dtype));
  Tensors out = call_fused(kSoftmaxXentOp, {z, in[kLabels], in[kSeed]},
      SoftmaxXentAttrs{smoothing, true, dtype == DType::bf16});
  if (act == Act::none) {
    out.push_back(matmul_as(out[1], in[kWeight], false, false, dtype, Role::dgrad));
  } else {
    const Tensors back_in{out[1], in[kWeight], optional(in, kSaved)};
    out.push_back(call_fused(kInputGradActOp, back_in, InputGradActAttrs{act})[0]);
  }
  return out;
}

std::string limit(Operands in, const Attrs&) {
  const int64_t classes = in[kWeight].size(0);
  if (in[kH].dtype() == DType::f64) return "f64 has no kernel, only f32 and bf16";
  if (classes <= kHeadClasses) return "";
  return cat("there are ", classes, " classes, more than ", kHeadClasses);
}

std::vector<Form> forms() {
  const Tensors in{Tensor::meta({2, 3}), Tensor::meta({4, 3}), Tensor::meta({2}, DType::i32),
      Tensor::meta({2}), Tensor::meta({4}), Tensor::meta(relu_mask_shape({2, 3}), DType::u8)};
  Tensors none = in;
  none[kSaved] = {};
  return {{in, HeadAttrs{Act::relu}}, {none, HeadAttrs{Act::none}}};
}

std::vector<Sample> samples() {
  const auto make = [](int64_t b, int64_t c, int64_t h, Act act, const char* what,
                        double smoothing = 0, bool bias = true) {
    Tensor saved = sample_tensor({b, h}, 3, act == Act::sigmoid ? 0.1 : -0.9, 0.9);
    if (act == Act::relu) saved = act_reference(act, saved, true)[1];
    const Tensor seed =
        broadcast_to(Tensor::full({1}, b ? 1.0 / static_cast<double>(b) : 1, DType::f64), {b});
    return Sample{.in = {sample_tensor({b, h}, 1, 0, 1), sample_tensor({c, h}, 2, -1, 1),
                      sample_labels(b, c, 5), seed, bias ? sample_tensor({c}, 4) : Tensor(),
                      act == Act::none ? Tensor() : saved},
        .attrs = HeadAttrs{act, smoothing},
        .what = what,
        .differentiable = false};
  };
  Sample per_row = make(33, 10, 40, Act::relu, "a seed of its own per row"),
         wide = make(4, 65, 6, Act::relu, "too many classes"),
         mask = make(4, 5, 6, Act::relu, "mask of another shape"),
         labels = make(4, 5, 6, Act::relu, "labels differ");
  per_row.in[kSeed] = sample_tensor({33}, 6);
  Sample extreme = make(5, 10, 24, Act::relu, "extreme logits");
  extreme.in[kBias].data<double>()[2] = 120;
  std::fill_n(extreme.in[kH].data<double>(), 24, 0.0);
  mask.in[kSaved] = Tensor::zeros({5, 16}, DType::u8);
  labels.in[kLabels] = sample_labels(3, 5, 5);
  for (Sample* s : {&wide, &mask, &labels}) {
    for (Tensor& t : s->in) t = t.dtype() == DType::f64 ? cast(t, DType::f32) : t;
    s->bad = true;
  }
  return {make(17, 10, 333, Act::relu, "odd"),
      make(97, 33, 77, Act::relu, "ragged, many classes", 0.1),
      make(1, 10, 128, Act::relu, "one row"), make(0, 10, 128, Act::relu, "empty batch"),
      make(64, 16, 128, Act::relu, "whole tiles"),
      make(15, 17, 256, Act::relu, "two chunks, no bias", 0, false),
      make(16, 1, 40, Act::relu, "one class"), make(17, 64, 300, Act::gelu, "gelu"),
      make(31, 10, 64, Act::tanh, "tanh"), make(31, 10, 65, Act::none, "no activation"), per_row,
      extreme, wide, mask, labels};
}

}  // namespace

const OpDef kClassifierHeadOp{.name = "classifier_head",
    .min_inputs = 4,
    .max_inputs = 6,
    .attrs = attr_type<HeadAttrs>(),
    .infer = infer_of<kClassifierHeadOp>,
    .cost = cost_of_reference<kClassifierHeadOp>,
    .cuda = SINTER_IF_CUDA(on_cuda::classifier_head),
    .simt = on_simt::classifier_head,
    .strided = 0b1000,
    .samples = samples,
    .reference = reference,
    .limit = limit,
    .forms = forms};

}  // namespace sinter
