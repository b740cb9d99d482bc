// The fused ops: what each takes and gives. Users do not call them; the rules of capture/rules.h
// put them in place of groups of plain ops. Each has `.reference`: the same meaning in plain ops,
// from which shapes, cost and the pattern of its rule follow (reference.h), and which tests compare
// it with. Letters: B batch, I in, O out, C classes, H hidden.
#pragma once

#include <algorithm>
#include <array>
#include <functional>
#include <string_view>

#include "ops/ops.h"
#include "ops/pointwise/chain.h"

namespace sinter {

// What fused ops apply behind a product: nothing, or an activation of ops/pointwise/pointwise.h
// that has no number.
#define SINTER_NOTHING(...)
#define SINTER_ENUMERATOR(function, ...) function,
enum class Act : uint8_t { none, SINTER_ACTIVATIONS(SINTER_ENUMERATOR, SINTER_NOTHING) };
#undef SINTER_ENUMERATOR
#define SINTER_TEXT(function, ...) #function,
inline constexpr std::string_view kActNames[] = {
    "none", SINTER_ACTIVATIONS(SINTER_TEXT, SINTER_NOTHING)};
#undef SINTER_TEXT
constexpr const auto& enum_names(Act) { return kActNames; }

// product_chain: a product, and the program of pointwise steps behind it: a, b, bias or absent, of
// `normed` the weight, bias, running_mean and running_var of batch_norm2d_eval, each [O], and then
// operands 1.. of the program, whose operand 0 is the product's result, or what the norm makes of
// it -> the program's results. Operands may be broadcast (ops/pointwise/chain.h): over rows or
// columns, of a convolution over all but channels.
//
// pointwise_chain: up to kChainInputs tensors -> up to kChainOutputs, as one pass over tiles that
// stay in cache. Operands are dense, and of one shape or broadcast; of a program that has a name,
// or with `merged`, matrices of one shape whose rows may be strided.
//
// Note [Names are labels]
//   Only these two run a program. Programs that are frequent have a name, by which tables, rules
//   and documents call the op (labels.cpp):
//
//       linear_act, conv_act      y = act(product + bias), then the product if it is kept, for the
//                                 backward of an act that does not read y
//       input_grad_act            dx = (dy W) act'(saved), saved is y or the product that was kept
//       conv_norm_act             y = act(batch_norm2d_eval(conv2d))
//       glu, glu_backward         h = act(g) u, and its gradients: dg, du, or merged: one [B, 2H]
//       gated_linear_backward     what glu_backward gives for dh = dy Wd
//
//   Any other program is product_chain or pointwise_chain.
enum class ProductKind : uint8_t { linear, matmul, conv2d };
inline constexpr std::array<std::string_view, 3> kProductKindNames{"linear", "matmul", "conv2d"};
constexpr const auto& enum_names(ProductKind) { return kProductKindNames; }
struct ProductChainAttrs {
  ProductKind product = ProductKind::linear;
  int64_t stride_h = 1, stride_w = 1, pad_h = 0, pad_w = 0;  // of conv2d
  bool normed = false;
  double eps = 1e-5;       // of the norm
  DType out = DType::f32;  // of linear and matmul; bf16 operands may give f32
  bool merged = false;     // both results are the halves of one's columns
  ChainProgram program = {};
  SINTER_FIELDS(ProductChainAttrs, product, stride_h, stride_w, pad_h, pad_w, normed, eps, out,
      merged, program)

