// What came of a training run: test, time, files, what the capture did; and the object of --json.
#pragma once

#include "examples/mnist/step_profile.h"

namespace sinter::mnist {

// Both return the exit status. report() evaluates on the test set; it throws check if the target
// was missed.
int report(Run& run, StepProfile& profile);
int report_interrupted(Run& run, StepProfile& profile);
// Of mode fused: what the capture did. --dump-graph also in mode eager and in a run too short for a
// capture, by a scratch capture of the same step.
void report_capture(Run& run);

}  // namespace sinter::mnist
