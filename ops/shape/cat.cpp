// cat: tensors side by side along one dim. Its gradient is slices of the result's. stack: along a
// new dim.
#include <cstring>

#include "core/parallel.h"
#include "ops/kernels.h"

namespace sinter {
namespace {

Tensors infer(Operands in, const Attrs& attrs) {
  SINTER_CHECK(in[0].rank() >= 1, shape,
      cat("cat: no dim to put scalars side by side in: the first is ", in[0].describe(),
          "; its rank must be 1 or more"),
      "stack() gives them a dim");
  const int dim = normalize_dim("cat", attrs.as<DimAttrs>().dim, in[0].rank());
  Shape shape = in[0].shape();
  for (size_t i = 1; i < in.size(); ++i) {
    check_rank("cat", "a later one", in[i], in[0].rank());
    check_same_dtype("cat", "the first", in[0], "a later one", in[i]);
    shape[dim] = in[i].size(dim);
    SINTER_CHECK(in[i].shape() == shape, shape,
        cat("cat: shapes differ beside dim ", dim, ": ",
            describe({{"the first", &in[0]}, {"a later one", &in[i]}}),
            "; they may in that dim only"));
  }
  shape[dim] = 0;
  for (const Tensor& t : in) shape[dim] += t.size(dim);
  return {Tensor::shape_only(shape, in[0].dtype(), in[0].device())};
}

void cpu(const Call& call) {
  const Tensor& y = call.out[0];
  const int dim = normalize_dim("cat", call.as<DimAttrs>().dim, y.rank());
  const int64_t outer = numel_of_dims(y, 0, dim);
  const auto row_bytes = [&](const Tensor& t) {
    return outer ? t.numel() / outer * int64_t(size_of(t.dtype())) : 0;
  };
  const int64_t whole = row_bytes(y);
  if (whole == 0) return;
  parallel_for(outer, grain_of(whole), [&](int64_t begin, int64_t end) {
    for (int64_t o = begin; o < end; ++o) {
      char* to = static_cast<char*>(y.raw()) + o * whole;
      for (const Tensor& x : call.in) {
        const int64_t part = row_bytes(x);
        if (part == 0) continue;
        std::memcpy(to, static_cast<const char*>(x.raw()) + o * part, size_t(part));
        to += part;
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

}  // namespace

const OpDef kCatOp{.name = "cat",
    .formula = "y = the tensors side by side along a dim",
    .signature = kSignature<kCatOp>,
    .max_inputs = kMostCatInputs,
    .attrs = attr_type<DimAttrs>(),
    .infer = infer,
    .cost = cost_per_element<0>,
    .cpu = cpu,
    SINTER_KERNELS(concat),
    .backward = backward};

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
