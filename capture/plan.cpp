#include "capture/plan.h"

#include <algorithm>
#include <climits>

#include "core/allocator.h"
#include "core/context.h"

namespace sinter::capture {
namespace {

struct Life {
  int buffer = 0, first = INT_MAX, last = -1;  // numbers of nodes
  int64_t bytes = 0;
  std::array<int, 2> first_on{-1, -1}, last_on{-1, -1};  // the same on each branch, or -1
};

int64_t bytes_in_arena(const Buffer& buffer) {
  return int64_t((buffer.bytes + kAlignment - 1) / kAlignment * kAlignment);
}

// May a and b be in use at the same time?
bool meet(const Life& a, const Life& b, const Branches* branches) {
  if (a.first <= b.last && b.first <= a.last) return true;
  if (!branches) return false;
  // In the order of the list one is over before the other begins, but the branches need not keep
  // that order between them. The later buffer may have the earlier one's bytes only if, at its
  // first node on each branch, the earlier one's last nodes on both branches are known to be done.
  // Its other nodes run after that first one, and the earlier buffer's other nodes ran before the
  // last.
  const Life &earlier = a.last < b.first ? a : b, &later = a.last < b.first ? b : a;
  for (const int begin : later.first_on) {
    for (size_t branch = 0; begin >= 0 && branch < 2; ++branch) {
      if (branches->follows[begin][branch] < earlier.last_on[branch]) return true;
    }
  }
  return false;
}

// Per buffer, when it is in use and how much room it takes. What the caller reads after the step is
// in use until INT_MAX, which is behind all nodes and on no branch.
std::vector<Life> lives_of(const Graph& graph, const Branches* branches) {
  std::vector<Life> lives(graph.buffers.size());
  const auto touch = [&](int value, int at) {
    if (value < 0) return;
    Life& life = lives[graph.values[value].buffer];
    life.first = std::min(life.first, at);
    life.last = std::max(life.last, at);
    if (!branches || at == INT_MAX) return;
    const int branch = branches->branch[at];
    if (life.first_on[branch] < 0) life.first_on[branch] = at;
    life.last_on[branch] = at;
  };
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    for (const int in : graph.nodes[n].in) touch(in, int(n));
    for (const int out : graph.nodes[n].out) touch(out, int(n));
  }
  for (const int out : graph.outputs) touch(out, INT_MAX);
  for (const Graph::Gradient& g : graph.gradients) touch(g.grad, INT_MAX);
  for (size_t b = 0; b < lives.size(); ++b) {
    lives[b].buffer = int(b);
    lives[b].bytes = bytes_in_arena(graph.buffers[b]);
  }
  return lives;
}

}  // namespace

MemoryPlan plan_memory(const Graph& graph, const Branches* branches) {
  MemoryPlan plan{.offset = std::vector<int64_t>(graph.buffers.size(), -1)};
  std::vector<Life> order;
  const int end = int(graph.nodes.size());
  for (const Life& life : lives_of(graph, branches)) {
    plan.first.push_back(life.first);
    plan.last.push_back(std::min(life.last, end));
    if (graph.buffers[life.buffer].kind == Buffer::Kind::local && life.last >= 0)
      order.push_back(life);
  }
  // The largest first: small buffers find room in the gaps that large ones leave, and not the other
  // way round.
  std::ranges::stable_sort(order, [](const Life& a, const Life& b) { return a.bytes > b.bytes; });
  struct Placed {
    int64_t begin, end;
    const Life* life;
  };
  std::vector<Placed> placed;  // by begin
  for (const Life& life : order) {
    // From the bottom up over the blocks that are in use at the same time: `at` is the end of those
    // seen so far, and the first gap behind it that is wide enough is taken. Blocks that are in use
    // at other times do not count, this one may lie over them.
    int64_t at = 0;
    for (const Placed& p : placed) {
      if (!meet(*p.life, life, branches)) continue;
      if (p.begin - at >= life.bytes) break;
      at = std::max(at, p.end);
    }
    const auto where = std::upper_bound(placed.begin(), placed.end(), at,
        [](int64_t begin, const Placed& p) { return begin < p.begin; });
    placed.insert(where, {at, at + life.bytes, &life});
    plan.offset[life.buffer] = at;
    plan.bytes = std::max(plan.bytes, at + life.bytes);
    plan.unshared_bytes += life.bytes;
  }
  return plan;
}

std::vector<profiler::MemoryUse> memory_of_nodes(const Graph& graph, const MemoryPlan& plan) {
  std::vector<profiler::MemoryUse> out(graph.nodes.size());
  const auto backward = std::ranges::find_if(
      graph.nodes, [](const Node& node) { return node.phases >> size_t(Phase::backward) & 1; });
  const int end = int(out.size()), begin_backward = int(backward - graph.nodes.begin());
  for (size_t b = 0; b < plan.offset.size(); ++b) {
    if (plan.offset[b] < 0 || plan.first[b] >= end) continue;
    const int64_t bytes = bytes_in_arena(graph.buffers[b]);
    const int first = plan.first[b], last = plan.last[b];
    out[first].allocated += bytes;
    if (last < end) out[last].freed += bytes;
    for (int n = first; n <= std::min(last, end - 1); ++n) out[n].peak += bytes;
    const bool is_kept = first < begin_backward && begin_backward < end && begin_backward <= last;
    out[first].kept += is_kept ? bytes : 0;
  }
  return out;
}

}  // namespace sinter::capture
