// What the fused kernels do to memory: compiled once more with counters, the distinct sectors of 32 bytes that they read and write are the
// bytes of OpDef::cost, where rows fill whole sectors.
#define SINTER_COUNT_ACCESSES
#include <gtest/gtest.h>

#include "ops/fused/gated_linear.cu"
#include "ops/fused/glu.cu"
#include "ops/fused/input_grad_act.cu"
#include "ops/fused/linear_act.cu"
#include "ops/fused/narrow_mlp.cu"
#include "ops/fused/softmax_xent.cu"
#include "ops/fused/weight_bias_grad.cu"

namespace sinter::on_simt_counted {
namespace {

constexpr Device kSimt{Device::Type::simt, 0};

Tensor values(const Shape& shape, DType dtype = DType::f32) { return cast(sample_tensor(shape, 1), dtype).to(kSimt); }

// Sectors that a kernel touches beyond those of its cost.
struct Extra {
  int64_t read = 0, written = 0;
};
void expect_cost(const OpDef& op, Kernel kernel, Tensors in, const Attrs& attrs, Extra extra = {}) {
  Tensors out;
  for (const Tensor& meta : op.infer(in, attrs)) out.push_back(Tensor::empty(meta.shape(), meta.dtype(), kSimt));
  const Cost cost = op.cost(in, out, attrs);
  simt::take_counters();
  kernel(Call{op, in, out, attrs});
  const simt::Counters counted = simt::take_counters();
  SCOPED_TRACE(cat(op.text(), " ", in[0].describe()));
  EXPECT_EQ(32 * (counted.sectors_read - extra.read), cost.bytes_read);
  EXPECT_EQ(32 * (counted.sectors_written - extra.written), cost.bytes_written);
}

// B 96 and 65, I 64, H and O 256: a row of a bit mask is one sector; in each 65 rows lie in two tiles.
TEST(FusedCountsSimt, SectorsAreTheCost) {
  for (const DType type : {DType::f32, DType::bf16}) {
    for (const int64_t b : {96, 65}) {
      const Tensor x = values({b, 64}, type), w = values({256, 64}, type), h = values({b, 256}, type), down = values({64, 256}, type),
                   bias = values({256});
      const Tensor both = values({b, 512}, type), g = slice(both, 1, 0, 256), u = slice(both, 1, 256, 512),
                   u_weight = values({256, 64}, type);
      const Tensor mask = Tensor::zeros({b, 32}, DType::u8).to(kSimt);
      expect_cost(kLinearActOp, linear_act, {x, w, bias}, LinearActAttrs{Act::relu, Keep::mask, type});
      expect_cost(kLinearActOp, linear_act, {x, w, bias}, LinearActAttrs{Act::silu, Keep::pre, type});
      expect_cost(kInputGradActOp, input_grad_act, {x, down, mask}, InputGradActAttrs{Act::relu});
      expect_cost(kInputGradActOp, input_grad_act, {x, down, h}, InputGradActAttrs{Act::gelu});
      expect_cost(kWeightBiasGradOp, weight_bias_grad, {h, x}, {});
      expect_cost(kGluOp, glu, {g, u}, GluAttrs{});
      expect_cost(kGluBackwardOp, glu_backward, {h, g, u}, GluAttrs{Act::silu, true});
      expect_cost(kGatedLinearOp, gated_linear, {x, w, u_weight}, GatedLinearAttrs{Act::gelu_tanh, true});
      expect_cost(kGatedLinearOp, gated_linear, {x, w, u_weight}, GatedLinearAttrs{Act::silu, false});
      expect_cost(kGatedLinearBackwardOp, gated_linear_backward, {x, down, g, u}, GluAttrs{Act::gelu_tanh, true});
      expect_cost(kGatedLinearBackwardOp, gated_linear_backward, {x, down, g, u}, GluAttrs{Act::gelu_tanh, false});
    }
  }
  const Tensor labels = Tensor::zeros({96}, DType::i32).to(kSimt), seed = broadcast_to(Tensor::full({1}, 1, DType::f32, kSimt), {96});
  expect_cost(kSoftmaxXentOp, softmax_xent, {values({96, 16}), labels, seed}, SoftmaxXentAttrs{}, {.read = 1});  // the seed, a constant
}

// One block: beside the cost its partial sums, once, the ticket, and the seed.
TEST(FusedCountsSimt, NarrowMlp) {
  const Tensor labels = Tensor::zeros({64}, DType::i32).to(kSimt), seed = broadcast_to(Tensor::full({1}, 1, DType::f32, kSimt), {64});
  const Tensors in{values({64, 32}), labels, seed, values({16, 32}), values({16}), values({8, 16}), values({8})};
  const int64_t gradients = 16 * 33 + 8 * 17, sectors = gradients / 8 + 1;  // they begin within a sector
  expect_cost(kNarrowMlpOp, narrow_mlp, in, NarrowMlpAttrs{.input_grad = true}, {.read = sectors + 1, .written = sectors});
}

}  // namespace
}  // namespace sinter::on_simt_counted
