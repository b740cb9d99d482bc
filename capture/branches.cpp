#include "capture/branches.h"

#include <algorithm>

namespace sinter::capture {
namespace {

bool is_parameter_gradient(const Node& node) { return node.role == Role::wgrad || node.role == Role::bgrad; }

// Worth a branch: some node of the main chain can run between it and the first that needs it.
bool has_company(const Graph& graph, size_t n, const std::vector<std::vector<char>>& needs) {
  for (size_t m = n + 1; m < graph.nodes.size(); ++m) {
    if (!is_parameter_gradient(graph.nodes[m])) return !needs[m][n];
  }
  return false;
}

}  // namespace

bool Branches::any_side() const { return std::find(branch.begin(), branch.end(), 1) != branch.end(); }

bool Branches::parallel(int a, int b) const {
  if (a > b) std::swap(a, b);
  return follows[static_cast<size_t>(b)][static_cast<size_t>(branch[static_cast<size_t>(a)])] < a;
}

Branches split_branches(const Graph& graph) {
  const size_t count = graph.nodes.size();
  std::vector<std::vector<char>> conflicts(count), needs(count);  // [later][earlier]; needs: through others too
  for (size_t n = 0; n < count; ++n) {
    conflicts[n].assign(count, 0);
    for (size_t p = 0; p < n; ++p) conflicts[n][p] = graph.conflict(graph.nodes[p], graph.nodes[n]);
    needs[n] = conflicts[n];
    for (size_t p = 0; p < n; ++p) {
      for (size_t q = 0; conflicts[n][p] && q < p; ++q) needs[n][q] |= needs[p][q];
    }
  }
  Branches b;
  for (size_t n = 0; n < count; ++n) b.branch.push_back(is_parameter_gradient(graph.nodes[n]) && has_company(graph, n, needs));
  std::array<int, 2> last{Branches::kNone, Branches::kNone};
  for (size_t n = 0; n < count; ++n) {
    const size_t own = static_cast<size_t>(b.branch[n]), other = 1 - own;
    std::array<int, 2> follows{Branches::kNone, Branches::kNone};
    if (last[own] >= 0) follows = b.follows[static_cast<size_t>(last[own])];
    int wanted = Branches::kNone;
    for (size_t p = 0; p < n; ++p) {
      if (static_cast<size_t>(b.branch[p]) == other && conflicts[n][p]) wanted = static_cast<int>(p);
    }
    int waits = Branches::kNone;
    if (wanted > follows[other]) {
      waits = wanted;
      const auto& theirs = b.follows[static_cast<size_t>(wanted)];
      follows = {std::max(follows[0], theirs[0]), std::max(follows[1], theirs[1])};
    } else if (own == 1 && last[1] < 0) {
      waits = Branches::kStart;
    }
    follows[own] = last[own] = static_cast<int>(n);
    b.waits.push_back(waits);
    b.follows.push_back(follows);
  }
  const int joined = last[0] < 0 ? Branches::kNone : b.follows[static_cast<size_t>(last[0])][1];
  if (last[1] > joined) b.join = last[1];
  return b;
}

}  // namespace sinter::capture
