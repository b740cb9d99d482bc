// The planner's stopwatch: each fused group against what would run without it (its parts, or what other rules make of them), on copies of
// the real operands; where fusing is slower, that stays.
#pragma once

#include "capture/rules.h"

namespace sinter::capture {

// rewrite(), then measure every group and rewrite again without the losers. A group goes only if it is slower by kMargin, so that noise does
// not decide.
inline constexpr double kMargin = 1.15;
Rewriter rewrite_measured(const Graph& recorded, const RuleSet& set, Device::Type device);

}  // namespace sinter::capture
