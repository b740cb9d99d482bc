// kept_of(): what each module keeps for backward. Of a report that has nodes it is what they keep.
#include <fmt/format.h>

#include <algorithm>

#include "core/numbers.h"
#include "profiler/report.h"

namespace sinter::profiler {
namespace {

void add_kept(std::vector<Kept>& to, std::string_view module, const std::string& op, double bytes,
    const std::string& until) {
  auto of = std::ranges::find(to, module, &Kept::module);
  if (of == to.end()) of = to.insert(to.end(), {.module = std::string(module)});
  add_modules(of->ops, op);                  // which has none twice, either
  if (of->until.empty()) of->until = until;  // of the first, which is the largest
  of->bytes += bytes;
}

std::vector<Kept> largest_first(std::vector<Kept> all) {
  std::ranges::stable_sort(all, std::greater(), &Kept::bytes);
  return all;
}

}  // namespace

std::vector<Kept> kept_of(const Report& report) {
  if (!report.nodes.empty()) return kept_of(report.nodes);
  std::vector<KeptBlock> blocks;
  memory_of_records(report, &blocks);
  std::ranges::stable_sort(blocks, std::greater(), &KeptBlock::bytes);
  std::vector<Kept> out;
  const auto text = [](const Record* r) {
    return r ? label_of(r->name, r->info.role) : "the end of the step";
  };
  for (const KeptBlock& block : blocks)
    add_kept(out, block.by->info.module, text(block.by),
        double(block.bytes) / double(report.steps.size()), text(block.until));
  return largest_first(std::move(out));
}

std::vector<Kept> kept_of(std::span<const GraphNode> nodes) {
  std::vector<GraphNode> sorted(nodes.begin(), nodes.end());
  std::ranges::stable_sort(
      sorted, std::greater(), [](const GraphNode& n) { return n.memory.kept; });
  std::vector<Kept> out;
  for (const GraphNode& node : sorted) {
    if (node.memory.kept > 0)
      add_kept(out, node.module, node.name, double(node.memory.kept), node.kept_until);
  }
  return largest_first(std::move(out));
}

std::string kept_lines(const std::vector<Kept>& of, const std::vector<Kept>* fused) {
  const auto parts = [](const std::string& modules) { return parts_of(modules, " + "); };
  // What a fused op keeps stands beside the largest of the modules that it stands for.
  std::vector<double> beside(of.size(), 0);
  double alone = 0;
  for (const Kept& kept : fused ? *fused : std::vector<Kept>()) {
    const auto all = parts(kept.module);
    const auto at = std::ranges::find_if(
        of, [&](const Kept& k) { return std::ranges::find(all, k.module) != all.end(); });
    (at == of.end() ? alone : beside[size_t(at - of.begin())]) += kept.bytes;
  }
  const char* const label = fused ? "kept     " : "kept: ";  // of a comparison; of a table
  std::string out;
  for (size_t i = 0; i < of.size(); ++i) {
    out += fmt::format("{}{} keeps {:.1f} kB ({}) until {}{}\n", label,
        of[i].module.empty() ? "no module" : of[i].module, of[i].bytes / 1e3, of[i].ops,
        of[i].until, fused ? fmt::format("; fused: {:.1f} kB", beside[i] / 1e3) : "");
  }
  if (alone > 0) out += fmt::format("{}fused alone: {:.1f} kB\n", label, alone / 1e3);
  return out;
}

}  // namespace sinter::profiler
