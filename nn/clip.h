// Gradient clipping by the norm of all gradients together, on the device: nothing is read on the
// host, so it may stand in a captured step.
#pragma once

#include <cmath>
#include <vector>

#include "core/tensor.h"

namespace sinter::nn {

// The norm of all gradients before clipping. It is read only when it is asked for, so a step that
// does not ask pays nothing. Undefined if there was no gradient.
struct GradNorm {
  Tensor squared;  // f64
  bool defined() const { return squared.defined(); }
  double item() const { return std::sqrt(squared.item()); }
};

// Scales all gradients by min(1, max_norm / norm), in place; parameters without one are skipped.
// Returns the norm from before. Throws usage unless max_norm > 0.
GradNorm clip_grad_norm(const std::vector<Tensor>& params, double max_norm);

}  // namespace sinter::nn
