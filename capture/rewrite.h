// What the rules rewrite with: a graph, the place where a group may be fused, and the record of
// what was done and what was not.
#pragma once

#include <algorithm>
#include <optional>
#include <set>

#include "capture/uses.h"
#include "core/device/chooser.h"

namespace sinter::capture {

// Groups that must stay unfused: rule, and the number of the first node it came from.
using Refused = std::set<std::pair<std::string, int>>;
// One group that a rule fused, for explain() and the table.
struct Group {
  const char* rule;
  int launches_saved = 0;
  int64_t bytes_saved = 0;
  std::vector<int> origin;
  // Of whole steps "with it" and "without it", if they were measured.
  Choice choice = {};
  bool kept_unfused() const { return choice.chosen == 1; }
};
// Why nodes are no group, and the smallest change of the program that would make them one. Both in
// words; empty: nothing is in the way. Both follow from the condition that failed, so no rule has
// texts of its own for what every rule asks.
struct Obstacle {
  std::string why, remedy;
  explicit operator bool() const { return !why.empty(); }
};
// OpDef::limit's "<what was found>; <what the kernels take>".
Obstacle over_limit(const std::string& limit);
// A place where a rule nearly fitted.
struct Miss {
  const char* rule;
  std::string what;
  Obstacle obstacle;
  int would_save = 0;
};

// A graph that rules change, and an index of it (uses.h). A rule reads `graph` as it likes and
// changes it by the functions below, which keep the index. A node that is gone stays as one without
// an op until the rule is done: numbers hold meanwhile.
class Rewriter {
 public:
  Rewriter(Graph graph, Device::Type device, Refused refused);

  Graph graph;
  Device::Type device;  // whose kernels will run it
  std::vector<Group> groups;
  std::vector<Miss> misses;
  Choice plan = {};  // of whole steps: with which groups to begin, if that was measured

  const Node& node(int i) const { return graph.nodes[i]; }
  bool alive(int i) const { return node(i).op != nullptr; }
  // Nodes that read (the memory of) value, by number. Gradients and outputs do not count.
  std::vector<int> readers(int value) const;
  // The only node that reads `value`'s memory, or -1.
  int only_reader(int value) const;
  // Does a node of [begin, end) write its memory? An absent value is never written.
  bool written_between(int value, int begin, int end) const;
  int producer(int value) const;      // last node that has it among its outputs, or -1
  bool is_output(int value) const;    // memory of a result of the step
  bool is_gradient(int value) const;  // memory of a parameter's gradient at the end of the step
  // The others in its buffer that a node reads or makes, or the caller gets.
  std::vector<int> values_beside(int value) const;
  // See Uses.
  std::vector<int> neighbours(int node, int begin, int end) const {
    return uses_.neighbours(graph, node, begin, end);
  }
  // Is f() true? If not, it has changed nothing: values that it added would look like views of what
  // lies beside them, and go.
  template <class F> bool tried(F&& f) {
    const size_t values = graph.values.size(), buffers = graph.buffers.size();
    if (f()) return true;
    graph.values.resize(values);
    graph.buffers.resize(buffers);
    return false;
  }
  // A node of this op that reads the value, or -1.
  int find_reader(int value, const OpDef& op) const;
  // Does a node that is no member need the memory of `value`, or the caller as a result? The second
  // says who: `what` begins the sentence, "what linear gives".
  bool read_elsewhere(int value, const std::vector<int>& members) const;
  Obstacle other_reader(std::string_view what, int value, const std::vector<int>& members) const;

  // Calls f(i) for every node in order, in passes, until a pass changes nothing: f is true if it
  // changed something. A change may make room for a group that begins before it, and groups are
  // best found from the front: so it goes on a little before the change. Going back to the
  // beginning, every time, takes as long as the square of the graph.
  template <class F> void each_node(F&& f) {
    constexpr int kBack = 64;
    for (bool changed = true; changed;) {
      changed = false;
      for (int i = 0; i < int(graph.nodes.size()); ++i) {
        if (!alive(i) || !f(i)) continue;
        changed = true;
        i = std::max(i - kBack, 0) - 1;
      }
    }
  }

  // Replaces the nodes `members` (numbers) by `fused`, at the place of the last or of the first
  // member, whichever is legal: no other node between may conflict with a member that moves. Fills
  // rule, origin, group. False, with a near miss, if there is no place, or if the fused op would
  // not give what its members give.
  bool fuse(const char* rule, std::vector<int> members, Node fused);
  // What would be in its way, for rules that let a group grow; without `fused`, in the way of any
  // node for these members. REQUIRES: members are sorted.
  Obstacle obstacle_to(const std::vector<int>& members, const Node* fused = nullptr) const;
  // Fuses two groups or none: what must change together, as backward reads what forward gives; or
  // forward alone, if there are no members of the other. REQUIRES: members are sorted.
  bool fuse_pair(const char* rule, const std::vector<int>& members, Node forward,
      const std::vector<int>& back_members, Node backward);
  // What is in the way if one node that stands for `members` is to read `value`: a member makes it,
  // or makes what it is a view of, so it would have to be there before the node has run.
  Obstacle made_inside(const std::vector<int>& members, int value) const;
  // Always false, for rules to return.
  bool miss(const char* rule, const std::vector<int>& members, Obstacle obstacle);

  void replace(int n, Node node);
  // Makes `value` a part of another buffer.
  void move(int value, int buffer, const Strides& strides, int64_t offset);
  // Parameters whose .grad() is `grad` have none any more: the rule's op consumes it.
  void take_gradient(int grad, const char* rule);

  // Drops nodes whose results nobody reads; computes equal things once.
  void eliminate_dead();
  void eliminate_duplicates();
  // Drops the nodes that are gone, and verifies, if anything has changed since the last time.
  // `after` names what changed it.
  void finish(const char* after);

 private:
  static constexpr int kNobody = -1, kCaller = -2;
  int reader_outside(int value, const std::vector<int>& members) const;
  bool is_duplicate(int first, int second) const;
  Obstacle unfit(const std::vector<int>& members, const Node& fused) const;
  std::vector<int> origin_of(const std::vector<int>& members) const;  // sorted
  std::optional<size_t> place(const std::vector<int>& members, Obstacle* obstacle) const;
  void remove(int n);

  Refused refused_;
  Uses uses_;
  std::set<std::pair<std::string_view, std::string>> told_;  // misses: rule, what
  bool changed_ = false;
  std::vector<char> unchanged_;  // per node: neither new nor of moved values since it was verified
};

}  // namespace sinter::capture
