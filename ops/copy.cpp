// copy: the same values, dense. cast: another element type. Both take any strides.
#include "ops/copy.h"

#include "ops/kernels.h"
#include "ops/pointwise_loops.h"
#include "ops/structured.h"

namespace sinter {
namespace {

template <class To, class From>
void convert_rows(const Tensor& x, const Tensor& y) {
  pointwise_rows<From, To>(x.shape(), {&x, &y}, sizeof(From) + sizeof(To),
      [](const From* from, To* to, const std::array<int64_t, 2>& stride, int64_t n) {
        if (stride[0] == 1) {
          for (int64_t i = 0; i < n; ++i) to[i] = convert<To>(from[i]);
        } else {
          for (int64_t i = 0; i < n; ++i) to[i] = convert<To>(from[i * stride[0]]);
        }
      });
}

Tensors infer_copy(Operands in, const Attrs&) { return {meta_like(in[0])}; }
Tensors infer_cast(Operands in, const Attrs& attrs) {
  return {Tensor::meta(in[0].shape(), attrs.as<CastAttrs>().dtype, in[0].device())};
}
Cost cost(Operands in, Operands out, const Attrs&) { return cost_of(0, in, out); }

void copy_cpu(const Call& call) {
  visit_all(call.in[0].dtype(),
      [&](auto zero) { convert_rows<decltype(zero), decltype(zero)>(call.in[0], call.out[0]); });
}

void cast_cpu(const Call& call) {
  visit_all(call.in[0].dtype(), [&](auto from) {
    visit_all(call.out[0].dtype(),
        [&](auto to) { convert_rows<decltype(to), decltype(from)>(call.in[0], call.out[0]); });
  });
}

Tensors copy_grad(const Saved&, Operands grads) { return {grads[0]}; }
Tensors cast_grad(const Saved& saved, Operands grads) {
  return {cast(grads[0], saved.in[0].dtype())};
}

std::vector<Sample> samples(const Attrs& attrs) {
  return {{.in = {sample_tensor({5, 7}, 1)}, .attrs = attrs, .what = "odd"},
      {.in = {sample_tensor({17}, 2)}, .attrs = attrs, .what = "one dim"},
      {.in = {sample_tensor({}, 3)}, .attrs = attrs, .what = "scalar"},
      {.in = {sample_tensor({0, 3}, 4)}, .attrs = attrs, .what = "empty batch"},
      {.in = {transpose(sample_tensor({6, 4}, 5))}, .attrs = attrs, .what = "transposed"},
      {.in = {transpose(sample_tensor({3, 4, 5}, 6), 0, 2)},
          .attrs = attrs,
          .what = "three dims, transposed"},
      {.in = {broadcast_to(sample_tensor({1, 4}, 7), {3, 4})},
          .attrs = attrs,
          .what = "spread rows",
          .differentiable = false},
      {.in = {Tensor::full({3, 2}, 7, DType::u8)},
          .attrs = attrs,
          .what = "bytes",
          .differentiable = false}};
}
std::vector<Sample> copy_samples() { return samples({}); }
std::vector<Sample> cast_samples() { return samples(CastAttrs{DType::f64}); }

}  // namespace

const OpDef kCopyOp{.name = "copy",
    .infer = infer_copy,
    .cost = cost,
    .cpu = copy_cpu,
    .cuda = SINTER_IF_CUDA(on_cuda::copy),
    .simt = on_simt::copy,
    .backward = copy_grad,
    .strided = 1,
    .samples = copy_samples};
const OpDef kCastOp{.name = "cast",
    .attrs = attr_type<CastAttrs>(),
    .infer = infer_cast,
    .cost = cost,
    .cpu = cast_cpu,
    .cuda = SINTER_IF_CUDA(on_cuda::cast),
    .simt = on_simt::cast,
    .backward = cast_grad,
    .strided = 1,
    .samples = cast_samples};

Tensor copy(const Tensor& x) { return apply1(kCopyOp, {x}); }
Tensor cast(const Tensor& x, DType dtype) { return apply1(kCastOp, {x}, CastAttrs{dtype}); }
Tensor contiguous(const Tensor& x) {
  check_defined("contiguous", "x", x);
  return x.is_contiguous() ? x : copy(x);
}

}  // namespace sinter
