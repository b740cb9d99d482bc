// gather_linear_act: gather_batch and the first layer as one: y = act(x W^T + b), x the drawn rows
// as numbers, which are written too: the weight gradient reads them. Devices with kernels only.
#include "ops/fused/fused.h"
#include "ops/gather_batch.h"
#include "ops/kernels.h"
#include "ops/structured.h"

// N items of the set, B of the batch, I pixels of an image, O out
namespace sinter {
namespace {

constexpr size_t kGather = 3;  // operands of gather_batch, and its two results

GatherBatchAttrs gather_attrs(const GatherLinearActAttrs& a) {
  return {.out = a.out, .mnist = a.mnist};
}
LinearActAttrs linear_attrs(const GatherLinearActAttrs& a) { return {a.act, a.keep, a.out}; }
Tensors layer_of(const Tensor& x, Operands in) {
  return {x, in[kGather], in.size() > kGather + 1 ? in[kGather + 1] : Tensor()};
}

Tensors infer(Operands in, const Attrs& attrs) {
  const auto& a = attrs.as<GatherLinearActAttrs>();
  Tensors out = kGatherBatchOp.infer(in.first(kGather), gather_attrs(a));
  const Tensor& weight = in[kGather];
  check_rank("gather_linear_act", "weight", weight, 2);
  SINTER_CHECK(weight.size(1) == out[0].size(1) && weight.size(0) > 0, shape,
      cat("gather_linear_act: features differ: ",
          describe({{"images", &in[0]}, {"weight", &weight}}), "; an image has ", out[0].size(1),
          " pixels, weight.shape is ", weight.shape().str()));
  const Tensors layer = kLinearActOp.infer(layer_of(out[0], in), linear_attrs(a));
  out.insert(out.end(), layer.begin(), layer.end());
  return out;
}

// Both, without reading x.
Cost cost(Operands in, Operands out, const Attrs& attrs) {
  const auto& a = attrs.as<GatherLinearActAttrs>();
  Cost c = kGatherBatchOp.cost(in.first(kGather), out.first(2), gather_attrs(a)) +
           kLinearActOp.cost(layer_of(out[0], in), out.subspan(2), linear_attrs(a));
  c.bytes_read -= bytes_of(out[0]);
  return c;
}

Tensors reference(Operands in, const Attrs& attrs) {
  const auto& a = attrs.as<GatherLinearActAttrs>();
  Tensors out = apply(kGatherBatchOp, {in[0], in[1], in[2]}, GatherBatchAttrs{.mnist = a.mnist});
  out[0] = cast(out[0], a.out);
  const Tensors layer = kLinearActOp.reference(layer_of(out[0], in), linear_attrs(a));
  out.insert(out.end(), layer.begin(), layer.end());
  return out;
}

}  // namespace

const OpDef kGatherLinearActOp{.name = "gather_linear_act",
    .min_inputs = 4,
    .max_inputs = 5,
    .attrs = attr_type<GatherLinearActAttrs>(),
    .infer = infer,
    .cost = cost,
    .cuda = SINTER_IF_CUDA(on_cuda::gather_linear_act),
    .simt = on_simt::gather_linear_act,
    .reference = reference};

}  // namespace sinter
