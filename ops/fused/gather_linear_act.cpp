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

std::vector<Sample> samples() {
  const auto make = [](int64_t b, int64_t o, const Shape& image, bool mnist, Act act, Keep keep,
                        const char* what, bool bias = true) {
    Shape set = image;
    int64_t pixels = 1;
    for (int d = 1; d < set.rank(); ++d) pixels *= set[d];
    Tensor images = Tensor::empty(set, DType::u8), index = Tensor::empty({b}, DType::i64);
    for (int64_t i = 0; i < images.numel(); ++i)
      images.data<uint8_t>()[i] = static_cast<uint8_t>(i * 37);
    for (int64_t i = 0; i < b; ++i) index.data<int64_t>()[i] = (i * 5 + 2) % set[0];
    return Sample{.in = {images, sample_labels(set[0], 10, 3), index, sample_tensor({o, pixels}, 1),
                      bias ? sample_tensor({o}, 2) : Tensor()},
        .attrs = GatherLinearActAttrs{mnist, act, keep},
        .what = what,
        .differentiable = false};
  };
  Sample bad = make(4, 5, {9, 3, 3}, false, Act::relu, Keep::mask, "features differ");
  bad.in[3] = sample_tensor({5, 8}, 1);
  bad.attrs = GatherLinearActAttrs{};
  bad.bad = true;
  return {make(17, 77, {9, 28, 28}, true, Act::relu, Keep::mask, "mnist, odd"),
      make(97, 333, {11, 7, 11}, false, Act::relu, Keep::mask, "ragged, 77 pixels"),
      make(65, 129, {9, 8, 8}, true, Act::gelu, Keep::pre, "gelu, two tiles"),
      make(1, 10, {3, 5, 1}, false, Act::sigmoid, Keep::nothing, "one row, no bias", false),
      make(64, 64, {7, 4, 16}, false, Act::relu, Keep::mask, "whole tiles"),
      make(0, 7, {5, 4}, true, Act::relu, Keep::mask, "empty batch"), bad};
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
    .samples = samples,
    .reference = reference};

}  // namespace sinter
