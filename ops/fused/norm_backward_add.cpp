// norm_backward_add: the gradient of what a norm reads, and of what its block is added to, in one
// pass (formulas: ops/rows/row_formulas.h).
#include "ops/kernels.h"
#include "ops/ops.h"
#include "ops/rows/row_cpu.h"

namespace sinter {
namespace {

bool is_layer(Operands in) { return in.size() == 6; }

void cpu(const Call& call) {
  if (is_layer(call.in)) return on_cpu::run_op<on_cpu::LayerNormBackward>(call);
  on_cpu::run_op<on_cpu::RmsNormBackward>(call);
}

Tensors reference(Operands in, const Attrs&) {
  const Tensors of_norm(in.begin(), in.end() - 1);
  return {apply1(is_layer(in) ? kLayerNormBackwardOp : kRmsNormBackwardOp, of_norm) + in.back()};
}

std::string limit(Operands in, const Attrs&) {
  if (in.back().shape() == in[0].shape()) return "";
  return str("what is added is ", in.back().describe(), "; it must be of dy's shape, ",
      in[0].shape().str());
}

std::vector<Form> forms() {
  const auto x = [] { return Tensor::meta({2, 3}); };
  const auto columns = [] { return Tensor::meta({3}); };
  const auto rows = [] { return Tensor::meta({2}); };
  return {{{x(), x(), rows(), {}, x()}, {}}, {{x(), x(), rows(), columns(), x()}, {}},
      {{x(), x(), columns(), rows(), rows(), x()}, {}}};
}

}  // namespace

const OpDef kNormBackwardAddOp =
    listed<kNormBackwardAddOp>({.formula = "dx = what the norm's backward gives for dy, + added",
        .min_inputs = 3,
        .max_inputs = 6,
        .cpu = cpu,
        .reference = reference,
        .limit = limit,
        .forms = forms});

}  // namespace sinter
