#include "capture/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>

#include "capture/measure.h"
#include "capture/text.h"
#include "core/device/kept_choices.h"
#include "core/numbers.h"

namespace sinter::capture {
namespace {

std::string kilobytes(int64_t bytes) { return fmt::format("{:.1f} kB", double(bytes) / 1000); }
std::string name_of(Device::Type type) {
  const std::string name = Device{type, 0}.str();
  return name.substr(0, name.find(':'));
}
std::string launches(int n) { return count_of(n, "launch", "es"); }

// The times of the step with and without a group, as far as there are any.
std::string decided_by(const Group& group) {
  const std::string times = group.choice.text();
  if (!times.empty()) return "whole step " + times;
  return group.kept_unfused() ? "by the plan" : "";
}

class Explainer {
 public:
  explicit Explainer(const Captured& captured)
      : recorded_(captured.recorded),
        fused_(captured.fused.graph),
        numbers_(file_numbers(captured.recorded)) {}

  // The recorded ops that a group stands for.
  std::string names(const Group& group) const { return renumbered(recorded_.names(group.origin)); }

  // Text of a rewriter speaks of values of the graph: %N becomes the number in the file. Values
  // that rules made keep theirs, which is higher.
  std::string renumbered(std::string_view text) const {
    std::string out;
    while (!text.empty()) {
      const size_t behind = std::min(text.find('%'), text.size() - 1) + 1;
      out += text.substr(0, behind);
      text.remove_prefix(behind);
      size_t value = 0;
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
      if (error != std::errc()) continue;
      text.remove_prefix(size_t(end - text.data()));
      const bool known = value < numbers_.size() && numbers_[value] >= 0;
      out += std::to_string(known ? size_t(numbers_[value]) : value);
    }
    return out;
  }

  // Results of the group's ops that nothing makes any more.
  std::string intermediates(const Group& group) const {
    std::set<int> made;  // buffers
    for (const Node& node : fused_.nodes) {
      for (const int out : node.out) made.insert(fused_.values[out].buffer);
    }
    std::vector<int> gone;
    for (const int o : group.origin) {
      for (const int out : recorded_.nodes[o].out) {
        if (!made.contains(fused_.values[out].buffer)) gone.push_back(out);
      }
    }
    if (gone.empty()) return "";
    return gone.size() == 1 ? str(" (one ", recorded_.values[gone[0]].shape.str(), " intermediate)")
                            : str(" (", gone.size(), " intermediates)");
  }

  // "   predicted 13.1 us, unfused 16.4", or "".
  std::string predicted(const Group& group, const profiler::Ceiling& ceiling) const {
    if (!ceiling.known()) return "";
    double fused = 0, parts = 0;
    for (const Node& node : fused_.nodes) {
      if (stands_for(node, group.origin)) fused += ceiling.predicted_ns(1, fused_.cost(node));
    }
    for (const int o : group.origin)
      parts += ceiling.predicted_ns(1, recorded_.cost(recorded_.nodes[o]));
    return fmt::format("   predicted {:.1f} us, unfused {:.1f}", 1e-3 * fused, 1e-3 * parts);
  }

 private:
  const Graph &recorded_, &fused_;
  std::vector<int> numbers_;
};

}  // namespace

std::string explain(const Captured& captured, const RuleSet& set, std::span<const Rule> table,
    const profiler::Ceiling& ceiling) {
  const Explainer explainer(captured);
  const std::vector<Group>& groups = captured.fused.groups;
  size_t width = 0;
  for (const Group& group : groups) width = std::max(width, std::string_view(group.rule).size());

  std::string out, fallbacks;
  int number = 0;
  for (const Group& group : groups) {
    if (group.kept_unfused()) {
      fallbacks += fmt::format("fallback {} <- {}: {}: kept unfused     ({} not saved)\n",
          group.rule, explainer.names(group), decided_by(group), launches(group.launches_saved));
      continue;
    }
    out += fmt::format("group {:<3}{:<{}}  <- {}     saves {}{}{}", ++number, group.rule, width,
        explainer.names(group), launches(group.launches_saved),
        group.bytes_saved ? ", " + kilobytes(group.bytes_saved) : "",
        explainer.intermediates(group));
    out += explainer.predicted(group, ceiling);
    if (const std::string by = decided_by(group); !by.empty()) out += "   " + by;
    out += '\n';
  }
  for (const Miss& miss : captured.fused.misses) {
    const auto& [why, remedy] = miss.obstacle;
    out += explainer.renumbered(str("miss     ", miss.what, "     rule ", miss.rule, ": ", why,
        "     would save ", launches(miss.would_save), "\n"));
    if (!remedy.empty()) out += explainer.renumbered(str("         to fuse: ", remedy, "\n"));
  }
  for (size_t n = 0; n < captured.fused.graph.nodes.size(); ++n) {
    const Node& node = captured.fused.graph.nodes[n];
    const std::string& made_by = captured.executor->made_by(n);
    if (!made_by.empty())
      out += explainer.renumbered(str("kernel   %", node.out[0], " ", node.text(), ": ")) +
             made_by + '\n';
  }
  out += fallbacks;
  const Device::Type device = captured.recorded.device().type;
  for (const Rule& rule : table) {
    if (!rule.on(device) && set.has(rule.name()))
      out += str("off      rule ", rule.name(), ": no ", name_of(device), " kernel\n");
  }
  if (const Choice& whole = captured.fused.plan; whole.measured) {
    out += str("plan     ", whole.said(), "\n",
        "choice   measured: a group goes where the whole step is faster without it, beyond "
        "doubt\n");
    const std::string note = kept_choices_note();
    if (!note.empty()) out += str("note     ", note, "\n");
  } else if (!groups.empty()) {
    out += "choice   by the cost model: fewer launches and no more bytes are better\n";
  }
  const MemoryPlan& plan = captured.executor->plan();
  out += fmt::format("memory   {} in one arena, {} if every buffer had its own\n",
      kilobytes(plan.bytes), kilobytes(plan.unshared_bytes));
  return out + str(captured.recorded.launches(), " launches -> ", captured.fused.graph.launches(),
                   " (rules ", set.text(), ")\n");
}

}  // namespace sinter::capture
