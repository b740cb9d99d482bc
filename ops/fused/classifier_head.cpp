// classifier_head: the end of a classifier and the beginning of its backward in one pass over the
// rows:
//   z[B, C] = h W^T + b;   loss and dz as in softmax_xent;   dh[B, H] = (dz W) * act'(saved)
// z lives in registers, f32 for bf16 operands. saved is what h's activation kept (see
// input_grad_act). Devices with kernels only: on the CPU the three ops it stands for keep their
// operands in cache anyway.
#include "ops/fused/activation.h"
#include "ops/kernels.h"
#include "ops/ops.h"

// B batch, C classes, H hidden
namespace sinter {
namespace {

enum : size_t { kH, kWeight, kLabels, kSeed, kBias, kSaved };  // the last two may be absent

Tensors reference(Operands in, const Attrs& attrs) {
  const auto& [act, smoothing] = attrs.as<HeadAttrs>();
  const DType dtype = in[kH].dtype();
  const Tensor z = linear_to(in[kH], in[kWeight], optional_input(in, kBias), wide(dtype));
  Tensors out = call_fused(kSoftmaxXentOp, {z, in[kLabels], in[kSeed]},
      SoftmaxXentAttrs{smoothing, true, dtype == DType::bf16});
  if (act == Act::none) {
    out.push_back(matmul_as(out[1], in[kWeight], false, false, dtype, Role::dgrad));
  } else {
    const Tensors back_in{out[1], in[kWeight], optional_input(in, kSaved)};
    out.push_back(call_fused(kInputGradActOp, back_in, InputGradActAttrs{act})[0]);
  }
  return out;
}

std::string limit(Operands in, const Attrs& attrs) {
  const Act act = attrs.as<HeadAttrs>().act;
  const int64_t classes = in[kWeight].size(0);
  if (in[kH].dtype() == DType::f64) return "the operands are f64; f32 or bf16";
  if (act != Act::relu && act != Act::none)
    return cat("h is of ", print_value(act), "; relu or none");
  if (classes <= kHeadClasses) return "";
  return cat("there are ", classes, " classes; at most ", kHeadClasses, " classes");
}

std::vector<Form> forms() {
  const Tensors in{Tensor::meta({2, 3}), Tensor::meta({4, 3}), Tensor::meta({2}, DType::i32),
      Tensor::meta({2}), Tensor::meta({4}), Tensor::meta({2, 3})};
  Tensors none = in;
  none[kSaved] = {};
  return {{in, HeadAttrs{Act::relu}}, {none, HeadAttrs{Act::none}}};
}

}  // namespace

const OpDef kClassifierHeadOp{.name = "classifier_head",
    .formula = "z = h W^T + b, loss and dz as softmax_xent gives them, dh = (dz W) act'(saved)",
    .min_inputs = 4,
    .max_inputs = 6,
    .attrs = attr_type<HeadAttrs>(),
    .infer = infer_of<kClassifierHeadOp>,
    .cost = cost_of_reference<kClassifierHeadOp>,
    SINTER_KERNELS(classifier_head),
    .strided = 0b1000,
    .reference = reference,
    .limit = limit,
    .forms = forms};

}  // namespace sinter
