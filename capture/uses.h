// Which nodes touch which buffer: an index of a graph, so that finding a value's readers, or the
// nodes that a node may not change places with, takes as long as there are such nodes and not as
// long as the graph.
//
// Invariant: every node that touches a buffer is in its list. A list may also name nodes that touch
// the buffer no more, so whoever reads it asks the graph again; that is what makes it cheap to keep
// while nodes are replaced and values move.
#pragma once

#include "capture/graph.h"

namespace sinter::capture {

struct Uses {
  struct Use {
    int node;
    bool writes;
  };
  std::vector<std::vector<Use>> nodes;  // per buffer, in the order of the list

  explicit Uses(const Graph& graph);
  void add_node(const Graph& graph, int node);
  // All that touches buffer `from` touches buffer `to` now.
  void merge(int from, int to);
  // Nodes in [begin, end) that share a buffer with `node` where one of the two writes it, by
  // number: among them are all that conflict with it.
  std::vector<int> neighbours(const Graph& graph, int node, int begin, int end) const;
};

}  // namespace sinter::capture
