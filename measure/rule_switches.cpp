#include "measure/rule_switches.h"

#include <algorithm>
#include <map>

namespace sinter::measure {

using capture::Graph;

RuleSwitches rule_switches(const capture::Captured& captured, const capture::RuleSet& set) {
  capture::Refused refused;
  std::map<std::string, int64_t> saved;
  for (const capture::Group& group : captured.fused.groups) {
    if (group.kept_unfused()) {
      refused.insert({group.rule, group.origin.front()});
    } else {
      saved[group.rule] += group.bytes_saved;
    }
  }
  RuleSwitches out;
  for (const capture::Rule& rule : capture::rules()) {
    if (saved.contains(rule.name())) out.names.emplace_back(rule.name());
  }
  while (out.names.size() > RuleSwitches::kMost)
    out.names.erase(std::ranges::min_element(
        out.names, {}, [&](const std::string& name) { return saved[name]; }));
  for (size_t choice = 0; choice < size_t{1} << out.names.size(); ++choice) {
    std::string text = set.text();
    for (size_t i = 0; i < out.names.size(); ++i) {
      if (!(choice >> i & 1)) text += ",-" + out.names[i];
    }
    const Graph graph =
        capture::rewrite(captured.recorded, capture::RuleSet(text), captured.fused.device, refused)
            .graph;
    StepCounts& counts = out.counts.emplace_back();
    counts.launches = graph.launches();
    for (const capture::Node& node : graph.nodes) counts.bytes += graph.cost(node).bytes();
    counts.arena_bytes = capture::plan_memory(graph).bytes;
  }
  return out;
}

}  // namespace sinter::measure
