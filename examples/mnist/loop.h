// The training loop: a batch, a step, now and then a look at the loss; at the end of an epoch an
// evaluation and a save. examples/04_train_digits.cpp is the same without everything around it.
#pragma once

#include "examples/mnist/step_profile.h"

namespace sinter::mnist {

// From where the run is to its end, or until a signal comes; then all is saved.
void train_steps(Run& run, StepProfile& profile);

}  // namespace sinter::mnist
