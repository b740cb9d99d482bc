// What fusing should save by the roofs, beside what it saved: the lines below a comparison's
// headline. A saving far from what was expected says LOOK. Pure functions, used by
// measure::compare().
#pragma once

#include <algorithm>

#include "measure/comparison.h"

namespace sinter::measure {

// On the CPU launches cost what a launch costs here. Bytes that fusing does not move cost what
// copying costs if they come from memory; from a cache they cost something between that and
// nothing, as the core computes meanwhile.
struct Saving {
  double launches = 0, launch_us = 0, kilobytes = 0, copy_gbs = 0;
  bool in_cache = false;
  double bytes_us() const { return kilobytes / copy_gbs; }
  double low_us() const {
    return launches * launch_us + (in_cache ? std::min(0.0, bytes_us()) : bytes_us());
  }
  double high_us() const {
    return launches * launch_us + (in_cache ? std::max(0.0, bytes_us()) : bytes_us());
  }
};
// LOOK where the whole interval of what was saved lies outside.
std::string estimate_text(const Saving& expected, const profiler::Estimate& saved_us);

// The lines of an outcome that is complete but for them; none where nothing can be said.
std::vector<std::string> expected_saving_lines(
    const Comparison& comparison, const Outcome& outcome);

}  // namespace sinter::measure
