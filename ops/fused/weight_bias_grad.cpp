// weight_bias_grad: dW[O, I] = dy[B, O]^T x[B, I] and db[O] = sum_b dy[b, o], both read from one
// pass over dy. f32 from bf16 operands.
#include "ops/fused/fused.h"
#include "ops/fused/reference.h"
#include "ops/kernels.h"
#include "ops/ops.h"
#include "ops/product/matrix_view.h"
#include "ops/rows/row_loops.h"

// B batch, I in, O out
namespace sinter {
namespace {

void cpu(const Call& call) {
  const Tensor &dy = call.in[0], &dw = call.out[0], &db = call.out[1];
  const int64_t batch = dy.size(0), outs = dy.size(1);
  multiply(MatrixView(dy), true, MatrixView(call.in[1]), false, Tensor(), dw.dtype(), dw.raw());
  visit_float(dy.dtype(), [&]<class T>(T) {
    using V = compute_t<T>;
    column_sums<V>(dy.data<T>(), batch, outs, outs, db.data<V>());
  });
}

Tensors reference(Operands in, const Attrs&) {
  return {matmul_as(in[0], in[1], true, false, wide(in[0].dtype()), Role::wgrad),
      sum_rows(in[0], Role::bgrad)};
}

std::vector<Form> forms() { return {{{Tensor::meta({2, 4}), Tensor::meta({2, 3})}, {}}}; }

}  // namespace

const OpDef kWeightBiasGradOp{.name = "weight_bias_grad",
    .formula = "dW = dy^T x, db = sum of dy's rows, from one pass over dy",
    .min_inputs = 2,
    .infer = infer_of<kWeightBiasGradOp>,
    .cost = cost_of_reference<kWeightBiasGradOp>,
    .cpu = cpu,
    SINTER_KERNELS(weight_bias_grad),
    .strided = 0b10,
    .reference = reference,
    .forms = forms};

}  // namespace sinter
