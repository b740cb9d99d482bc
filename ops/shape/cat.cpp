// cat: tensors side by side along one dim. Its gradient is slices of the result's. stack: along a
// new dim. pad_slice, the adjoint of slice: dy between zeros.
#include "ops/shape/cat.h"

#include <cstring>

#include "core/parallel.h"
#include "ops/kernels.h"

namespace sinter {
namespace {

Tensors infer(Operands in, const Attrs& attrs) {
  SINTER_CHECK(in[0].rank() >= 1, shape,
      str("cat: no dim to put scalars side by side in: the first is ", in[0].describe(),
          "; its rank must be 1 or more"),
      "stack() gives them a dim");
  const int dim = normalize_dim("cat", attrs.as<DimAttrs>().dim, in[0].rank());
  Shape shape = in[0].shape();
  for (size_t i = 1; i < in.size(); ++i) {
    check_rank("cat", "a later one", in[i], in[0].rank());
    check_same_dtype("cat", "the first", in[0], "a later one", in[i]);
    shape[dim] = in[i].size(dim);
    SINTER_CHECK(in[i].shape() == shape, shape,
        str("cat: shapes differ beside dim ", dim, ": ",
            describe({{"the first", &in[0]}, {"a later one", &in[i]}}),
            "; they may in that dim only"));
  }
  shape[dim] = 0;
  for (const Tensor& t : in) shape[dim] += t.size(dim);
  return {Tensor::shape_only(shape, in[0].dtype(), in[0].device())};
}

Tensors infer_pad(Operands in, const Attrs& attrs) {
  const auto& a = attrs.as<PadSliceAttrs>();
  const int d = normalize_dim("pad_slice", a.dim, in[0].rank());
  SINTER_CHECK(a.begin >= 0 && a.begin + in[0].size(d) <= a.size, shape,
      str("pad_slice: out of range: dy is ", in[0].describe(), "; begin ", a.begin, " of dim ", d,
          ", which has ", a.size));
  Shape shape = in[0].shape();
  shape[d] = a.size;
  return {Tensor::shape_only(shape, in[0].dtype(), in[0].device())};
}

void cpu(const Call& call) {
  const Tensor& y = call.out[0];
  const SideBySide side(call);
  const int64_t outer = side.row ? y.numel() / side.row : 0, size = int64_t(size_of(y.dtype()));
  parallel_for(outer, grain_of(side.row * size), [&](int64_t begin, int64_t end) {
    char* to = static_cast<char*>(y.raw()) + begin * side.row * size;
    for (int64_t o = begin; o < end; ++o) {
      for (const auto& [x, length] : side.pieces()) {
        const size_t bytes = size_t(length * size);
        if (bytes && x)
          std::memcpy(to, static_cast<const char*>(x->raw()) + size_t(o) * bytes, bytes);
        if (!x) std::memset(to, 0, bytes);
        to += bytes;
      }
    }
  });
}

Tensors backward(const Saved& saved, Operands grads) {
  const int64_t dim = saved.as<DimAttrs>().dim;
  Tensors out;
  int64_t begin = 0;
  for (size_t i = 0; i < saved.in.size(); ++i) {
    const int64_t end = begin + saved.in[i].size(int(dim));
    out.push_back(saved.wants(int(i)) ? slice(grads[0], dim, begin, end) : Tensor());
    begin = end;
  }
  return out;
}

Tensors pad_backward(const Saved& saved, Operands grads) {
  const auto& a = saved.as<PadSliceAttrs>();
  return {slice(grads[0], a.dim, a.begin, a.begin + saved.in[0].size(int(a.dim)))};
}

}  // namespace

SideBySide::SideBySide(const Call& call) {
  const Tensor& y = call.out[0];
  const int dim = normalize_dim(call.op.name.c_str(), call.attrs.number("dim"), y.rank());
  const int64_t inner = numel_of_dims(y, dim + 1);
  row = y.size(dim) * inner;
  for (const Tensor& x : call.in) pieces_[n_++] = {&x, x.size(dim) * inner};
  if (&call.op != &kPadSliceOp) return;
  const int64_t before = call.as<PadSliceAttrs>().begin * inner;
  const Piece own = pieces_[0];
  pieces_ = {{{nullptr, before}, own, {nullptr, row - before - own.length}}};
  n_ = 3;
}

const OpDef kCatOp = listed<kCatOp>({.name = "cat",
    .formula = "y = the tensors side by side along a dim",
    .max_inputs = kMostCatInputs,
    .attrs = attr_type<DimAttrs>(),
    .infer = infer,
    .cost = cost_per_element<0>,
    .cpu = cpu,
    .backward = backward});

const OpDef kPadSliceOp = listed<kPadSliceOp>({.formula = "dx = dy inside zeros",
    .attrs = attr_type<PadSliceAttrs>(),
    .infer = infer_pad,
    .cost = cost_per_element<0>,
    .cpu = cpu,
    .backward = pad_backward});

Tensor cat(const Tensors& tensors, int64_t dim) {
  SINTER_CHECK(!tensors.empty(), shape, "cat: no tensors given; 1 or more are wanted");
  if (tensors.size() <= kMostCatInputs) return apply1(kCatOp, tensors, DimAttrs{dim});
  Tensors groups;
  for (size_t i = 0; i < tensors.size(); i += kMostCatInputs) {
    const size_t end = std::min(i + kMostCatInputs, tensors.size());
    groups.push_back(
        cat(Tensors(tensors.begin() + ptrdiff_t(i), tensors.begin() + ptrdiff_t(end)), dim));
  }
  return cat(groups, dim);
}

Tensor stack(const Tensors& tensors, int64_t dim) {
  SINTER_CHECK(!tensors.empty(), shape, "stack: no tensors given; 1 or more are wanted");
  Tensors slices;
  for (const Tensor& t : tensors) {
    check_defined("stack", "a tensor", t);
    const int at = normalize_dim("stack", dim, t.rank() + 1);
    Shape shape;
    for (int d = 0; d <= t.rank(); ++d) {
      if (d == at) shape.push_back(1);
      if (d < t.rank()) shape.push_back(t.size(d));
    }
    slices.push_back(reshape(t, shape));
  }
  return cat(slices, normalize_dim("stack", dim, tensors[0].rank() + 1));
}

}  // namespace sinter
