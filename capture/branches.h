// Splits a step into two branches that a device may run side by side: weight and bias gradients,
// which nothing waits for but the update, go beside the chain of input gradients. Knows no device:
// it says which node goes where and what it must wait for.
#pragma once

#include <array>

#include "capture/graph.h"

namespace sinter::capture {

struct Branches {
  static constexpr int kNone = -1, kStart = -2;
  std::vector<int>
      branch;              // per node: 0 main, 1 side; each runs its nodes in the order of the list
  std::vector<int> waits;  // per node: the last node of the other branch that it follows, or kNone;
                           // kStart: the beginning of the step
  int join = kNone;        // what the end of the main branch waits for
  bool any_side() const;
  // True if two nodes may run at the same time.
  bool parallel(int a, int b) const;

  std::vector<std::array<int, 2>> follows;  // per node, per branch: the last node that is done when
                                            // it starts (itself on its own), or kNone
};

Branches split_branches(const Graph& graph);

}  // namespace sinter::capture
