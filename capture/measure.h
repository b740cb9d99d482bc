// The planner's question to the chooser (core/device/chooser.h): which groups make the whole step
// faster, on copies of the real operands (Note [Whole steps]). A group stays unless the step is
// shown to be slower with it.
#pragma once

#include "capture/rules.h"

namespace sinter::capture {

// rewrite(), then the same without the groups that the step is faster without. On CUDA what was
// decided before, by an earlier process say, is not measured again.
Rewriter rewrite_measured(const Graph& recorded, const RuleSet& set, Device::Type device);

// Groups that were measured in vain; explain() says why.
int64_t undecided(const Rewriter& rewritten);

}  // namespace sinter::capture
