// copy: the same values, dense. cast: another element type. Both take any strides.
#include "ops/copy.h"

#include "ops/kernels.h"
#include "ops/ops.h"
#include "ops/pointwise_loops.h"

namespace sinter {
namespace {

template <class To, class From> void convert_rows(const Tensor& x, const Tensor& y) {
  pointwise_rows<1, From, To>(
      x.shape(), {&x, &y}, sizeof(From) + sizeof(To), [](const From* from, To* to, int64_t n) {
        for (int64_t i = 0; i < n; ++i) to[i] = convert<To>(from[i]);
      });
}

Tensors infer_copy(Operands in, const Attrs&) { return {meta_like(in[0])}; }
Tensors infer_cast(Operands in, const Attrs& attrs) {
  return {Tensor::shape_only(in[0].shape(), attrs.as<CastAttrs>().dtype, in[0].device())};
}

void copy_cpu(const Call& call) {
  visit_all(call.in[0].dtype(), [&]<class T>(T) { convert_rows<T, T>(call.in[0], call.out[0]); });
}

void cast_cpu(const Call& call) {
  visit_all(call.in[0].dtype(), [&]<class From>(From) {
    visit_all(call.out[0].dtype(),
        [&]<class To>(To) { convert_rows<To, From>(call.in[0], call.out[0]); });
  });
}

Tensors copy_grad(const Saved&, Operands grads) { return {grads[0]}; }
Tensors cast_grad(const Saved& saved, Operands grads) {
  return {cast(grads[0], saved.in[0].dtype())};
}

}  // namespace

const OpDef kCopyOp{.name = "copy",
    .formula = "y = x, dense",
    .infer = infer_copy,
    .cost = cost_per_element<0>,
    .cpu = copy_cpu,
    SINTER_KERNELS(copy),
    .backward = copy_grad,
    .strided = 1};
const OpDef kCastOp{.name = "cast",
    .formula = "y = x, in another element type",
    .attrs = attr_type<CastAttrs>(),
    .infer = infer_cast,
    .cost = cost_per_element<0>,
    .cpu = cast_cpu,
    SINTER_KERNELS(cast),
    .backward = cast_grad,
    .strided = 1};

Tensor copy(const Tensor& x) { return apply1(kCopyOp, {x}); }
Tensor cast(const Tensor& x, DType dtype) { return apply1(kCastOp, {x}, CastAttrs{dtype}); }
Tensor contiguous(const Tensor& x) {
  check_defined("contiguous", "x", x);
  return x.is_contiguous() ? x : copy(x);
}

}  // namespace sinter
