// Parity: are the results of one step, eager and fused, the same but for rounding?
//
//   const measure::Parity parity = measure::parity({{"losses", fused[0], eager[0], 1e-5}});
//   std::cout << parity.text() << "\n";  // "at most 3 % of its bound (losses)"
//
// Each tensor has a bound, for all its elements or for each, and a share of it: how far both sides
// lie apart, of what they may. A share above 1 is a difference. Used by programs that compare, and
// by a user's own. Plain data; GradientRounding listens on its thread.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/fields.h"
#include "ops/op.h"

namespace sinter::measure {

// A tensor of the step on both sides, of one shape, on any device.
struct ParityPair {
  std::string name;  // "grad of 0.weight"
  Tensor fused, eager;
  double limit = 0;    // the bound relative to the largest finite magnitude of `eager`
  Tensor bound{};      // or that of each element, f64
  std::string kind{};  // "gradients"
  // An error tells its figures in `unit`, if it is above 0, else relative to the largest; behind
  // them stands what the bound comes from.
  double unit = 0;
  std::string unit_name{}, reason{};
};

struct ParityRow {
  std::string kind, name;
  double share = 0;  // apart / bound of the element where that is largest; infinite for a NaN or an
                     // infinity on one side only, and for a difference where none is allowed
  double absolute = 0, relative = 0;  // the largest difference; to the largest magnitude of `eager`
  std::string where{};                // that element and its figures, and what the bound comes from
  std::string nan{};                  // the first place where both sides have one, or ""
  SINTER_FIELD_LIST(kind, name, share, absolute, relative, where)
};

struct Parity {
  std::vector<ParityRow> rows{};  // in the order of the pairs

  bool holds() const { return !first_beyond(); }
  // Of the largest share; nullptr: there is none.
  const ParityRow* worst() const;
  // The first one beyond its bound, which in the order of a step is the cause; or nullptr.
  const ParityRow* first_beyond() const;
  // The largest of one kind.
  double relative(std::string_view kind) const;
  double absolute(std::string_view kind) const;
  // Of the first row that has one, or "".
  std::string nan() const;
  // "to the bit", "at most 3 % of its bound (grad of 0.weight)"
  std::string text() const;
};

// Throws shape for a pair of two shapes, or a bound of another.
Parity parity(const std::vector<ParityPair>& pairs);

// How far an update may part where gradients may differ by d: as far as the optimizer's formula
// parts for a gradient of d less and of d more. SGD's updates part by lr d. The first step of Adam
// is lr g / (|g| + eps), that of Lion lr sign(g), nearly all of lr however small g is: 2 lr apart
// where |g| < d, as d may turn its sign, and next to nothing where |g| is some d. No formula falls
// where the gradient rises, so in between nothing is farther. To this comes the rounding of both
// sides, 16 operations or numbers each at most, 2^-19 of the step, and of the weight.
//
// Weights before the step and behind it; `less`, `more`: what Optimizer::after_step() gives for
// gradients that differ by d. Throws shape unless all have one shape.
Tensor update_bound(
    const Tensor& before, const Tensor& eager, const Tensor& less, const Tensor& more);

// While it lives, listens which calls make the gradients of a step: by the memory of their results.
class GradientRounding : public Recorder {
 public:
  GradientRounding();
  ~GradientRounding() override;
  GradientRounding(const GradientRounding&) = delete;
  GradientRounding& operator=(const GradientRounding&) = delete;

  void record(const Call& call) override;
  // How large rounding alone may make each element, f64: the sum of rounding_of_terms() of its
  // calls; undefined where no such call made it.
  Tensor of(const Tensor& gradient) const;

 private:
  struct Made {
    const OpDef* op;
    Tensors in;
    Attrs attrs;
    size_t result;
  };
  std::map<const Storage*, std::vector<Made>> made_;
};

}  // namespace sinter::measure
