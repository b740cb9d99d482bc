// What fusion did to a captured step and why, as plain text: `--explain` prints it. Numbers are
// those of the recorded graph's dump.
#pragma once

#include "capture/step.h"
#include "profiler/roofs.h"

namespace sinter::capture {

// A line per group (rule, the recorded ops, launches and bytes saved, its time as predicted under
// the ceiling, if that is known, and as measured), per near miss, per group that was measured
// slower and kept apart, per rule of `table` that the device does not have; how the groups were
// chosen; the memory plan; last "25 launches -> 9 (rules all)".
std::string explain(const Captured& captured, const RuleSet& set = RuleSet(),
    std::span<const Rule> table = rules(), const profiler::Ceiling& ceiling = {});

}  // namespace sinter::capture
