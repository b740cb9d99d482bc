// The memory plan: every local buffer gets an offset in one arena.
//
// Note [The memory plan]
//   A training step makes dozens of values, and most of them are needed for a moment only. Two of
//   them may lie in the same bytes if there is no moment at which both are needed:
//
//       node       0   1   2   3   4   5      size   offset
//       x          *-------*                  4 kB   0
//       y              *-------*              2 kB   4 kB
//       z                      *-------*      4 kB   0, where x was
//
//   A buffer lives from the first node that touches it to the last. Results and gradients live to
//   the end, because the caller reads them after the step. The plan places the largest buffer
//   first, and each at the lowest offset that is free during its whole life. (The smallest arena
//   of all is a packing problem for which no fast method is known.)
//
//   On two branches (Note [Two branches]) the order of the list proves nothing: node 4 of one
//   branch may run before node 2 of the other. There two buffers may share bytes only if all uses
//   of one are done, by what the branches wait for, when the other's first use begins.
#pragma once

#include "capture/branches.h"
#include "profiler/memory_use.h"

namespace sinter::capture {

struct MemoryPlan {
  std::vector<int64_t> offset;  // per buffer; -1: not local, or never used
  // Per buffer: the first and the last node that touch it; results and gradients live to the end,
  // which is the number of nodes. A buffer that nobody touches begins behind it.
  std::vector<int> first, last;
  int64_t bytes = 0;           // of the arena
  int64_t unshared_bytes = 0;  // what it would take without sharing
};

// `branches`: which nodes may run at the same time; nullptr: none may.
MemoryPlan plan_memory(const Graph& graph, const Branches* branches = nullptr);

// What each node does in the arena, in the order of the list.
std::vector<profiler::MemoryUse> memory_of_nodes(const Graph& graph, const MemoryPlan& plan);

}  // namespace sinter::capture
