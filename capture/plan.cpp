#include "capture/plan.h"

#include <algorithm>
#include <climits>

#include "core/allocator.h"

namespace sinter::capture {

MemoryPlan plan_memory(const Graph& graph, const Parallel& parallel) {
  struct Life {
    int buffer, first = INT_MAX, last = -1;
    int64_t bytes = 0;
    std::vector<int> uses;  // nodes
  };
  std::vector<Life> lives(graph.buffers.size());
  const auto touch = [&](int value, int at) {
    if (value < 0) return;
    Life& life = lives[graph.values[value].buffer];
    life.first = std::min(life.first, at);
    life.last = std::max(life.last, at);
    if (at < INT_MAX) life.uses.push_back(at);
  };
  const auto meet = [&](const Life& a, const Life& b) {
    if (a.first <= b.last && b.first <= a.last) return true;
    if (!parallel) return false;
    return std::any_of(a.uses.begin(), a.uses.end(), [&](int u) {
      return std::any_of(b.uses.begin(), b.uses.end(), [&](int v) { return parallel(u, v); });
    });
  };
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    for (const int in : graph.nodes[n].in) touch(in, static_cast<int>(n));
    for (const int out : graph.nodes[n].out) touch(out, static_cast<int>(n));
  }
  for (const int out : graph.outputs) touch(out, INT_MAX);
  for (const Graph::Gradient& g : graph.gradients) touch(g.grad, INT_MAX);

  MemoryPlan plan{.offset = std::vector<int64_t>(graph.buffers.size(), -1)};
  std::vector<Life> order;
  for (size_t b = 0; b < lives.size(); ++b) {
    lives[b].buffer = static_cast<int>(b);
    lives[b].bytes = static_cast<int64_t>((graph.buffers[b].bytes + kAlignment - 1) / kAlignment * kAlignment);
    if (graph.buffers[b].kind == Buffer::Kind::local && lives[b].last >= 0) order.push_back(lives[b]);
  }
  // Greedy by size: the largest first, each at the lowest offset that is free during its life.
  std::stable_sort(order.begin(), order.end(), [](const Life& a, const Life& b) { return a.bytes > b.bytes; });
  for (size_t i = 0; i < order.size(); ++i) {
    std::vector<std::pair<int64_t, int64_t>> taken;
    for (size_t k = 0; k < i; ++k) {
      if (meet(order[k], order[i])) {
        const int64_t at = plan.offset[order[k].buffer];
        taken.emplace_back(at, at + order[k].bytes);
      }
    }
    std::sort(taken.begin(), taken.end());
    int64_t at = 0;
    for (const auto& [begin, end] : taken) {
      if (begin - at >= order[i].bytes) break;
      at = std::max(at, end);
    }
    plan.offset[order[i].buffer] = at;
    plan.bytes = std::max(plan.bytes, at + order[i].bytes);
    plan.unshared_bytes += order[i].bytes;
  }
  return plan;
}

}  // namespace sinter::capture
