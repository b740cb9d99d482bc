// copy: the same values, dense. cast: another element type. Both take any strides. renew_copy: a
// weight, rounded into the bf16 copy that it has. accumulate: into += value, in place, the sum of
// gradients that reach one tensor on several ways; no gradient. masked_fill_: a number in place of
// what a mask says; no gradient.
#include "core/convert.h"

#include <mutex>

#include "ops/kernels.h"
#include "ops/ops.h"
#include "ops/pointwise/pointwise_loops.h"

namespace sinter {
namespace {

template <class To, class From> void convert_rows(const Tensor& x, const Tensor& y) {
  pointwise_rows<1, From, To>(
      x.shape(), {&x, &y}, sizeof(From) + sizeof(To), [](const From* from, To* to, int64_t n) {
        for (int64_t i = 0; i < n; ++i) to[i] = convert<To>(from[i]);
      });
}

void copy_cpu(const Call& call) {
  visit_all(call.in[0].dtype(), [&]<class T>(T) { convert_rows<T, T>(call.in[0], call.out[0]); });
}

void cast_to(const Tensor& y, const Tensor& x) {
  visit_all(x.dtype(), [&]<class From>(From) {
    visit_all(y.dtype(), [&]<class To>(To) { convert_rows<To, From>(x, y); });
  });
}
void cast_cpu(const Call& call) { cast_to(call.out[0], call.in[0]); }

Cost cost_renew(Operands in, Operands, const Attrs&) { return cost_of(0, in.first(1), in.last(1)); }
void renew_cpu(const Call& call) { cast_to(call.in[1], call.in[0]); }

void accumulate_cpu(const Call& call) {
  const Tensor &into = call.in[0], &value = call.in[1];
  visit_float(into.dtype(), [&]<class T>(T) {
    visit_float(value.dtype(), [&]<class From>(From) {
      using V = compute_t<T>;
      pointwise_rows<1, From, T>(into.shape(), {&value, &into}, sizeof(From) + 2 * sizeof(T),
          [](const From* from, T* to, int64_t n) {
            for (int64_t i = 0; i < n; ++i) to[i] = T(V(to[i]) + V(from[i]));
          });
    });
  });
}

void check_mask(Operands in, const Attrs&) {
  SINTER_CHECK(broadcasts_to(in[1].shape(), in[0].shape()), shape,
      str("masked_fill_: the mask does not fit: ", describe({{"x", &in[0]}, {"mask", &in[1]}}),
          "; it must broadcast to ", in[0].shape().str()));
}
void fill_cpu(const Call& call) {
  const Tensor &x = call.in[0], &mask = call.in[1];
  visit_float(x.dtype(), [&]<class T>(T) {
    pointwise_rows<1, uint8_t, T>(x.shape(), {&mask, &x}, 1 + 2 * sizeof(T),
        [value = T(call.as<FillAttrs>().value)](const uint8_t* fills, T* to, int64_t n) {
          for (int64_t i = 0; i < n; ++i) to[i] = fills[i] ? value : to[i];
        });
  });
}

// All elements of a storage, in a row.
Tensor whole(const Tensor& t) {
  const int64_t n = int64_t(t.storage()->bytes() / size_of(t.dtype()));
  return Tensor::view_of(t.storage(), t.dtype(), {n}, {1}, 0);
}

Tensors copy_grad(const Saved&, Operands grads) { return {grads[0]}; }
Tensors cast_grad(const Saved& saved, Operands grads) {
  return {cast(grads[0], saved.in[0].dtype())};
}

}  // namespace

const OpDef kCopyOp = listed<kCopyOp>({.formula = "y = x, dense",
    .cost = cost_per_element<0>,
    .cpu = copy_cpu,
    .backward = copy_grad,
    .strided = 1});
const OpDef kCastOp = listed<kCastOp>({.formula = "y = x, in another element type",
    .attrs = attr_type<CastAttrs>(),
    .cost = cost_per_element<0>,
    .cpu = cast_cpu,
    .backward = cast_grad,
    .strided = 1});
const OpDef kRenewCopyOp =
    listed<kRenewCopyOp>({.formula = "copy = weight, in the copy's element type",
        .cost = cost_renew,
        .cpu = renew_cpu,
        .strided = 0b01});
const OpDef kAccumulateOp = listed<kAccumulateOp>({.formula = "into += value",
    .cost = cost_per_element<kAccumulateOp, 1>,
    .cpu = accumulate_cpu,
    .strided = 0b11});
const OpDef kMaskedFillInPlaceOp =
    listed<kMaskedFillInPlaceOp>({.formula = "x = value where the mask is not 0",
        .attrs = attr_type<FillAttrs>(),
        .check = check_mask,
        .cost = cost_per_element<kMaskedFillInPlaceOp, 1>,
        .cpu = fill_cpu,
        .strided = 0b11});

Tensor copy(const Tensor& x) { return apply1(kCopyOp, {x}); }
Tensor cast(const Tensor& x, DType dtype) { return apply1(kCastOp, {x}, CastAttrs{dtype}); }
void accumulate(const Tensor& into, const Tensor& value) {
  // Elements of `into` that stand for others of it are read before the first is written.
  const bool shifted = into.defined() && value.defined() && into.storage() == value.storage() &&
                       (into.offset() != value.offset() || into.strides() != value.strides());
  apply(kAccumulateOp, {into, shifted ? copy(value) : value});
}
void masked_fill_(const Tensor& x, const Tensor& mask, double value) {
  const bool bytes = !mask.defined() || mask.dtype() == DType::u8;
  apply(kMaskedFillInPlaceOp, {x, bytes ? mask : cast(mask != 0, DType::u8)}, FillAttrs{value});
}
Tensor contiguous(const Tensor& x) {
  check_defined("contiguous", "x", x);
  return x.is_contiguous() ? x : copy(x);
}

// Weights that share a storage share that of their copies, too (Glu's): then the versions are those
// of both, and all is renewed at once.
void renew_bf16_copy(const Tensor& weight, const Tensor& copy) {
  check_defined("renew_bf16_copy", "weight", weight);
  check_defined("renew_bf16_copy", "copy", copy);
  const Storage& source = *weight.storage();
  if (copy.storage()->follows(source)) return;
  static std::mutex renewing;  // threads may share a model, which was loaded a moment ago
  const std::lock_guard lock(renewing);
  if (copy.storage()->follows(source)) return;
  Tensor from = whole(weight), to = whole(copy);
  const bool same_place = from.numel() == to.numel() && weight.offset() == copy.offset() &&
                          weight.strides() == copy.strides();
  SINTER_CHECK(same_place || copy.numel() == to.numel(), state,
      str("renew_copy: the copy shares its storage, and lies otherwise in it than the weight: ",
          describe({{"weight", &weight}, {"copy", &copy}}), "; strides ", weight.strides().str(),
          " and ", copy.strides().str(), ", offsets ", weight.offset(), " and ", copy.offset()),
      "give the copy a storage of its own");
  if (!same_place) {
    from = detach(weight);
    to = copy;
  }
  apply(kRenewCopyOp, {from, to});
  copy.storage()->follow(source);
}

Tensor bf16_copy_of(const Tensor& weight) {
  check_defined("bf16_copy_of", "weight", weight);
  const Tensor copy = weight.has_autograd() ? weight.autograd().bf16_copy : Tensor();
  if (copy.defined()) renew_bf16_copy(weight, copy);
  return copy;
}

}  // namespace sinter
