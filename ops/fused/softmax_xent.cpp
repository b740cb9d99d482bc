// softmax_xent: a row's cross entropy and its gradient in one pass over the logits z[B, C], f32
// inside (formula: cross_entropy of ops/rows/row_formulas.h). Reads z, labels and the grad_output,
// writes a loss a row and dz.
#include "ops/kernels.h"
#include "ops/ops.h"
#include "ops/rows/row_cpu.h"

// B batch, C classes
namespace sinter {
namespace {

void cpu(const Call& call) {
  const auto& attrs = call.as<SoftmaxXentAttrs>();
  check_range(
      "softmax_xent", "label", "in row", call.in[1], "classes", call.in[0].size(1), kNoLabel);
  on_cpu::run_xent<on_cpu::XentRows>(call, attrs.label_smoothing, attrs.low);
}

Tensors reference(Operands in, const Attrs& attrs) {
  const auto& [smoothing, grad, low] = attrs.as<SoftmaxXentAttrs>();
  const Tensor logp = log_softmax(in[0]);
  Tensors out{nll(logp, in[1], smoothing)};
  if (grad) {
    const Tensor dlogp = apply1(kNllBackwardOp, {optional_input(in, 2), in[1]},
        NllBackwardAttrs{logp.size(1), smoothing, logp.dtype()});
    out.push_back(apply1(kLogSoftmaxBackwardOp, {dlogp, logp}, SoftmaxAttrs{}));
    if (low) out[1] = cast(out[1], DType::bf16);
  }
  return out;
}

std::string limit(Operands in, const Attrs& attrs) {
  const Tensor grad_output = optional_input(in, 2);
  const DType type = wide(in[0].dtype());
  if (!attrs.as<SoftmaxXentAttrs>().grad)
    return grad_output.defined() ? "there is a grad_output; none without grad" : "";
  if (grad_output.dtype() == type) return "";
  return str("the grad_output is ", grad_output.describe(), "; it must be ", name_of(type));
}

std::vector<Form> forms() {
  const Tensor logits = Tensor::meta({2, 3}), labels = Tensor::meta({2}, DType::i32);
  return {{{logits, labels, Tensor::meta({2})}, SoftmaxXentAttrs{.grad = true}},
      {{logits, labels, {}}, SoftmaxXentAttrs{.grad = false}}};
}

}  // namespace

const OpDef kSoftmaxXentOp = listed<kSoftmaxXentOp>(
    {.formula = "p = softmax(z), loss = -ln p[label], dz = (p - [label]) dloss",
        .min_inputs = 2,
        .max_inputs = 3,
        .attrs = attr_type<SoftmaxXentAttrs>(),
        .cpu = cpu,
        .strided = 0b100,
        .reference = reference,
        .limit = limit,
        .forms = forms});

}  // namespace sinter
