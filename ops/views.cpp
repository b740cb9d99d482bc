// Views: another shape and strides on the same storage; nothing is launched. And pad_slice, the
// adjoint of slice.
#include "ops/kernels.h"
#include "ops/pointwise_loops.h"
#include "ops/structured.h"

namespace sinter {
namespace {

Tensor view(const Tensor& x, const Shape& shape, const Strides& strides, int64_t skip = 0) {
  return Tensor::view_of(x.storage(), x.dtype(), shape, strides, x.offset() + skip);
}

// ---- reshape
Tensor reshape_view(Operands in, const Attrs& attrs) {
  const Tensor& x = in[0];
  Shape shape = attrs.as<ShapeAttrs>().shape;
  const auto facts = [&] { return cat("x is ", x.describe(), ", wanted ", shape.str()); };
  int64_t known = 1;
  int unknown = -1;
  for (int d = 0; d < shape.rank(); ++d) {
    SINTER_CHECK(shape[d] >= 0 || (shape[d] == -1 && unknown < 0), shape,
        cat("reshape: bad size: ", facts(), "; sizes are >= 0, and one may be -1"));
    if (shape[d] < 0) {
      unknown = d;
    } else {
      known *= shape[d];
    }
  }
  if (unknown >= 0) {
    SINTER_CHECK(known > 0 && x.numel() % known == 0, shape,
        cat("reshape: element counts differ: ", facts(), "; ", x.numel(), " is no multiple of ",
            known));
    shape[unknown] = x.numel() / known;
  }
  SINTER_CHECK(shape.numel() == x.numel(), shape,
      cat("reshape: element counts differ: ", facts(), "; ", x.numel(), " and ", shape.numel()));
  SINTER_CHECK(x.is_contiguous(), shape,
      cat("reshape: a dense tensor is wanted: ", facts(), "; x has strides ", x.strides().str()),
      "contiguous(x)");
  return view(x, shape, contiguous_strides(shape));
}
Tensors reshape_grad(const Saved& saved, Operands grads) {
  return {reshape(grads[0], saved.in[0].shape())};
}
std::vector<Sample> reshape_samples() {
  return {{.in = {sample_tensor({4, 6}, 1)}, .attrs = ShapeAttrs{{3, 8}}, .what = "plain"},
      {.in = {sample_tensor({2, 3, 5}, 2)}, .attrs = ShapeAttrs{{2, -1}}, .what = "one size open"},
      {.in = {sample_tensor({0, 6}, 3)}, .attrs = ShapeAttrs{{0, 2, 3}}, .what = "empty batch"},
      bad_sample({sample_tensor({4, 6}, 4)}, ShapeAttrs{{5, 5}}, "counts differ"),
      bad_sample({sample_tensor({4, 6}, 4)}, ShapeAttrs{{-1, 5}}, "no multiple"),
      bad_sample({sample_tensor({4, 6}, 4)}, ShapeAttrs{{-1, -1}}, "two open sizes")};
}

// ---- transpose
Tensor transpose_view(Operands in, const Attrs& attrs) {
  const Tensor& x = in[0];
  const auto& a = attrs.as<TransposeAttrs>();
  SINTER_CHECK(x.rank() >= 2, shape,
      cat("transpose: two dims are wanted: x is ", x.describe(), "; it has ", x.rank()));
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
std::vector<Sample> transpose_samples() {
  return {{.in = {sample_tensor({4, 6}, 1)}, .attrs = TransposeAttrs{}, .what = "plain"},
      {.in = {sample_tensor({2, 3, 5}, 2)}, .attrs = TransposeAttrs{0, 2}, .what = "three dims"},
      {.in = {sample_tensor({0, 6}, 3)}, .attrs = TransposeAttrs{0, 1}, .what = "empty batch"},
      bad_sample({sample_tensor({4}, 4)}, TransposeAttrs{}, "one dim"),
      bad_sample({sample_tensor({4, 6}, 4)}, TransposeAttrs{0, 2}, "no such dim")};
}

// ---- slice and its adjoint
Tensor slice_view(Operands in, const Attrs& attrs) {
  const Tensor& x = in[0];
  const auto& a = attrs.as<SliceAttrs>();
  const int d = normalize_dim("slice", a.dim, x.rank());
  const int64_t size = x.size(d), begin = a.begin < 0 ? a.begin + size : a.begin,
                end = a.end < 0 ? a.end + size : a.end;
  SINTER_CHECK(0 <= begin && begin <= end && end <= size, shape,
      cat("slice: out of range: x is ", x.describe(), "; [", a.begin, ", ", a.end, ") of dim ", d,
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
std::vector<Sample> slice_samples() {
  return {{.in = {sample_tensor({7, 5}, 1)}, .attrs = SliceAttrs{0, 2, 6}, .what = "rows"},
      {.in = {sample_tensor({3, 9}, 2)},
          .attrs = SliceAttrs{1, -4, -1},
          .what = "columns from the end"},
      {.in = {sample_tensor({3, 9}, 3)}, .attrs = SliceAttrs{1, 4, 4}, .what = "nothing"},
      {.in = {sample_tensor({0, 9}, 3)}, .attrs = SliceAttrs{1, 2, 4}, .what = "empty batch"},
      bad_sample({sample_tensor({3, 9}, 4)}, SliceAttrs{1, 4, 10}, "beyond the end"),
      bad_sample({sample_tensor({3, 9}, 4)}, SliceAttrs{2, 0, 1}, "no such dim")};
}

Tensors pad_slice_infer(Operands in, const Attrs& attrs) {
  const auto& a = attrs.as<PadSliceAttrs>();
  const int d = normalize_dim("pad_slice", a.dim, in[0].rank());
  SINTER_CHECK(a.begin >= 0 && a.begin + in[0].size(d) <= a.size, shape,
      cat("pad_slice: out of range: dy is ", in[0].describe(), "; begin ", a.begin, " of dim ", d,
          ", which has ", a.size));
  Shape shape = in[0].shape();
  shape[d] = a.size;
  return {Tensor::meta(shape, in[0].dtype(), in[0].device())};
}
Cost pad_slice_cost(Operands in, Operands out, const Attrs&) { return cost_of(0, in, out); }
void pad_slice_cpu(const Call& call) {
  const auto& a = call.as<PadSliceAttrs>();
  const Tensor &dy = call.in[0], &dx = call.out[0];
  const int d = normalize_dim("pad_slice", a.dim, dy.rank());
  int64_t outer = 1, inner = static_cast<int64_t>(size_of(dy.dtype()));
  for (int i = 0; i < d; ++i) outer *= dy.size(i);
  for (int i = d + 1; i < dy.rank(); ++i) inner *= dy.size(i);
  const int64_t part = dy.size(d) * inner, whole = a.size * inner, skip = a.begin * inner;
  if (whole == 0) return;
  parallel_for(outer, grain_of(whole), [&](int64_t begin, int64_t end) {
    for (int64_t o = begin; o < end; ++o) {
      char* to = static_cast<char*>(dx.raw()) + o * whole;
      std::memset(to, 0, static_cast<size_t>(skip));
      if (part)
        std::memcpy(
            to + skip, static_cast<const char*>(dy.raw()) + o * part, static_cast<size_t>(part));
      std::memset(to + skip + part, 0, static_cast<size_t>(whole - skip - part));
    }
  });
}
Tensors pad_slice_grad(const Saved& saved, Operands grads) {
  const auto& a = saved.as<PadSliceAttrs>();
  return {slice(grads[0], a.dim, a.begin, a.begin + saved.in[0].size(static_cast<int>(a.dim)))};
}
std::vector<Sample> pad_slice_samples() {
  return {{.in = {sample_tensor({4, 5}, 1)}, .attrs = PadSliceAttrs{0, 2, 7}, .what = "rows"},
      {.in = {sample_tensor({3, 2, 2}, 2)}, .attrs = PadSliceAttrs{1, 1, 4}, .what = "middle dim"},
      {.in = {sample_tensor({3, 0}, 3)},
          .attrs = PadSliceAttrs{1, 4, 9},
          .what = "nothing into zeros"},
      {.in = {sample_tensor({0, 2}, 3)}, .attrs = PadSliceAttrs{1, 4, 9}, .what = "empty batch"},
      bad_sample({sample_tensor({3, 5}, 4)}, PadSliceAttrs{1, 5, 9}, "does not fit")};
}

// ---- broadcast_to
Tensor broadcast_view(Operands in, const Attrs& attrs) {
  const Tensor& x = in[0];
  const Shape& shape = attrs.as<ShapeAttrs>().shape;
  const int extra = shape.rank() - x.rank();
  SINTER_CHECK(extra >= 0, shape,
      cat("broadcast_to: too few dims: x is ", x.describe(), ", wanted ", shape.str(), "; ",
          x.rank(), " and ", shape.rank()));
  Strides strides = shape;
  for (int d = 0; d < shape.rank(); ++d) {
    const int64_t size = d < extra ? 1 : x.size(d - extra);
    SINTER_CHECK(size == shape[d] || (size == 1 && shape[d] >= 0), shape,
        cat("broadcast_to: shapes do not fit: x is ", x.describe(), ", wanted ", shape.str(),
            "; at dim ", d, " ", size, " is neither 1 nor ", shape[d]));
    strides[d] = size == 1 ? 0 : x.strides()[d - extra];
  }
  return view(x, shape, strides);
}
Tensors broadcast_grad(const Saved& saved, Operands grads) {
  return {sum_to(grads[0], saved.in[0].shape())};
}
std::vector<Sample> broadcast_samples() {
  return {{.in = {sample_tensor({3, 1}, 1)}, .attrs = ShapeAttrs{{3, 5}}, .what = "columns"},
      {.in = {sample_tensor({4}, 2)}, .attrs = ShapeAttrs{{2, 3, 4}}, .what = "more dims"},
      {.in = {sample_tensor({}, 3)}, .attrs = ShapeAttrs{{2, 3}}, .what = "scalar"},
      {.in = {sample_tensor({0, 1}, 4)}, .attrs = ShapeAttrs{{0, 4}}, .what = "empty batch"},
      bad_sample({sample_tensor({3, 2}, 5)}, ShapeAttrs{{3, 4}}, "2 is not 1"),
      bad_sample({sample_tensor({3, 2}, 5)}, ShapeAttrs{{2}}, "fewer dims")};
}

// ---- low_precision: the bf16 copy that the optimizer keeps beside an f32 weight
Tensor low_view(Operands in, const Attrs&) {
  const Tensor& weight = in[0];
  const Tensor low = weight.has_autograd() ? weight.autograd().low : Tensor();
  SINTER_CHECK(low.defined(), state,
      cat("low_precision: no bf16 copy: weight is ", weight.describe(),
          "; an optimizer or the model must make it first"));
  SINTER_CHECK(low.shape() == weight.shape(), shape,
      cat("low_precision: shapes differ: ", describe({{"weight", &weight}, {"copy", &low}}),
          "; they must be equal"));
  return view(low, low.shape(), low.strides());
}
Tensors pass(const Saved&, Operands grads) { return {grads[0]}; }
std::vector<Sample> low_samples() {
  const auto make = [](const Shape& shape) {
    Tensor weight = sample_tensor(shape, 1);
    weight.autograd().low = cast(weight, DType::bf16);
    return Sample{
        .in = {weight}, .attrs = {}, .what = "weight with a copy", .differentiable = false};
  };
  Sample bad = make({2, 3});
  bad.in[0].autograd().low = cast(sample_tensor({3, 2}, 2), DType::bf16);
  bad.bad = true;
  return {make({5, 3}), bad};
}

// ---- detach
Tensor detach_view(Operands in, const Attrs&) {
  return view(in[0], in[0].shape(), in[0].strides());
}
std::vector<Sample> detach_samples() {
  return {
      {.in = {sample_tensor({3, 5}, 1)}, .attrs = {}, .what = "plain", .differentiable = false}};
}

}  // namespace

const OpDef kReshapeOp{.name = "reshape",
    .attrs = attr_type<ShapeAttrs>(),
    .view = reshape_view,
    .backward = reshape_grad,
    .samples = reshape_samples};
const OpDef kTransposeOp{.name = "transpose",
    .attrs = attr_type<TransposeAttrs>(),
    .view = transpose_view,
    .backward = transpose_grad,
    .samples = transpose_samples};
const OpDef kSliceOp{.name = "slice",
    .attrs = attr_type<SliceAttrs>(),
    .view = slice_view,
    .backward = slice_grad,
    .samples = slice_samples};
const OpDef kPadSliceOp{.name = "pad_slice",
    .attrs = attr_type<PadSliceAttrs>(),
    .infer = pad_slice_infer,
    .cost = pad_slice_cost,
    .cpu = pad_slice_cpu,
    .cuda = SINTER_IF_CUDA(on_cuda::pad_slice),
    .simt = on_simt::pad_slice,
    .backward = pad_slice_grad,
    .samples = pad_slice_samples};
const OpDef kBroadcastToOp{.name = "broadcast_to",
    .attrs = attr_type<ShapeAttrs>(),
    .view = broadcast_view,
    .backward = broadcast_grad,
    .samples = broadcast_samples};
const OpDef kLowPrecisionOp{
    .name = "low_precision", .view = low_view, .backward = pass, .samples = low_samples};
const OpDef kDetachOp{.name = "detach", .view = detach_view, .samples = detach_samples};

Tensor reshape(const Tensor& x, const Shape& shape) {
  check_defined("reshape", "x", x);
  return apply1(kReshapeOp, {contiguous(x)}, ShapeAttrs{shape});
}
Tensor transpose(const Tensor& x, int64_t dim0, int64_t dim1) {
  return apply1(kTransposeOp, {x}, TransposeAttrs{dim0, dim1});
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
  int64_t rest = 1;
  for (int d = 0; d < x.rank(); ++d)
    d < from ? shape.push_back(x.size(d)) : void(rest *= x.size(d));
  shape.push_back(rest);
  return reshape(x, shape);
}
Tensor detach(const Tensor& x) { return apply1(kDetachOp, {x}); }
Tensor low_precision(const Tensor& weight) { return apply1(kLowPrecisionOp, {weight}); }

}  // namespace sinter
