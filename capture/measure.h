// The planner's question to the chooser (core/device/chooser.h): each fused group against what
// would run without it (its parts, or what other rules make of them), on copies of the real
// operands. A group stays unless it is shown to be slower. On CUDA whole steps have the last word.
#pragma once

#include <span>

#include "capture/rules.h"

namespace sinter::capture {

// What to do with a group, by paired times of it and of what would run without it.
enum class GroupChoice : int8_t {
  undecided = -1,  // the interval is too wide (profiler::kNoisy), or there is none
  fuse,
  unfuse,  // slower by the margin, and the interval of the ratio leaves no doubt that it is
};
// On a host's clock other work moves times that much; a card's runs repeat within a percent or two.
constexpr double margin_on(Device::Type device) {
  return device == Device::Type::cuda ? 1.03 : 1.15;
}
GroupChoice choose(
    std::span<const double> fused_us, std::span<const double> parts_us, Device::Type device);

// rewrite(), then measure every group and rewrite again without the losers; on CUDA then whole
// steps (Note [Groups, then whole steps]). There what was decided before, by an earlier process
// say, is not measured again.
Rewriter rewrite_measured(const Graph& recorded, const RuleSet& set, Device::Type device);

// Groups that were measured in vain; explain() says why.
int64_t undecided(const Rewriter& rewritten);

}  // namespace sinter::capture
