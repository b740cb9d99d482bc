// The memory plan: every local buffer gets an offset in one arena. A buffer lives from the first
// node that touches it to the last; two may share memory only if their lives do not meet. Results
// and gradients live to the end, so that they can be read after the step. Where nodes may run side
// by side, order in the list proves nothing: then one buffer's uses must all precede the other's.
#pragma once

#include "capture/branches.h"

namespace sinter::capture {

struct MemoryPlan {
  std::vector<int64_t> offset;  // per buffer; -1: not local, or never used
  int64_t bytes = 0;            // of the arena
  int64_t unshared_bytes = 0;   // what it would take without sharing
};

// `branches`: which nodes may run at the same time; nullptr: none may.
MemoryPlan plan_memory(const Graph& graph, const Branches* branches = nullptr);

}  // namespace sinter::capture
