// The memory plan: every local buffer gets an offset in one arena. A buffer lives from the first node that touches it to the last; two may
// share memory only if their lives do not meet. Results and gradients live to the end, so that they can be read after the step.
#pragma once

#include "capture/graph.h"

namespace sinter::capture {

struct MemoryPlan {
  std::vector<int64_t> offset;  // per buffer; -1: not local, or never used
  int64_t bytes = 0;            // of the arena
  int64_t unshared_bytes = 0;   // what it would take without sharing
};

MemoryPlan plan_memory(const Graph& graph);

}  // namespace sinter::capture
