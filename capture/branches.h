// Splits a step into two branches that a device may run side by side. Knows no device: it says
// which node goes where and what it must wait for.
//
// Note [Two branches]
//   The backward pass makes two kinds of gradients. Those of inputs are a chain, in which each
//   waits for the one before. Those of weights and biases hang on that chain, and nothing waits for
//   them but the update. So they can fill the parts of a device that the chain leaves idle:
//
//       main   loss --> dx3 --> dx2 --> dx1 ------------> update
//                |       |       |                          ^
//       side     +> dW3 -+> dW2 -+> dW1 --------------------+
//
//   Each branch runs its nodes in the order of the list. A node waits for the last node of the
//   other branch that it conflicts with (one writes what the other touches), unless its own branch
//   has waited for that one already. `follows` keeps what each node may rely on: the last node of
//   each branch that is done when it starts. A gradient that the next node of the main branch needs
//   stays on the main branch: nothing could run beside it.
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
  std::vector<std::array<int, 2>> follows;  // per node, per branch: the last node that is done when
                                            // it starts (itself on its own), or kNone
};

Branches split_branches(const Graph& graph);

}  // namespace sinter::capture
