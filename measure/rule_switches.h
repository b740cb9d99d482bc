// What a captured step would count if some of its fusion rules were off: launches, bytes and arena
// of each choice, known beforehand, for the switches of a page.
//
// Rules interact: without one of them another may find a group that it has not had. So each choice
// is a rewriting of the recorded step of its own, the one that the rules `SET,-NAME,-NAME` make,
// and no sum of what single rules save. Groups that measuring kept unfused stay so; the smaller
// groups that a choice makes are not measured.
#pragma once

#include "capture/captured.h"

namespace sinter::measure {

struct StepCounts {
  size_t launches = 0;
  int64_t bytes = 0, arena_bytes = 0;
};

struct RuleSwitches {
  // Those with groups in the step that save most bytes, at most kMost, in their order in rules().
  std::vector<std::string> names;
  // 2^names: of the choice in which the rules of the number's bits are on, so the last has all.
  std::vector<StepCounts> counts;

  static constexpr size_t kMost = 8;
};

// `set`: the rules of the capture.
RuleSwitches rule_switches(const capture::Captured& captured, const capture::RuleSet& set);

}  // namespace sinter::measure
