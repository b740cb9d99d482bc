#include "capture/rewrite.h"

#include <map>

#include "profiler/names.h"

namespace sinter::capture {

Obstacle over_limit(const std::string& limit) {
  const size_t rule = limit.rfind("; ");
  return {limit, "keep to what the kernel takes" +
                     (rule == std::string::npos ? "" : ": " + limit.substr(rule + 2))};
}

Rewriter::Rewriter(Graph recorded, Device::Type device, Refused refused)
    : graph(std::move(recorded)), device(device), refused_(std::move(refused)), uses_(graph) {
  unchanged_.assign(graph.nodes.size(), 0);
}

std::vector<int> Rewriter::readers(int value) const {
  std::vector<int> out;
  for (const Uses::Use& use : uses_.nodes[graph.values[value].buffer]) {
    if (alive(use.node) && graph.reads(node(use.node), value)) out.push_back(use.node);
  }
  return out;
}

int Rewriter::only_reader(int value) const {
  const std::vector<int> found = readers(value);
  return found.size() == 1 && !is_output(value) ? found[0] : -1;
}

int Rewriter::producer(int value) const {
  const std::vector<Uses::Use>& list = uses_.nodes[graph.values[value].buffer];
  for (size_t i = list.size(); i-- > 0;) {
    if (!list[i].writes) continue;
    const std::vector<int>& out = node(list[i].node).out;
    if (std::ranges::find(out, value) != out.end()) return list[i].node;
  }
  return -1;
}

bool Rewriter::is_output(int value) const {
  return std::ranges::any_of(graph.outputs, [&](int out) { return graph.overlap(out, value); });
}
bool Rewriter::is_gradient(int value) const {
  return std::ranges::any_of(
      graph.gradients, [&](const Graph::Gradient& g) { return graph.overlap(g.grad, value); });
}

std::vector<int> Rewriter::values_beside(int value) const {
  const int buffer = graph.values[value].buffer;
  std::set<int> out;
  const auto add = [&](int v) {
    if (v >= 0 && v != value && graph.values[v].buffer == buffer) out.insert(v);
  };
  for (const Uses::Use& use : uses_.nodes[buffer]) {
    std::ranges::for_each(node(use.node).in, add);
    std::ranges::for_each(node(use.node).out, add);
  }
  std::ranges::for_each(graph.outputs, add);
  for (const Graph::Gradient& g : graph.gradients) add(g.grad);
  return {out.begin(), out.end()};
}

void Rewriter::replace(int n, Node node) {
  graph.nodes[n] = std::move(node);
  unchanged_[n] = 0;
  uses_.add_node(graph, n);
  changed_ = true;
}

// Its place stays, so that the numbers of the others hold until finish().
void Rewriter::remove(int n) {
  graph.nodes[n] = {};
  changed_ = true;
}

void Rewriter::move(int value, int buffer, const Strides& strides, int64_t offset) {
  Value& v = graph.values[value];
  // All nodes of the old buffer are listed in the new one, too; a list may name too many (uses.h).
  if (v.buffer != buffer) uses_.merge(v.buffer, buffer);
  v.buffer = buffer;
  v.strides = strides;
  v.offset = offset;
  std::ranges::fill(unchanged_, 0);
  changed_ = true;
}

void Rewriter::take_gradient(int grad, const char* rule) {
  std::erase_if(graph.gradients, [&](const Graph::Gradient& g) {
    if (g.grad != grad) return false;
    graph.taken.emplace_back(g.param, rule);
    return true;
  });
}

// From the last to the first: when a node goes, what it alone has read is dead before its turn. A
// node that changes an operand in place stays, since that memory may be read after the step.
void Rewriter::eliminate_dead() {
  for (int n = int(graph.nodes.size()); n-- > 0;) {
    if (!alive(n) || node(n).op->in_place()) continue;
    const bool used = std::any_of(node(n).out.begin(), node(n).out.end(),
        [&](int out) { return is_gradient(out) || is_output(out) || !readers(out).empty(); });
    if (!used) remove(n);
  }
}

bool Rewriter::written_between(int value, int begin, int end) const {
  if (value < 0) return false;
  for (const Uses::Use& use : uses_.nodes[graph.values[value].buffer]) {
    const bool inside = begin <= use.node && use.node < end && use.writes;
    if (inside && alive(use.node) && graph.writes(node(use.node), value)) return true;
  }
  return false;
}

// Note [Computing equal things once]
//   A backward pass often computes again what forward has computed: act(g), a transposed copy. When
//   may the readers of the second result read the first one instead?
//
//       %5 = exp(%1)        first
//       ..                  (a)
//       %9 = exp(%1)        second: goes, and %9 becomes another name of %5
//       ..                  (b)
//
//     1. Both are the same op of the same operands, and nobody writes those in (a).
//     2. Nobody writes %5 in (a) or (b), nor %9 in (b): the two would change as one.
//     3. Nodes alone read %9. To the caller, two results are two memories.
//   Values that are views of %9 come along: their buffer becomes that of %5. The first of equal ops
//   is looked up by op and operands, so the pass takes as long as the graph.
bool Rewriter::is_duplicate(int first, int second) const {
  const Node &a = node(first), &b = node(second);
  const int end = int(graph.nodes.size());
  if (a.op != b.op || a.in != b.in || !(a.attrs == b.attrs)) return false;
  for (const int in : a.in) {
    if (written_between(in, first + 1, second)) return false;
  }
  for (const int out : a.out) {
    if (written_between(out, first + 1, end)) return false;
  }
  for (const int out : b.out) {
    if (written_between(out, second + 1, end) || is_output(out) || is_gradient(out)) return false;
  }
  return true;
}

// Note [Computing equal things once].
void Rewriter::eliminate_duplicates() {
  std::map<std::pair<const OpDef*, std::vector<int>>, std::vector<int>> earlier;
  for (int n = 0; n < int(graph.nodes.size()); ++n) {
    if (!alive(n) || node(n).op->in_place()) continue;
    std::vector<int>& candidates = earlier[{node(n).op, node(n).in}];
    const auto first = std::ranges::find_if(candidates, [&](int c) { return is_duplicate(c, n); });
    if (first == candidates.end()) {
      candidates.push_back(n);
      continue;
    }
    // Nodes that read a result of the second read that of the first. The second's values, and views
    // of them, become values of the first one's buffer, where the same elements lie.
    const std::vector<int> kept = node(*first).out, gone = node(n).out;
    remove(n);
    for (size_t o = 0; o < gone.size(); ++o) {
      const int from = graph.values[gone[o]].buffer, to = graph.values[kept[o]].buffer;
      for (const Uses::Use& use : uses_.nodes[from]) {
        std::vector<int>& in = graph.nodes[use.node].in;
        std::ranges::replace(in, gone[o], kept[o]);
      }
      std::vector<int> moved = values_beside(gone[o]);
      moved.push_back(gone[o]);
      uses_.merge(from, to);
      for (const int v : moved) graph.values[v].buffer = to;
    }
  }
}

// Moves the nodes that are left together, so all numbers of nodes change: the index is made anew.
// Verifying infers the shapes of nodes that are new or whose values may have moved only.
void Rewriter::finish(const char* after) {
  if (!changed_) return;
  size_t kept = 0;
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    if (graph.nodes[n].op == nullptr) continue;
    unchanged_[kept] = unchanged_[n];
    if (kept != n) graph.nodes[kept] = std::move(graph.nodes[n]);
    ++kept;
  }
  graph.nodes.resize(kept);
  unchanged_.resize(kept);
  uses_ = Uses(graph);
  graph.verify(after, unchanged_);
  unchanged_.assign(kept, 1);
  changed_ = false;
}

