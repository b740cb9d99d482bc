// Views: another shape and strides on the same storage; nothing is launched.
#include "ops/ops.h"
#include "ops/pointwise/pointwise_loops.h"

namespace sinter {
namespace {

Tensor view(const Tensor& x, const Shape& shape, const Strides& strides, int64_t skip = 0) {
  return Tensor::view_of(x.storage(), x.dtype(), shape, strides, x.offset() + skip);
}

// ---- reshape
Tensor reshape_view(Operands in, const Attrs& attrs) {
  const Tensor& x = in[0];
  Shape shape = attrs.as<ShapeAttrs>().shape;
  const auto facts = [&] { return str("x is ", x.describe(), ", wanted ", shape.str()); };
  int64_t known = 1;
  int unknown = -1;
  for (int d = 0; d < shape.rank(); ++d) {
    SINTER_CHECK(shape[d] >= 0 || (shape[d] == -1 && unknown < 0), shape,
        str("reshape: bad size: ", facts(), "; sizes are >= 0, and one may be -1"));
    if (shape[d] < 0) {
      unknown = d;
    } else {
      known *= shape[d];
    }
  }
  if (unknown >= 0) {
    SINTER_CHECK(known > 0 && x.numel() % known == 0, shape,
        str("reshape: element counts differ: ", facts(), "; ", x.numel(), " is no multiple of ",
            known));
    shape[unknown] = x.numel() / known;
  }
  SINTER_CHECK(shape.numel() == x.numel(), shape,
      str("reshape: element counts differ: ", facts(), "; ", x.numel(), " and ", shape.numel()));
  SINTER_CHECK(x.is_contiguous(), shape,
      str("reshape: a dense tensor is wanted: ", facts(), "; x has strides ", x.strides().str()),
      "contiguous(x)");
  return view(x, shape, contiguous_strides(shape));
}
Tensors reshape_grad(const Saved& saved, Operands grads) {
  return {reshape(grads[0], saved.in[0].shape())};
}

// ---- transpose
Tensor transpose_view(Operands in, const Attrs& attrs) {
  const Tensor& x = in[0];
  const auto& a = attrs.as<TransposeAttrs>();
  SINTER_CHECK(x.rank() >= 2, shape,
      str("transpose: two dims are wanted: x is ", x.describe(), "; it has ", x.rank()));
  const int i = normalize_dim("transpose", a.dim0, x.rank()),
            j = normalize_dim("transpose", a.dim1, x.rank());
  Shape shape = x.shape();
  Strides strides = x.strides();
  std::swap(shape[i], shape[j]);
  std::swap(strides[i], strides[j]);
  return view(x, shape, strides);
}
Tensors transpose_grad(const Saved& saved, Operands grads) {
  const auto& a = saved.as<TransposeAttrs>();
  return {transpose(grads[0], a.dim0, a.dim1)};
}

// ---- slice; its adjoint, pad_slice, is in ops/shape/cat.cpp
Tensor slice_view(Operands in, const Attrs& attrs) {
  const Tensor& x = in[0];
  const auto& a = attrs.as<SliceAttrs>();
  const int d = normalize_dim("slice", a.dim, x.rank());
  const int64_t size = x.size(d), begin = a.begin < 0 ? a.begin + size : a.begin,
                end = a.end < 0 ? a.end + size : a.end;
  SINTER_CHECK(0 <= begin && begin <= end && end <= size, shape,
      str("slice: out of range: x is ", x.describe(), "; [", a.begin, ", ", a.end, ") of dim ", d,
          ", which has ", size));
  Shape shape = x.shape();
  shape[d] = end - begin;
  return view(x, shape, x.strides(), begin * x.strides()[d]);
}
Tensors slice_grad(const Saved& saved, Operands grads) {
  const auto& a = saved.as<SliceAttrs>();
  const Tensor& x = saved.in[0];
  const int d = normalize_dim("slice", a.dim, x.rank());
  return {apply1(kPadSliceOp, {grads[0]},
      PadSliceAttrs{d, a.begin < 0 ? a.begin + x.size(d) : a.begin, x.size(d)})};
}

// ---- broadcast_to
Tensor broadcast_view(Operands in, const Attrs& attrs) {
  const Tensor& x = in[0];
  const Shape& shape = attrs.as<ShapeAttrs>().shape;
  const int extra = shape.rank() - x.rank();
  SINTER_CHECK(extra >= 0, shape,
      str("broadcast_to: too few dims: x is ", x.describe(), ", wanted ", shape.str(), "; ",
          x.rank(), " and ", shape.rank()));
  Strides strides = shape;
  for (int d = 0; d < shape.rank(); ++d) {
    const int64_t size = d < extra ? 1 : x.size(d - extra);
    SINTER_CHECK(size == shape[d] || (size == 1 && shape[d] >= 0), shape,
        str("broadcast_to: shapes do not fit: x is ", x.describe(), ", wanted ", shape.str(),
            "; at dim ", d, " ", size, " is neither 1 nor ", shape[d]));
    strides[d] = size == 1 ? 0 : x.strides()[d - extra];
  }
  return view(x, shape, strides);
}
Tensors broadcast_grad(const Saved& saved, Operands grads) {
  return {sum_to(grads[0], saved.in[0].shape())};
}

// ---- low_precision: the bf16 copy that the optimizer keeps beside an f32 weight
Tensor low_view(Operands in, const Attrs&) {
  const Tensor& weight = in[0];
  const Tensor bf16_copy = weight.has_autograd() ? weight.autograd().bf16_copy : Tensor();
  SINTER_CHECK(bf16_copy.defined(), state,
      str("low_precision: no bf16 copy: weight is ", weight.describe(),
          "; an optimizer or the model must make it first"));
  check_same_shape("low_precision", "weight", weight, "copy", bf16_copy);
  return view(bf16_copy, bf16_copy.shape(), bf16_copy.strides());
}
Tensors pass(const Saved&, Operands grads) { return {grads[0]}; }
// ---- detach
Tensor detach_view(Operands in, const Attrs&) {
  return view(in[0], in[0].shape(), in[0].strides());
}

}  // namespace

const OpDef kReshapeOp{.name = "reshape",
    .formula = "y = x in another shape, on the same memory",
    .attrs = attr_type<ShapeAttrs>(),
    .view = reshape_view,
    .backward = reshape_grad};

const OpDef kTransposeOp{.name = "transpose",
    .formula = "y = x with two dims exchanged, on the same memory",
    .attrs = attr_type<TransposeAttrs>(),
    .view = transpose_view,
    .backward = transpose_grad};

const OpDef kSliceOp{.name = "slice",
    .formula = "y = x[begin:end] along a dim, on the same memory",
    .attrs = attr_type<SliceAttrs>(),
    .view = slice_view,
    .backward = slice_grad};

const OpDef kBroadcastToOp{.name = "broadcast_to",
    .formula = "y = x repeated along dims, on the same memory",
    .attrs = attr_type<ShapeAttrs>(),
    .view = broadcast_view,
    .backward = broadcast_grad};

const OpDef kLowPrecisionOp{.name = "low_precision",
    .formula = "y = the bf16 copy of a weight",
    .view = low_view,
    .backward = pass};

const OpDef kDetachOp{.name = "detach", .formula = "y = x, off the tape", .view = detach_view};

Tensor reshape(const Tensor& x, const Shape& shape) {
  check_defined("reshape", "x", x);
  return apply1(kReshapeOp, {contiguous(x)}, ShapeAttrs{shape});
}
Tensor transpose(const Tensor& x, int64_t dim0, int64_t dim1) {
  return apply1(kTransposeOp, {x}, TransposeAttrs{dim0, dim1});
}
// One exchange for each dim that is not yet in its place.
Tensor permute(const Tensor& x, const Dims& dims) {
  check_defined("permute", "x", x);
  const int rank = x.rank();
  SINTER_CHECK(dims.rank() == rank, shape,
      str("permute: wrong number of dims: ", dims.str(), " for x ", x.describe(), "; it has ",
          rank));
  Dims from = dims;  // from[d]: which dim of `out` is to be number d
  unsigned seen = 0;
  for (int d = 0; d < rank; ++d) seen |= 1u << (from[d] = normalize_dim("permute", dims[d], rank));
  SINTER_CHECK(seen == (1u << rank) - 1, shape,
      str("permute: a dim stands twice: ", dims.str(), "; each of 0..", rank - 1, " once"));
  Tensor out = x;
  for (int d = 0; d < rank; ++d) {
    if (from[d] == d) continue;
    out = transpose(out, d, from[d]);
    for (int later = d + 1; later < rank; ++later) {
      if (from[later] == d) from[later] = from[d];
    }
  }
  return out;
}
Tensor slice(const Tensor& x, int64_t dim, int64_t begin, int64_t end) {
  return apply1(kSliceOp, {x}, SliceAttrs{dim, begin, end});
}
Tensor broadcast_to(const Tensor& x, const Shape& shape) {
  check_defined("broadcast_to", "x", x);
  return x.shape() == shape ? x : apply1(kBroadcastToOp, {x}, ShapeAttrs{shape});
}
Tensor flatten(const Tensor& x, int64_t from_dim) {
  check_defined("flatten", "x", x);
  const int from = normalize_dim("flatten", from_dim, x.rank());
  Shape shape;
  for (int d = 0; d < from; ++d) shape.push_back(x.size(d));
  shape.push_back(numel_of_dims(x, from));
  return reshape(x, shape);
}
Tensor detach(const Tensor& x) { return apply1(kDetachOp, {x}); }
Tensor low_precision(const Tensor& weight) {
  check_defined("low_precision", "weight", weight);
  bf16_copy_of(weight);
  return apply1(kLowPrecisionOp, {weight});
}

}  // namespace sinter
