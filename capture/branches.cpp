#include "capture/branches.h"

#include <algorithm>

#include "capture/uses.h"
#include "ops/ops.h"

namespace sinter::capture {
namespace {

// Or its sum over the ranks, which runs as long beside the main branch.
bool is_parameter_gradient(const Node& node) {
  return node.role == Role::wgrad || node.role == Role::bgrad || node.op == &kAllReduceOp;
}

// Per node: 1 if it goes on the side branch. A parameter's gradient does, unless the next node of
// the main branch waits for it, itself or through the gradients between them: then nothing can run
// beside it.
std::vector<int> branch_of_nodes(const Graph& graph) {
  std::vector<int> branch(graph.nodes.size(), 0);
  std::vector<size_t>
      next;  // the next node of the main branch, and the gradients before it that it waits for
  for (size_t n = graph.nodes.size(); n-- > 0;) {
    const Node& node = graph.nodes[n];
    if (!is_parameter_gradient(node)) {
      next = {n};
      continue;
    }
    const bool waited_for =
        std::ranges::any_of(next, [&](size_t k) { return graph.conflict(node, graph.nodes[k]); });
    if (waited_for) next.push_back(n);
    branch[n] = !next.empty() && !waited_for;
  }
  return branch;
}

}  // namespace

bool Branches::any_side() const { return std::ranges::find(branch, 1) != branch.end(); }

Branches split_branches(const Graph& graph) {
  const size_t count = graph.nodes.size();
  const Uses uses(graph);
  Branches b{.branch = branch_of_nodes(graph)};
  std::array<int, 2> last{Branches::kNone, Branches::kNone};
  for (size_t n = 0; n < count; ++n) {
    const int own = b.branch[n], other = 1 - own;
    std::array<int, 2> follows{Branches::kNone, Branches::kNone};
    if (last[own] >= 0) follows = b.follows[last[own]];
    const std::vector<int> earlier = uses.neighbours(graph, int(n), 0, int(n));
    const auto last_wanted = std::find_if(earlier.rbegin(), earlier.rend(), [&](int p) {
      return b.branch[p] == other && graph.conflict(graph.nodes[p], graph.nodes[n]);
    });
    const int wanted = last_wanted == earlier.rend() ? Branches::kNone : *last_wanted;
    int waits = Branches::kNone;
    if (wanted > follows[other]) {
      waits = wanted;
      const auto& theirs = b.follows[wanted];
      follows = {std::max(follows[0], theirs[0]), std::max(follows[1], theirs[1])};
    } else if (own == 1 && last[1] < 0) {
      waits = Branches::kStart;
    }
    follows[own] = last[own] = int(n);
    b.waits.push_back(waits);
    b.follows.push_back(follows);
  }
  const int joined = last[0] < 0 ? Branches::kNone : b.follows[last[0]][1];
  if (last[1] > joined) b.join = last[1];
  return b;
}

}  // namespace sinter::capture