// Note [Where a fused node may stand]
//   A group's nodes need not be neighbours, so fusing them moves all but one. We try two places,
//   that of the last and that of the first:
//
//       1  z = linear(x, W)         member, to stand at 3 it passes 2
//       2  W -= lr dW               writes W, which 1 reads: 1 may not pass it
//       3  y = relu(z)              member, to stand at 1 it passes 2: it may
//
//   Two nodes may change places unless one writes memory that the other reads or writes
//   (Graph::conflict). Every member must get to the place past every node between that is no
//   member. At the last place all operands are there for sure; at the first all readers are still
//   to come. Any place between could be legal, too, but would help no step of ours. Only nodes that
//   share a buffer with a member are asked (Uses::neighbours), however many stand between.
std::optional<size_t> Rewriter::place(const std::vector<int>& members, Obstacle* obstacle) const {
  const int first = members.front(), last = members.back();
  std::vector<char> is_member(size_t(last - first) + 1, 0);
  for (const int m : members) is_member[m - first] = 1;
  // A member that would pass a node that it must not, and that node.
  using Conflict = std::optional<std::pair<int, int>>;
  const auto conflict = [&](bool at_last) -> Conflict {
    for (const int m : members) {
      const std::vector<int> passed =
          at_last ? uses_.neighbours(graph, m, m + 1, last) : uses_.neighbours(graph, m, first, m);
      for (const int k : passed) {
        if (!is_member[k - first] && alive(k) && graph.conflict(node(m), node(k)))
          return std::pair(m, k);
      }
    }
    return std::nullopt;
  };
  if (!conflict(true)) return last;
  const Conflict found = conflict(false);
  if (!found) return first;
  const Node &member = node(found->first), &between = node(found->second);
  *obstacle = {
      str(print_node(graph, between), " stands between and needs ", member.text(), " in its place"),
      str("run ", between.text(), " before or after all of them")};
  return std::nullopt;
}

