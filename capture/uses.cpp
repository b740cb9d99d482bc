#include "capture/uses.h"

#include <algorithm>

namespace sinter::capture {
namespace {

bool before(const Uses::Use& use, int node) { return use.node < node; }

// A node that reads and writes a buffer is listed once, as one that writes.
void insert(std::vector<Uses::Use>& list, Uses::Use use) {
  const auto at = std::lower_bound(list.begin(), list.end(), use.node, before);
  if (at != list.end() && at->node == use.node) {
    at->writes = at->writes || use.writes;
  } else {
    list.insert(at, use);
  }
}

// Calls f(buffer, writes) for every operand and result of the node.
template <class F> void each_buffer(const Graph& graph, const Node& node, F&& f) {
  for (size_t i = 0; i < node.in.size(); ++i) {
    if (node.in[i] >= 0) f(graph.values[node.in[i]].buffer, node.writes_operand(i));
  }
  for (const int out : node.out) f(graph.values[out].buffer, true);
}

}  // namespace

Uses::Uses(const Graph& graph) : nodes(graph.buffers.size()) {
  for (size_t n = 0; n < graph.nodes.size(); ++n) add_node(graph, int(n));
}

void Uses::add_node(const Graph& graph, int node) {
  nodes.resize(graph.buffers.size());
  each_buffer(graph, graph.nodes[node], [&](int buffer, bool writes) {
    insert(nodes[buffer], {node, writes});
  });
}

void Uses::merge(int from, int to) {
  for (const Use& use : nodes[from]) insert(nodes[to], use);
}

std::vector<int> Uses::neighbours(const Graph& graph, int node, int begin, int end) const {
  std::vector<int> found;
  each_buffer(graph, graph.nodes[node], [&](int buffer, bool writes) {
    const std::vector<Use>& list = nodes[buffer];
    for (auto at = std::lower_bound(list.begin(), list.end(), begin, before);
         at != list.end() && at->node < end; ++at) {
      if ((writes || at->writes) && at->node != node) found.push_back(at->node);
    }
  });
  std::ranges::sort(found);
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

}  // namespace sinter::capture
