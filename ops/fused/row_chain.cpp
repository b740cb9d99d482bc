// row_chain: the hidden layers at the end of a classifier, its head with the loss, and the backward
// of all of them but for the gradients of weights, in one pass over the rows:
//   y1 = relu(x W0^T + b0) .. ;   loss and dz as in softmax_xent of the last layer's result;
//   .. dz1 = (dz2 W1) * relu'(y1);   dx = dz1 W0, or that * relu'(x)
// A row needs no other row, so a block of threads takes some rows from x to dx, with all weights in
// its shared memory: what would be three launches and more, each waiting for the last, is one. What
// the gradients of the weights read, every y and dz, is written. Devices with kernels only: on the
// CPU the ops it stands for keep their operands in cache anyway.
#include "ops/fused/row_chain.h"

#include "core/device/memory.h"
#include "core/numbers.h"
#include "ops/fused/reference.h"
#include "ops/kernels.h"

// B batch, C classes; layer l is [O, I]
namespace sinter {
namespace {

enum : size_t { kX, kLabels, kSeed, kFirst };  // then weight and bias of each layer

size_t layers_of(Operands in) { return (in.size() + 1 - kFirst) / 2; }
const Tensor& weight_of(Operands in, size_t l) { return in[kFirst + 2 * l]; }
Tensor bias_of(Operands in, size_t l) { return optional_input(in, kFirst + 2 * l + 1); }

Tensors reference(Operands in, const Attrs& attrs) {
  const auto& [smoothing, input_grad, of_relu] = attrs.as<RowChainAttrs>();
  const size_t last = layers_of(in) - 1;
  const DType dtype = in[kX].dtype();
  Tensors rows{in[kX]}, grads;
  for (size_t l = 0; l < last; ++l) {
    const Tensors operands{rows[l], weight_of(in, l), bias_of(in, l)};
    rows.push_back(call_fused(kLinearActOp, operands, LinearActAttrs{Act::relu, false, dtype})[0]);
  }
  const Tensors head{
      rows[last], weight_of(in, last), in[kLabels], in[kSeed], bias_of(in, last), rows[last]};
  Tensors out = call_fused(kClassifierHeadOp, head, HeadAttrs{Act::relu, smoothing});
  grads.push_back(out[2]);
  for (size_t l = last; l-- > 0;) {
    if (l == 0 && !input_grad) break;
    if (l > 0 || of_relu) {
      const Tensors operands{grads.back(), weight_of(in, l), rows[l]};
      grads.push_back(call_fused(kInputGradActOp, operands, InputGradActAttrs{Act::relu})[0]);
    } else {
      grads.push_back(matmul_as(grads.back(), weight_of(in, 0), false, false, dtype, Role::dgrad));
    }
  }
  out.pop_back();
  out.insert(out.end(), rows.begin() + 1, rows.end());
  out.insert(out.end(), grads.begin(), grads.end());
  return out;
}

std::string limit(Operands in, const Attrs&) {
  const std::vector<int64_t> widths = chain_widths(in);
  const size_t bytes = ChainLayout(widths, in[kX].dtype()).bytes(),
               most = shared_memory_limit(in[kX].device());
  if (bytes <= most) return "";
  std::string chain;
  for (const int64_t width : widths) chain += (chain.empty() ? "" : "-") + std::to_string(width);
  return cat("weights and ", ChainLayout::kRows, " rows of ", chain, " take ", bytes,
      " bytes of shared memory; at most ", most, " bytes");
}

std::vector<Form> forms() {
  std::vector<Form> all;
  for (size_t layers = kChainLayers; layers >= 2; --layers) {
    Tensors in{Tensor::meta({2, 3}), Tensor::meta({2}, DType::i32), Tensor::meta({2})};
    for (size_t l = 0; l < layers; ++l) {
      const int64_t ins = l % 2 == 0 ? 3 : 4, outs = 7 - ins;
      in.insert(in.end(), {Tensor::meta({outs, ins}), Tensor::meta({outs})});
    }
    all.push_back({in, RowChainAttrs{.input_grad = true, .of_relu = true}});
    all.push_back({in, RowChainAttrs{.input_grad = true}});
    all.push_back({in, RowChainAttrs{}});
  }
  return all;
}

Tensors infer(Operands in, const Attrs& attrs) {
  const size_t layers = layers_of(in);
  SINTER_CHECK(2 <= layers && layers <= kChainLayers, shape,
      cat("row_chain: ", in.size(), " inputs given; it takes ", int(kFirst),
          ", and weight and bias of 2 to ", kChainLayers, " layers"));
  return infer_by_reference(kRowChainOp, in, attrs);
}

}  // namespace

std::vector<int64_t> chain_widths(std::span<const Tensor> in) {
  std::vector<int64_t> widths{in[kX].size(1)};
  for (size_t l = 0; l < layers_of(in); ++l) widths.push_back(weight_of(in, l).size(0));
  return widths;
}

const OpDef kRowChainOp{.name = "row_chain",
    .formula =
        "y = relu(x W^T + b) of some layers, the last layer's loss and dz as "
        "classifier_head gives them, then dz of the other layers: all of a row at once",
    .min_inputs = kFirst,
    .max_inputs = kFirst + 2 * kChainLayers,
    .attrs = attr_type<RowChainAttrs>(),
    .infer = infer,
    .cost = cost_of_reference<kRowChainOp>,
    SINTER_KERNELS(row_chain),
    .strided = 1u << kSeed,
    .reference = reference,
    .limit = limit,
    .forms = forms};

}  // namespace sinter
