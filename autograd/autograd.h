// Reverse-mode automatic differentiation on a tape: a vector of ops in execution order, read
// backwards by a loop. One tape per thread, made by the first op with an input that requires grad.
// backward() uses the tape up, unless told to keep it. No double backward. See tape.h for how it is
// stored. Threads: ops of several threads may use one leaf at once, each on its own tape.
// backward() adds to the leaf's gradient: while it runs, no other thread may run one that reaches
// the leaf, or read its grad(). What a thread made from leaves it must differentiate itself: for
// another thread's tape it is an error.
//
//   Tensor w = Tensor::ones({3, 4}).set_requires_grad(true);
//   backward(sum(relu(w)));      w.grad()
#pragma once

#include <functional>

#include "core/tensor.h"

namespace sinter {

struct BackwardOptions {
  Tensor gradient;  // of `root`; default: of mean(root), that is 1 for a scalar and 1/B for one
                    // loss per row
  // Default gradient, where root holds a part of what is averaged (the rows of one rank, or of one
  // of several batches): 1/rows for each element, with the rows of all parts.
  int64_t rows = 0;
  bool retain_tape = false;  // keep the tape for another backward()
};

// Adds d root / d leaf into leaf.grad() for every leaf that requires grad. Throws state: root is
// not on the tape, the tape was used already, a saved tensor was changed in place since (names both
// ops); shape: the gradient has another shape.
void backward(const Tensor& root, const BackwardOptions& options = {});

// Forgets the thread's tape (a forward pass without backward).
void clear_tape();

// Turns recording off (or on) for a scope.
class GradMode {
 public:
  explicit GradMode(bool on);
  ~GradMode();
  GradMode(const GradMode&) = delete;
  GradMode& operator=(const GradMode&) = delete;

 private:
  bool before_;
};
struct NoGrad : GradMode {
  NoGrad() : GradMode(false) {}
};

// `hook` gets the gradient of t during backward(); a defined result of its shape and type replaces
// it. What changes the tape throws state there: an op that is recorded, backward(), clear_tape(),
// register_hook(). Throws state unless t requires grad.
void register_hook(const Tensor& t, std::function<Tensor(const Tensor&)> hook);
// Keeps the gradient of a non-leaf, so that grad() gives it.
void retain_grad(const Tensor& t);

// Anomaly mode for a scope: every op's outputs are searched for NaN, in forward and backward; the
// first one throws numeric with the op, the element's index and the module path.
class AnomalyMode {
 public:
  AnomalyMode();
  ~AnomalyMode();
  AnomalyMode(const AnomalyMode&) = delete;
  AnomalyMode& operator=(const AnomalyMode&) = delete;

 private:
  std::unique_ptr<class AnomalyRecorder> recorder_;
};

struct GradcheckOptions {
  double step = 1e-6;       // of the central difference
  double tolerance = 1e-6;  // relative to max(1, |derivative|); central differences in f64 err by
                            // about step^2 and 1e-16 / step
};
struct GradcheckResult {
  bool ok = true;
  double worst = 0;     // largest relative difference
  std::string message;  // which input, which element, both values
};
// Compares backward() of sum(f(inputs) * fixed random weights) with central differences. Inputs are
// f64; those that require grad are checked. f may give several tensors.
GradcheckResult gradcheck(const std::function<std::vector<Tensor>(const std::vector<Tensor>&)>& f,
    const std::vector<Tensor>& inputs, const GradcheckOptions& options = {});

}  // namespace sinter
