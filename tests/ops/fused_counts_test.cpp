// What the fused kernels do to memory: the distinct sectors of 32 bytes that they read and write
// are the bytes of OpDef::cost, where rows fill whole sectors.
#include <gtest/gtest.h>

#include "ops/fused/fused.h"
#include "tests/ops/device_samples.h"
#include "tests/ops/ends.h"

namespace sinter {
namespace {

Tensor values(const Shape& shape, DType dtype = DType::f32) {
  return cast(sample_tensor(shape, 1), dtype).to(kSimt);
}

// Sectors that a kernel touches beyond those of its cost.
struct Extra {
  int64_t read = 0, written = 0;
};
void expect_cost(const OpDef& op, Tensors in, const Attrs& attrs, Extra extra = {}) {
  Tensors out;
  for (const Tensor& meta : op.results(in, attrs))
    out.push_back(Tensor::empty(meta.shape(), meta.dtype(), kSimt));
  const Cost cost = op.cost(in, out, attrs);
  simt::take_counters();
  const simt::CountSectors counting;
  launch_op({op, in, out, attrs});
  const simt::Counters counted = simt::take_counters();
  SCOPED_TRACE(str(op.text(), " ", in[0].describe()));
  EXPECT_EQ(32 * (counted.sectors_read - extra.read), cost.bytes_read);
  EXPECT_EQ(32 * (counted.sectors_written - extra.written), cost.bytes_written);
}

// B 96 and 65, I 64, H and O 256: 65 rows lie in two tiles.
TEST(FusedCountsSimt, SectorsAreTheCost) {
  for (const DType type : {DType::f32, DType::bf16}) {
    for (const int64_t b : {96, 65}) {
      const Tensor x = values({b, 64}, type), w = values({256, 64}, type),
                   h = values({b, 256}, type), down = values({64, 256}, type), bias = values({256});
      const Tensor both = values({b, 512}, type), g = slice(both, 1, 0, 256),
                   u = slice(both, 1, 256, 512), u_weight = values({256, 64}, type);
      expect_cost(kProductChainOp, {x, w, bias}, ends::linear_act(Act::relu, false, type));
      expect_cost(kProductChainOp, {x, w, bias}, ends::linear_act(Act::silu, true, type));
      expect_cost(kProductChainOp, {x, down, {}, h}, ends::input_grad_act(Act::relu, type));
      expect_cost(kProductChainOp, {x, down, {}, h}, ends::input_grad_act(Act::gelu, type));
      expect_cost(kWeightBiasGradOp, {h, x}, {});
      expect_cost(kLinearOp, {x, w, bias}, LinearAttrs{type});
      expect_cost(kPointwiseChainOp, {g, u}, ends::glu());
      expect_cost(kPointwiseChainOp, {h, g, u}, ends::glu_backward(Act::silu, true));
      expect_cost(kGatedLinearOp, {x, w, u_weight}, GatedLinearAttrs{Act::gelu_tanh, true});
      expect_cost(kGatedLinearOp, {x, w, u_weight}, GatedLinearAttrs{Act::silu, false});
      expect_cost(kProductChainOp, {x, down, {}, g, u},
          ends::gated_linear_backward(Act::gelu_tanh, true, type));
      expect_cost(kProductChainOp, {x, down, {}, g, u},
          ends::gated_linear_backward(Act::gelu_tanh, false, type));
      for (const char* program : {"3;add(0,1);gelu_tanh(3);mul(4,2);5",
               "3;add(0,1);silu(3);mul(4,2);neg(5);relu(6);scale:2(7);4,8"}) {
        ChainAttrs chain;
        ASSERT_TRUE(parse_value(program, chain.program));
        expect_cost(kPointwiseChainOp, {h, values({256}, type), values({b, 256}, type)}, chain);
      }
    }
  }
}

// Ops with a number per row fill whole sectors of them for multiples of 8 rows. Seeds are a
// constant that lies in a sector.
TEST(FusedCountsSimt, SectorsOfRows) {
  for (const int64_t b : {96, 40}) {
    const Tensor labels = Tensor::zeros({b}, DType::i32).to(kSimt),
                 seed = broadcast_to(Tensor::full({1}, 1, DType::f32, kSimt), {b});
    const Tensor bias = values({16});
    expect_cost(kSoftmaxXentOp, {values({b, 16}), labels, seed}, SoftmaxXentAttrs{}, {.read = 1});
    for (const DType type : {DType::f32, DType::bf16}) {
      const Tensor h = values({b, 256}, type), w = values({16, 256}, type);
      for (const bool of_act : {false, true})
        expect_cost(kRowChainOp, {h, labels, seed, {}, w, bias},
            RowChainAttrs{.label_smoothing = 0.1, .input_grad = true, .of_act = of_act},
            {.read = 1});
      const Tensor saved = values({b, 64}, type);
      const Tensors chain{values({b, 64}, type), labels, seed, saved, values({128, 64}, type),
          values({128}), values({64, 128}, type), values({64}), values({16, 64}, type), bias};
      Tensors without = chain;
      without[3] = {};
      for (const RowChainAttrs& attrs : {RowChainAttrs{}, {.input_grad = true, .of_act = true}})
        expect_cost(kRowChainOp, without, attrs, {.read = 1});
      expect_cost(kRowChainOp, chain,
          RowChainAttrs{.act = Act::gelu, .input_grad = true, .of_act = true}, {.read = 1});
    }
  }
}

// In place. The step's scalars lie in two sectors of its state.
TEST(FusedCountsSimt, SectorsOfUpdates) {
  const Tensor state = make_step_state(kSimt), none;
  using enum OptimizerKind;
  for (const UpdateAttrs& attrs :
      {UpdateAttrs{.optimizer = Sgd}, {.optimizer = Sgd, .momentum = 0.9}, {},
          {.weight_decay = 0.01, .decoupled = true}, {.optimizer = RMSprop}, {.optimizer = Lion}}) {
    const size_t states = optimizer_row(attrs.optimizer).used_states(attrs);
    for (const bool low : {false, true}) {
      const auto with_state = [&](Tensors all, const Shape& shape) {
        for (size_t i = 0; i < 2; ++i) all.push_back(i < states ? values(shape) : none);
        all.insert(all.end(), {low ? values(shape, DType::bf16) : none, none});
        return all;
      };
      Tensors parameters;
      for (const Shape& shape : {Shape{80, 64}, Shape{80}, Shape{16}}) {
        for (const Tensor& t : with_state({values(shape), values(shape)}, shape))
          parameters.push_back(t);
      }
      parameters.insert(parameters.end(), {state, none, none});
      const bool adam = attrs.optimizer == Adam;
      const Extra of_state{.read = adam ? 2 : 1};  // its rate, and the bias corrections
      expect_cost(kMultiTensorUpdateOp, parameters, attrs, of_state);
      for (const DType type : {DType::f32, DType::bf16}) {
        Tensors layers;
        for (const auto& [outs, ins] : {std::pair<int64_t, int64_t>{80, 64}, {16, 80}}) {
          layers.insert(layers.end(), {values({65, outs}, type), values({65, ins}, type)});
          for (const Shape& shape : {Shape{outs, ins}, Shape{outs}}) {
            for (const Tensor& t : with_state({values(shape)}, shape)) layers.push_back(t);
          }
        }
        layers.insert(layers.end(), {state, none, none});
        expect_cost(kWeightGradUpdateOp, layers, attrs, of_state);
      }
    }
  }
}

// Beside the cost a sum per block, written and read, and the ticket.
TEST(FusedCountsSimt, ClipNorm) {
  for (const DType type : {DType::f32, DType::bf16})
    expect_cost(kClipNormOp, {values({80, 64}, type), values({80}, type)}, ClipAttrs{0.1},
        {.read = 1, .written = 1});
}

}  // namespace
}  // namespace sinter