// A rule comes to the same group in every pass (each_node), and it is told once.
bool Rewriter::miss(const char* rule, const std::vector<int>& members, Obstacle obstacle) {
  std::string what = graph.names(members);
  if (told_.emplace(rule, what).second) {
    misses.push_back({rule, std::move(what), std::move(obstacle), int(members.size()) - 1});
  }
  return false;
}

int Rewriter::find_reader(int value, const OpDef& op) const {
  for (const int n : readers(value)) {
    if (node(n).op == &op && node(n).reads(value)) return n;
  }
  return -1;
}

int Rewriter::reader_outside(int value, const std::vector<int>& members) const {
  if (is_output(value)) return kCaller;
  for (const int n : readers(value)) {
    if (std::ranges::find(members, n) == members.end()) return n;
  }
  return kNobody;
}

bool Rewriter::read_elsewhere(int value, const std::vector<int>& members) const {
  return reader_outside(value, members) != kNobody;
}

Obstacle Rewriter::other_reader(
    std::string_view what, int value, const std::vector<int>& members) const {
  const int reader = reader_outside(value, members);
  if (reader == kNobody) return {};
  if (reader == kCaller)
    return {str(what, " is also read by a result of the step"),
        str("let the step not return %", value, " or a view of it")};
  constexpr size_t kMost = 16;  // of a list's operands nobody reads thousands
  const Node& other = node(reader);
  return {str(what, " is also read by ",
              other.in.size() <= kMost ? print_node(graph, other)
                                       : str(other.text(), " of ", other.in.size(), " values")),
      str("let no other op read %", value)};
}

Obstacle Rewriter::made_inside(const std::vector<int>& members, int value) const {
  for (const int m : members) {
    for (const int out : node(m).out) {
      if (graph.overlap(out, value))
        return {str("an operand, %", value, ", is a view of what ", node(m).text(),
                    " of the group makes"),
            str("read %", out, " itself in place of the view")};
    }
  }
  return {};
}

