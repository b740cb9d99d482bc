// What follows from a fused op's reference, the only statement of what it means: the shapes of its
// results, its cost, and the ops it stands for, which capture looks for in a step
// (capture/pattern.h).
//
// Note [A fused op is a named subgraph]
//   A reference is a function in plain ops. Run on meta tensors it computes nothing, yet every op
//   in it checks its operands, gives results of the right shape and tells the recorder. So one run
//   says all that used to be written by hand beside it:
//
//       linear_act(x[B, I], W[O, I], b[O]; act = relu)
//
//         x W b
//          \|/
//         linear ---- z[B, O] ----> relu ----> y[B, O]
//
//     shapes and types   that of y; what linear or relu refuses, linear_act refuses
//     FLOPs              linear's and relu's
//     bytes              x, W, b, y: z is in no memory
//     pattern            linear, whose result relu alone reads
//
//   What the kernels cannot do beyond that stands in OpDef::limit, in words.
#pragma once

#include "ops/op.h"

namespace sinter {

// One op that a reference called.
struct TracedOp {
  const OpDef* op;
  Attrs attrs;
  Tensors in, out;
  Role role;
};
struct Trace {
  Tensors operands, results;  // meta tensors
  std::vector<TracedOp> ops;
};
// Runs the reference on meta tensors like `in`. No recorder hears of it. Throws what its ops throw.
Trace trace_reference(const OpDef& op, Operands in, const Attrs& attrs);

// For references that contain another fused op: its reference; in a trace, the op itself, so that
// the pattern finds what an earlier rule has made.
Tensors call_fused(const OpDef& op, const Tensors& in, const Attrs& attrs);

// An OpDef's `infer` and `cost`, where nothing else is to be said. Each thread remembers what it
// derived, since a deep graph asks the same thing for each of its layers.
Tensors infer_by_reference(const OpDef& op, Operands in, const Attrs& attrs);
Cost cost_by_reference(const OpDef& op, Operands in, const Attrs& attrs);
template <const OpDef& op> Tensors infer_of(Operands in, const Attrs& attrs) {
  return infer_by_reference(op, in, attrs);
}
template <const OpDef& op> Cost cost_of_reference(Operands in, Operands, const Attrs& attrs) {
  return cost_by_reference(op, in, attrs);
}

}  // namespace sinter
