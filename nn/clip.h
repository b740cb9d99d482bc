// Gradient clipping by the norm of all gradients together, on the device: nothing is read on the host, so it may stand in a captured step.
#pragma once

#include <vector>

#include "core/tensor.h"

namespace sinter::nn {

// Scales all gradients by min(1, max_norm / norm), in place; parameters without one are skipped. Returns the squared norm from before,
// a tensor of one element (undefined if there is no gradient). Throws usage unless max_norm > 0.
Tensor clip_grad_norm(const std::vector<Tensor>& params, double max_norm);
// The norm, on the host.
double grad_norm(const std::vector<Tensor>& params);

}  // namespace sinter::nn