// Does `fused` not stand for `members`? A rule sees to the values that it knows; this holds for all
// of them.
Obstacle Rewriter::unfit(const std::vector<int>& members, const Node& fused) const {
  for (size_t i = 0; i < fused.in.size(); ++i) {
    if (fused.in[i] < 0) continue;
    const bool any_strides = fused.op->takes_strides(i, fused.in.size(), fused.attrs);
    if (!any_strides && !graph.values[fused.in[i]].contiguous())
      return {str("an operand, ", graph.meta(fused.in[i]).describe(),
                  ", is a view whose elements do not lie together"),
          str("give contiguous(%", fused.in[i], ")")};
    if (Obstacle obstacle = made_inside(members, fused.in[i])) return obstacle;
  }
  // The op's own rule of shapes is asked, and what it throws is the reason: so no rule of capture
  // has to know what a kernel takes.
  try {
    const Tensors given = fused.op->results(graph.metas(fused.in), fused.attrs);
    for (size_t o = 0; o < given.size() && o < fused.out.size(); ++o) {
      const Tensor wanted = graph.meta(fused.out[o]);
      if (given[o].shape() != wanted.shape() || given[o].dtype() != wanted.dtype())
        return {str(fused.text(), " gives ", given[o].describe(), " where ", wanted.describe(),
                    " is read"),
            str("make %", fused.out[o], " ", name_of(given[o].dtype()), given[o].shape().str())};
    }
  } catch (const Error& error) {
    return {error.message(), error.hint()};
  }
  return {};
}

Obstacle Rewriter::obstacle_to(const std::vector<int>& members, const Node* fused) const {
  Obstacle obstacle = fused ? unfit(members, *fused) : Obstacle();
  if (!obstacle) place(members, &obstacle);
  return obstacle;
}

bool Rewriter::fuse_pair(const char* rule, const std::vector<int>& members, Node forward,
    const std::vector<int>& back_members, Node backward) {
  if (refused_.contains({rule, origin_of(members).front()}) || obstacle_to(members, &forward))
    return false;
  if (!back_members.empty() && !fuse(rule, back_members, std::move(backward))) return false;
  return fuse(rule, members, std::move(forward));
}

std::vector<int> Rewriter::origin_of(const std::vector<int>& members) const {
  std::vector<int> origin;
  for (const int m : members)
    origin.insert(origin.end(), node(m).origin.begin(), node(m).origin.end());
  std::ranges::sort(origin);
  return origin;
}

bool Rewriter::fuse(const char* rule, std::vector<int> members, Node fused) {
  std::ranges::sort(members);
  std::vector<int> origin = origin_of(members);
  if (refused_.contains({rule, origin.front()})) return false;
  Obstacle obstacle = unfit(members, fused);
  const std::optional<size_t> at = obstacle ? std::nullopt : place(members, &obstacle);
  if (!at) return miss(rule, members, std::move(obstacle));
  // The bytes of the parts less those of the whole: what lay between them in memory is gone.
  Group group{.rule = rule, .launches_saved = int(members.size()) - 1, .origin = origin};
  for (const int m : members) group.bytes_saved += graph.cost(graph.nodes[m]).bytes();
  group.bytes_saved -= graph.cost(fused).bytes();
  fused.rule = rule;
  fused.origin = std::move(origin);
  for (const int m : members) {
    profiler::add_modules(fused.module, node(m).module);
    fused.phases |= node(m).phases;
  }
  for (const int m : members) remove(m);
  replace(int(*at), std::move(fused));
  // A group that grows out of an earlier one stands for it: it has saved what that one saved, too,
  // and explain() tells of one group.
  std::erase_if(groups, [&](const Group& g) {
    const bool inside = std::ranges::includes(group.origin, g.origin);
    if (inside) {
      group.launches_saved += g.launches_saved;
      group.bytes_saved += g.bytes_saved;
    }
    return inside;
  });
  groups.push_back(std::move(group));
  return true;
}

}  // namespace sinter::capture
