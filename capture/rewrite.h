// What the rules rewrite with: a graph, the place where a group may be fused, and the record of
// what was done and what was not.
#pragma once

#include <functional>
#include <optional>
#include <set>

#include "capture/uses.h"

namespace sinter::capture {

// Groups that must stay unfused: rule, and the number of the first node it came from.
using Refused = std::set<std::pair<std::string, int>>;
// One group that a rule fused, for explain() and the ledger.
struct Group {
  const char* rule;
  std::string what;  // "%20 linear, %21 relu"
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
  std::vector<int> values_beside(int value) const;  // the others in its buffer

  // Replaces the nodes `members` (numbers) by `fused`, at the place of the last or of the first
  // member, whichever is legal: no other node between may conflict with a member that moves. Fills
  // rule, origin, group. False, with a near miss, if there is no place, or if the fused op would
  // not give what its members give.
  bool fuse(const char* rule, std::vector<int> members, Node fused);
  // Why a node in place of `members` cannot read `value`: one of them makes it or what it is a view
  // of. Else "".
  std::string made_inside(const std::vector<int>& members, int value) const;
  void miss(const char* rule, const std::vector<int>& members, std::string why, int would_save);
  // "%20 linear, %21 relu"
  std::string names(const std::vector<int>& members) const;

  void replace(int n, Node node);
  int add_value(Value value);
  int add_local(const Shape& shape, DType dtype, Device device);
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
  bool touches(const std::vector<char>& marked, int value) const;
  bool is_duplicate(int first, int second) const;
  std::string unfit(const std::vector<int>& members, const Node& fused) const;
  std::optional<size_t> place(const std::vector<int>& members, std::string* why) const;
  void remove(int n);
  void index();

  Refused refused_;
  Uses uses_;
  std::vector<char> output_, gradient_;                      // per value: is it one?
  std::set<std::pair<std::string_view, std::string>> told_;  // misses: rule, what
  bool changed_ = false;
};

}  // namespace sinter::capture
