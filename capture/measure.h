// The planner's stopwatch: each fused group against its parts, on copies of the real operands; where fusing is slower, the parts stay.
#pragma once

#include "capture/rules.h"

namespace sinter::capture {

// rewrite(), then measure every group and rewrite again without the losers. A group goes only if its parts are faster by kMargin, so that
// noise does not decide.
inline constexpr double kMargin = 1.15;
Rewriter rewrite_measured(const Graph& recorded, const RuleSet& set, Device::Type device);

}  // namespace sinter::capture
