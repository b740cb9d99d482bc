// row_chain: the hidden layers at the end of a classifier, its head with the loss, and the backward
// of all of them but for the gradients of weights, in one pass over the rows:
//   y1 = act(x W0^T + b0) .. ;   loss and dz as in softmax_xent of the last layer's result;
//   .. dz1 = (dz2 W1) * act'(what it saved);   dx = dz1 W0, or that times act' of what gave x
// A row needs no other row, so a block of threads takes some rows from x to dx, with all weights in
// its shared memory: what would be three launches and more, each waiting for the last, is one. What
// the gradients of the weights read, every y and dz, is written. A chain may be one layer: the head
// alone, where the layers before it do not fit. Devices with kernels only: on the CPU the ops it
// stands for keep their operands in cache anyway.
#include "ops/fused/row_chain.h"

#include "core/device/memory.h"
#include "ops/kernels.h"

// B batch, C classes; layer l is [O, I]
namespace sinter {
namespace {

enum : size_t { kX, kLabels, kSeed, kSaved, kFirst };  // then weight and bias of each layer

size_t layers_of(Operands in) { return (in.size() + 1 - kFirst) / 2; }
const Tensor& weight_of(Operands in, size_t l) { return in[kFirst + 2 * l]; }
Tensor bias_of(Operands in, size_t l) { return optional_input(in, kFirst + 2 * l + 1); }

Tensors reference(Operands in, const Attrs& attrs) {
  const auto& [act, smoothing, input_grad, of_act] = attrs.as<RowChainAttrs>();
  const bool of_inputs = act_saves(act) == pointwise::Saves::inputs;
  const size_t last = layers_of(in) - 1;
  const DType dtype = in[kX].dtype();
  // The inputs of the layers, and what the activations that gave them saved.
  Tensors rows{in[kX]}, saved{of_inputs && in[kSaved].defined() ? in[kSaved] : in[kX]};
  for (size_t l = 0; l < last; ++l) {
    const Tensors operands{rows[l], weight_of(in, l), bias_of(in, l)};
    const Tensors made = call_fused(kProductChainOp, operands,
        ProductChainAttrs{.out = dtype, .program = act_program(act, of_inputs)});
    rows.push_back(made[0]);
    saved.push_back(made.back());
  }
  const Tensor z = linear_to(rows[last], weight_of(in, last), bias_of(in, last), wide(dtype));
  Tensors out = call_fused(kSoftmaxXentOp, {z, in[kLabels], in[kSeed]},
      SoftmaxXentAttrs{smoothing, true, dtype == DType::bf16});
  Tensors grads{out[1]};
  for (size_t l = last + 1; l-- > (input_grad ? 0 : 1);) {
    if (l > 0 || of_act) {
      const Tensors operands{grads.back(), weight_of(in, l), {}, saved[l]};
      const ProductChainAttrs attrs{
          .product = ProductKind::matmul, .out = dtype, .program = act_grad_program(act)};
      grads.push_back(call_fused(kProductChainOp, operands, attrs)[0]);
    } else {
      grads.push_back(matmul_as(grads.back(), weight_of(in, 0), false, false, dtype, Role::dgrad));
    }
  }
  out.insert(out.end(), rows.begin() + 1, rows.end());
  out.insert(out.end(), grads.begin() + 1, grads.end());
  return out;
}

std::string limit(Operands in, const Attrs& attrs) {
  const auto& a = attrs.as<RowChainAttrs>();
  const std::vector<int64_t> widths = chain_widths(in);
  if (in[kSaved].defined() && act_saves(a.act) != pointwise::Saves::inputs)
    return str("the backward of ", print_value(a.act), " reads x; no other value");
  if (a.of_act && !in[kSaved].defined() && act_saves(a.act) == pointwise::Saves::inputs)
    return str("the backward of ", print_value(a.act), " reads x itself; an x that it gave");
  if (in[kX].dtype() == DType::f64) return "the operands are f64; f32 or bf16";
  if (widths.back() > kHeadClasses)
    return str("there are ", widths.back(), " classes; at most ", kHeadClasses, " classes");
  const size_t bytes = ChainLayout(widths, in[kX].dtype(), a).bytes(),
               most = shared_memory_limit(in[kX].device());
  if (bytes <= most) return "";
  std::string chain;
  for (const int64_t width : widths) chain += (chain.empty() ? "" : "-") + std::to_string(width);
  return str("weights and ", ChainLayout::kRows, " rows of ", chain, " take ", bytes,
      " bytes of shared memory; at most ", most, " bytes");
}

// The longest first, and of activations one of each kind: its backward reads its result, or its
// operand.
std::vector<Form> forms() {
  std::vector<Form> all;
  for (size_t layers = kChainLayers; layers >= 1; --layers) {
    Tensors in{Tensor::meta({2, 3}), Tensor::meta({2}, DType::i32), Tensor::meta({2}), {}};
    for (size_t l = 0; l < layers; ++l) {
      const int64_t ins = l % 2 == 0 ? 3 : 4, outs = 7 - ins;
      in.insert(in.end(), {Tensor::meta({outs, ins}), Tensor::meta({outs})});
    }
    Tensors with_saved = in;
    with_saved[kSaved] = Tensor::meta({2, 3});
    all.push_back({in, RowChainAttrs{.input_grad = true, .of_act = true}});
    all.push_back(
        {with_saved, RowChainAttrs{.act = Act::gelu, .input_grad = true, .of_act = true}});
    all.push_back({in, RowChainAttrs{.input_grad = true}});
    if (layers == 1) break;
    all.push_back({in, RowChainAttrs{.act = Act::gelu, .input_grad = true}});
    all.push_back({in, RowChainAttrs{}});
    all.push_back({in, RowChainAttrs{.act = Act::gelu}});
  }
  return all;
}

Tensors infer(Operands in, const Attrs& attrs) {
  SINTER_CHECK(layers_of(in) >= 1, shape,
      str("row_chain: ", in.size(), " inputs given; it takes ", int(kFirst),
          ", and weight and bias of 1 to ", kChainLayers, " layers"));
  return infer_by_reference(kRowChainOp, in, attrs);
}

}  // namespace

std::vector<int64_t> chain_widths(std::span<const Tensor> in) {
  std::vector<int64_t> widths{in[kX].size(1)};
  for (size_t l = 0; l < layers_of(in); ++l) widths.push_back(weight_of(in, l).size(0));
  return widths;
}

const OpDef kRowChainOp = listed<kRowChainOp>(
    {.formula = "y = act(x W^T + b) of some layers, the last layer's loss and dz as softmax_xent "
                "gives them, then dz of the other layers: all of a row at once",
        .min_inputs = kSaved,
        .max_inputs = kFirst + 2 * kChainLayers,
        .attrs = attr_type<RowChainAttrs>(),
        .infer = infer,
        .strided = 1u << kSeed,
        .reference = reference,
        .limit = limit,
        .forms = forms});

}  // namespace sinter
