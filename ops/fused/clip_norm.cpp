// clip_norm: n gradients, all scaled in place by min(1, max_norm / norm of all): the norm is taken
// in one pass over every tensor, then the scaling in another, if any is needed.
#include "ops/kernels.h"
#include "ops/rows/clip.h"

namespace sinter {
namespace {

// Not the reference's: the gradients are read and written in place.
Cost cost(Operands in, Operands out, const Attrs&) {
  return cost_of(3 * numel_of(in), in, out, &kClipNormOp);
}

void cpu(const Call& call) {
  visit_float(call.in[0].dtype(), [&]<class T>(T) {
    scale_by<T>(call.in, sum_of_squares<T>(call.in), call.as<ClipAttrs>().max_norm);
  });
}

Tensors reference(Operands in, const Attrs& attrs) {
  const Tensor total = squared_norm(in[0]);
  for (const Tensor& t : in.subspan(1)) accumulate(total, squared_norm(t));
  for (const Tensor& t : in) clip_in_place(t, total, attrs.as<ClipAttrs>().max_norm);
  return {};
}

std::string limit(Operands in, const Attrs&) {
  for (const Tensor& t : in) {
    if (t.dtype() != in[0].dtype())
      return str("a gradient is ", t.describe(), " beside ", in[0].describe(),
          "; all must be of one type");
  }
  return "";
}

}  // namespace

const OpDef kClipNormOp = listed<kClipNormOp>({.formula = "every g *= min(1, max_norm / |all g|)",
    .min_inputs = 1,
    .max_inputs = 1 << 20,
    .attrs = attr_type<ClipAttrs>(),
    .cost = cost,
    .cpu = cpu,
    .writes_of = [](size_t, size_t) { return true; },
    .reference = reference,
    .limit = limit});

}  // namespace sinter
