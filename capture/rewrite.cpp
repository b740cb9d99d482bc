#include "capture/rewrite.h"

#include <algorithm>

namespace sinter::capture {

int Rewriter::only_reader(int value) const {
  const std::vector<int> readers = graph.readers(value);
  return readers.size() == 1 && !graph.is_output(value) ? readers[0] : -1;
}

std::string Rewriter::names(const std::vector<int>& members) const {
  std::string out;
  for (const int m : members) {
    const Node& n = graph.nodes[m];
    out += (out.empty() ? "" : ", ") + (n.out.empty() ? std::string() : cat("%", n.out[0], " ")) + std::string(n.op->text());
    if (n.op->in_place() && !n.in.empty() && !graph.values[n.in[0]].name.empty()) out += " of " + graph.values[n.in[0]].name;
  }
  return out;
}

std::optional<size_t> Rewriter::place(const std::vector<int>& members, std::string* why) const {
  const auto member = [&](int n) { return std::find(members.begin(), members.end(), n) != members.end(); };
  const int first = members.front(), last = members.back();
  const auto legal = [&](bool at_last) {
    for (const int m : members) {
      for (int k = at_last ? m + 1 : first; k < (at_last ? last : m); ++k) {
        if (member(k) || !graph.conflict(graph.nodes[m], graph.nodes[k])) continue;
        if (why) *why = cat(print_node(graph, graph.nodes[k]), " stands between and needs ", graph.nodes[m].op->text(), " in its place");
        return false;
      }
    }
    return true;
  };
  if (legal(true)) return last;
  if (legal(false)) return first;
  return std::nullopt;
}

void Rewriter::miss(const char* rule, const std::vector<int>& members, std::string why, int would_save) {
  Miss m{rule, names(members), std::move(why), would_save};
  for (const Miss& other : misses) {
    if (other.what == m.what && std::string_view(other.rule) == rule) return;
  }
  misses.push_back(std::move(m));
}

bool Rewriter::fuse(const char* rule, std::vector<int> members, Node fused) {
  std::sort(members.begin(), members.end());
  std::vector<int> origin;
  for (const int m : members) origin.insert(origin.end(), graph.nodes[m].origin.begin(), graph.nodes[m].origin.end());
  std::sort(origin.begin(), origin.end());
  if (refused_.contains({rule, origin.front()})) return false;
  std::string why;
  for (size_t i = 0; i < fused.in.size(); ++i) {
    const bool any_strides = fused.op->takes_strides(i, fused.in.size());
    if (any_strides || fused.in[i] < 0 || graph.values[fused.in[i]].contiguous()) continue;
    miss(rule, members, cat("an operand, ", graph.meta(fused.in[i]).describe(), ", is a view whose elements do not lie together"), static_cast<int>(members.size()) - 1);
    return false;
  }
  const std::optional<size_t> at = place(members, &why);
  if (!at) {
    miss(rule, members, why, static_cast<int>(members.size()) - 1);
    return false;
  }
  Group group{.rule = rule, .what = names(members), .launches_saved = static_cast<int>(members.size()) - 1, .origin = origin};
  for (const int m : members) group.bytes_saved += graph.cost(graph.nodes[m]).bytes();
  group.bytes_saved -= graph.cost(fused).bytes();
  fused.rule = rule;
  fused.origin = std::move(origin);
  for (const int m : members) {
    if (fused.module.empty()) fused.module = graph.nodes[m].module;
  }
  graph.nodes[*at] = std::move(fused);
  for (size_t i = members.size(); i-- > 0;) {
    if (static_cast<size_t>(members[i]) != *at) graph.nodes.erase(graph.nodes.begin() + members[i]);
  }
  // A group that grows out of an earlier one stands for it.
  std::erase_if(groups, [&](const Group& g) {
    const bool inside = std::includes(group.origin.begin(), group.origin.end(), g.origin.begin(), g.origin.end());
    if (inside) group.launches_saved += g.launches_saved, group.bytes_saved += g.bytes_saved;
    return inside;
  });
  groups.push_back(std::move(group));
  return true;
}

}  // namespace sinter::capture
