// norm_backward_add: the gradient of what a norm reads, and of what its block is added to, in one
// pass (formulas: ops/rows/row_formulas.h).
#include "ops/kernels.h"
#include "ops/ops.h"
#include "ops/rows/row_cpu.h"

namespace sinter {
namespace {

bool is_layer(Operands in) { return in.size() == 6; }

void cpu(const Call& call) {
  const auto in = operands_of_norm(call.in);
  const Call of_norm{call.op, in, call.out, call.attrs};
  if (is_layer(call.in)) return on_cpu::run_op<on_cpu::LayerNormBackward>(of_norm);
  on_cpu::run_op<on_cpu::RmsNormBackward>(of_norm);
}

Tensors reference(Operands in, const Attrs&) {
  const auto all = operands_of_norm(in);
  const Tensors of_norm(all.begin(), all.begin() + (is_layer(in) ? 5 : 4));
  return {apply1(is_layer(in) ? kLayerNormBackwardOp : kRmsNormBackwardOp, of_norm) + in[3]};
}

std::string limit(Operands in, const Attrs&) {
  if (in[3].shape() == in[0].shape()) return "";
  return str(
      "what is added is ", in[3].describe(), "; it must be of dy's shape, ", in[0].shape().str());
}

std::vector<Form> forms() {
  const auto x = [] { return Tensor::meta({2, 3}); };
  const auto columns = [] { return Tensor::meta({3}); };
  const auto rows = [] { return Tensor::meta({2}); };
  return {{{x(), x(), rows(), x()}, {}}, {{x(), x(), rows(), x(), columns()}, {}},
      {{x(), x(), rows(), x(), columns(), rows()}, {}}};
}

}  // namespace

const OpDef kNormBackwardAddOp =
    listed<kNormBackwardAddOp>({.formula = "dx = what the norm's backward gives for dy, + added",
        .min_inputs = 4,
        .max_inputs = 6,
        .cpu = cpu,
        .reference = reference,
        .limit = limit,
        .forms = forms});

}  // namespace sinter
