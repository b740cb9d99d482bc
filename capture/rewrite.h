// What the rules rewrite with: a graph, the place where a group may be fused, and the record of what was done and what was not.
#pragma once

#include <functional>
#include <optional>
#include <set>

#include "capture/graph.h"

namespace sinter::capture {

// Groups that must stay unfused: rule, and the number of the first node it came from.
using Refused = std::set<std::pair<std::string, int>>;
// One group that a rule fused, for explain() and the ledger.
struct Group {
  const char* rule;
  std::string what;                // "%20 linear, %21 relu"
  int launches_saved = 0;
  int64_t bytes_saved = 0;
  std::vector<int> origin;
  bool kept_unfused = false;          // measured slower than its parts
  bool not_judged = false;            // measured, on a machine too busy to tell: stays fused
  double fused_us = 0, parts_us = 0;  // 0: not measured. parts: what runs without the group
  std::string instead{};              // those, if measured: "merge_linear, glu"
};
// A place where a rule nearly fitted.
struct Miss {
  const char* rule;
  std::string what, why;
  int would_save = 0;
};

class Rewriter {
 public:
  Rewriter(Graph graph, Device::Type device, Refused refused)
      : graph(std::move(graph)), device(device), refused_(std::move(refused)) {}

  Graph graph;
  Device::Type device;  // whose kernels will run it
  std::vector<Group> groups;
  std::vector<Miss> misses;

  Node& node(int i) { return graph.nodes[i]; }
  // The only node that reads `value`'s memory, or -1.
  int only_reader(int value) const;
  // Replaces the nodes `members` (numbers) by `fused`, at the place of the last or of the first member, whichever is legal: no other node
  // between may conflict with a member that moves. Fills rule, origin, group. False, with a near miss, if there is no place.
  bool fuse(const char* rule, std::vector<int> members, Node fused);
  void miss(const char* rule, const std::vector<int>& members, std::string why, int would_save);
  // "%20 linear, %21 relu"
  std::string names(const std::vector<int>& members) const;

 private:
  std::optional<size_t> place(const std::vector<int>& members, std::string* why) const;
  Refused refused_;
};

}  // namespace sinter::capture
