// How far the results of an op may be from the exact ones, element by element: what the tests of
// kernels and measure::blame() hold every kernel to.
//
// Note [How far a kernel may be from f64]
//   The question is asked of one op, on operands that are exactly those of its kernel; the answer
//   is in f64, on the CPU. Two rules give it.
//
//   A plain op. Each FLOP behind an element may be rounded, relative to a partial result, which is
//   at most S: what the element would be if nothing cancelled, that is, the op of the operands'
//   magnitudes. Roundings go up and down, so n of them add up as a random walk. The result is
//   rounded once more, to its own type:
//
//       |found - exact| <= 4 sqrt(n) u S + 2 u_out |exact| + the smallest normal number
//
//   n = FLOPs of an element (OpDef::cost); u = 2^-24 for f32 and for bf16, whose sums are kept in
//   f32; 2^-53 for f64; u_out = 2^-8 for bf16. Nothing is rounded in what has no FLOPs, and what is
//   no floating number (an index) must be equal. Beyond the largest number of its type a result is
//   infinite, and where S is beyond it, partial results may be: any such result is right.
//
//   A sign inside, which an update by Lion has, may turn where what it is of cancels, and takes the
//   parameter all of 2 lr further. What a kernel adds up is the exact sum of terms that are each as
//   much off as n roundings may be. So the op runs twice again, with the gradient that much larger
//   and the momentum that much smaller, and the other way round: terms of opposite signs cannot
//   part farther. How far that takes the parameter is added to its bound.
//
//   A fused op. It stands for the ops of its reference and may round wherever they do. So the
//   reference runs again and again, and what each of its ops but relu, which chooses and rounds
//   nothing, gives is moved by the bound of that op, or up to half less, up or down by lot, for
//   each element. The ops behind pass it on as they would pass on an error: it cancels, grows, or
//   changes the side of a ReLU where a sum is near 0.
//
//       x W b                                z moves by 4 sqrt(n) u S + 2 u_out |z|
//        \|/
//       linear --- z ---> relu ---> y            y follows, where z is not below 0
//
//   Twice the largest change that 16 runs show is the bound; each second one moves all the other
//   way. A kernel that keeps in f32 what the plain ops round to bf16 is better than that. Of two
//   ops with moves as large, as conv and tanh in bf16, the lots are opposite in all 8 pairs for one
//   element in 256, and next to nothing is left. But the kernel rounds to the type of its result,
//   too: so a bound is never below 2 u_out |exact| + the smallest normal number.
//
//   An index of a fused op says which of some values was taken: z[3], the largest of its window.
//   Values that are equal but for rounding may change places, and a tie that no run turns is still
//   one. So not the index is compared but the value it points to, in exact z: it may differ from
//   that of the right one by the bounds of both.
//
//   A NaN where the exact result has one is right, and one on one side only is wrong, whatever the
//   bound.
#pragma once

#include <optional>

#include "ops/op.h"

namespace sinter {

// What n roundings relative to 1, up and down, add up to. `type` is that of the operands.
double rounding_of_sum(double n, DType type);
// S of each floating result of a plain op, for f64 operands on the CPU; undefined for a result of
// another type. `out` are the results of the op on them. Of an op that changes operands in place,
// `in` are those before, and the changed ones follow the results.
Tensors magnitudes(const OpDef& op, Operands in, Operands out, const Attrs& attrs);

// How large rounding alone may make each floating result of a plain op in which all else cancels:
// its terms, rounded to the operands' type before, in any direction, then the sum's own roundings.
// Undefined for a result of another type. Operands are on the CPU.
Tensors rounding_of_terms(const OpDef& op, Operands in, const Attrs& attrs);

// What the places of an index were taken from, by max_pool2d or argmax.
struct Pick {
  const OpDef* op;
  Attrs attrs;
  Tensor from, taken;         // its operand in f64, its index
  std::vector<double> bound;  // of each element of `from`
};
// A result in f64, dense and on the CPU (an index as it is), and the bound of each
// element; a choice has those of its values.
struct ExactResult {
  Tensor value;
  std::vector<double> bound;
  std::optional<Pick> choice{};
};
// The results, then the floating operands that the op changes in place. Operands are on the CPU and
// of the kernel's types; they stay as they are. Throws what the op throws.
std::vector<ExactResult> exact_results(const OpDef& op, Operands in, const Attrs& attrs);

// The element that is the farthest from the exact one for its bound.
struct Deviation {
  double error = 0, bound = 0;  // error: infinite for a NaN or an infinity on one side only
  size_t result = 0;            // number in the list
  int64_t at = 0;               // of the element, in row-major order
  bool exceeds() const { return share() > 1; }
  // error / bound; infinite where there is an error and no bound, and for an infinite error.
  double share() const;
};
// `found`: as the list of exact_results(), on any device.
Deviation worst_deviation(const Tensors& found, const std::vector<ExactResult>& exact);
// The largest finite magnitude in floating tensors, or 1 if none is larger.
double largest_magnitude(Operands tensors);
// The operands of `in` that stand in that list.
Tensors changed_operands(const OpDef& op, Operands in);

}  // namespace sinter