  DType type_of_results(Operands in) const {
    return product == ProductKind::conv2d ? in[0].dtype() : out;
  }
  size_t first_operand() const { return normed ? 7 : 3; }
  // Of the inputs those behind the product, operands 1.. of the program.
  Operands operands(Operands in) const { return in.subspan(std::min(first_operand(), in.size())); }
};
struct ChainAttrs {
  ChainProgram program = {};
  bool merged = false;
  SINTER_FIELDS(ChainAttrs, program, merged)
};

// A name that a rule has: that of an op, of an op with certain programs, or of what it makes of
// others. The forms and the limit are the op's, or those of its programs with this name.
struct Label {
  profiler::StaticName name;
  const OpDef* op;
  Formula formula;
  std::function<std::vector<Form>()> forms = {};
  std::string (*limit)(Operands in, const Attrs& attrs) = nullptr;
  std::string_view text() const { return name.view(); }
};
inline Label label_of(const OpDef& op) { return {op.name, &op, op.formula, op.forms, op.limit}; }
// Those that are no op's own name.
std::span<const Label> labels();
const Label* find_label(std::string_view name);  // or nullptr

// conv_act_pool: x[N, C, H, W], weight[O, C, R, S], bias[O] or absent -> y[N, O, P / 2, Q / 2] =
// relu(max_pool2d(conv2d)) by 2 x 2 windows, index u8 of y's shape, as max_pool2d gives with relu;
// Conv2dAttrs.
// conv_act_backward: dy, x, y or absent, weight or absent -> dW, db, and with weight dx; of relu,
// if there is y. conv_act_pool_backward: dy, x, index, weight or absent -> the same.
// Conv2dGradAttrs of the weight's gradient; f32 gradients of parameters from bf16. With `relu` x is
// what ReLU gave, and dx is the gradient of what ReLU took.

// weight_bias_grad: dy[B, O], x[B, I] -> dW[O, I] = dy^T x, db[O] = sum_b dy. No attributes; f32
// from bf16.

// weight_grad_update: weight and bias gradients applied as they are made, no gradient in memory. In
// place; no outputs. Of each layer 12 inputs:
//   0 dy[B, O]  1 x[B, I]  2 W[O, I]  3, 4 its states, as many as there are
//   5 its bf16 copy  6 its skipped steps  7 b[O]  8, 9 its states  10 its bf16 copy  11 its skipped
// then those of the step (ops/optim/update.h). Absent ones are undefined. UpdateAttrs.
inline constexpr size_t kLayerOperands = 12;

// multi_tensor_update: the plain updates of a list of parameters (ops/optim/update.h).

// softmax_xent: logits[B, C], labels i32[B], grad_output[B] (gradient of each row's loss, any
// strides; absent without grad)
//   -> losses[B], and with grad dlogits[B, C] = (softmax - target) * grad_output, rounded to bf16
//   if `low` (the products that read it are bf16)
struct SoftmaxXentAttrs {
  double label_smoothing = 0;
  bool grad = true, low = false;
  SINTER_FIELDS(SoftmaxXentAttrs, label_smoothing, grad, low)
};

// row_chain: x[B, I], labels i32[B], grad_output[B] (any strides), saved[B, I] or absent, then W[O,
// I] and b[O] or absent of 1 to kChainLayers layers, act behind all but the last, the C <=
// kHeadClasses classes -> losses[B], dlogits[B, C] of x's type, the result y[B, O] of each layer
// but the last, then the gradients before their activations, the last layer's first, and with
// input_grad dx[B, I], that before the activation that gave x if of_act. Its backward then reads x,
// or saved, its operand, as act does. All weights fit into a block's shared memory (row_chain.h);
// f32 or bf16.
inline constexpr int64_t kHeadClasses = 64;
inline constexpr int kChainLayers = 4;
struct RowChainAttrs {
  Act act = Act::relu;
  double label_smoothing = 0;
  bool input_grad = false, of_act = false;
  SINTER_FIELDS(RowChainAttrs, act, label_smoothing, input_grad, of_act)
};

// gated_linear: x[B, I], Wg[H, I], Wu[H, I] -> h[B, H] = act(g) * u, g = x Wg^T, u = x Wu^T, and
// with keep (g | u)[B, 2H].
struct GatedLinearAttrs {
  Act act = Act::gelu_tanh;
  bool keep = false;
  SINTER_FIELDS(GatedLinearAttrs, act, keep)
};

// clip_norm: n gradients -> all scaled in place by min(1, max_norm / norm of all), norm and scaling
// in one launch. Attribute max_norm.

// norm_backward_add: the inputs of layer_norm_backward, or of rms_norm_backward, whose weight may
// be absent, and added[.., D] behind them -> dx[.., D], what that op gives and `added`, the
// gradient of what the norm's block is added to. No attributes. embedding_add: tokens i32[..],
// weight[V, D], added, whose shape is the last dims of y's -> y[.., D] = embedding + added. No
// attributes.

// The list of the fused ops, as in ops/ops.h. The rules that make them: capture/rules.cpp.
// clang-format off
#define SINTER_FUSED_OPS(OP) \
  OP(kSoftmaxXentOp, softmax_xent) \
  OP(kGatedLinearOp, gated_linear) \
  OP(kConvActPoolOp, conv_act_pool) \
  OP(kProductChainOp, product_chain) \
  OP(kConvActPoolBackwardOp, conv_act_pool_backward) \
  OP(kConvActBackwardOp, conv_act_backward) \
  OP(kRowChainOp, row_chain) \
  OP(kWeightBiasGradOp, weight_bias_grad) \
  OP(kNormBackwardAddOp, norm_backward_add) \
  OP(kEmbeddingAddOp, embedding_add) \
  OP(kClipNormOp, clip_norm) \
  OP(kWeightGradUpdateOp, weight_grad_update) \
  OP(kMultiTensorUpdateOp, update) \
  OP(kPointwiseChainOp, pointwise_chain)
// clang-format on
SINTER_FUSED_OPS(SINTER_DECLARE_OP)
std::span<const OpDef* const> fused_ops();

}  // namespace sinter
