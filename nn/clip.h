// What is done to all gradients before an update. Gradient clipping by the norm of all gradients
// together, on the device: nothing is read on the host, so it may stand in a captured step.
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

// What sums over the losses of `own` of `rows` rows are divided by: how many losses the rows have
// together; where not all count `rows`, of which average_counted() knows.
int64_t divisor(const Tensor& losses, int64_t own, int64_t rows);
// Adds how many rows of the losses count to `sum`, which stays undefined while all do.
void add_counted(Tensor& sum, const Tensor& losses);
// Of gradients of sums that were divided by `rows`: they become those of the mean over the rows
// that count, of which there are `all` (f32[1], on the device), `own` of them of this process; 0
// where there is none. Optimizer::step() finds both numbers with the gradients.
void average_counted(
    const std::vector<Tensor>& params, int64_t rows, const Tensor& own, const Tensor& all);

// Of gradients of sums that were divided by `rows`: they become those of the mean over the rows
// that count, of which there are `all` (f32[1], on the device), `own` of them of this process; 0
// where there is none. Optimizer::step() finds both numbers with the gradients.
void average_counted(
    const std::vector<Tensor>& params, int64_t rows, const Tensor& own, const Tensor& all);

}  // namespace sinter::nn
