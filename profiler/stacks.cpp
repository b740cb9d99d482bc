// Folded stacks, the text that flame graph tools read, and a flame graph of our own.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "core/error.h"
#include "profiler/trace.h"

namespace sinter::profiler {
namespace {

// A frame of the folded text: no separator, no line end, no control byte.
std::string frame(std::string_view name) {
  std::string out = escaped(name);
  std::replace(out.begin(), out.end(), ';', ',');
  return out;
}

std::string xml(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const char* entity = c == '<'   ? "&lt;"
                         : c == '>' ? "&gt;"
                         : c == '&' ? "&amp;"
                         : c == '"' ? "&quot;"
                                    : nullptr;
    entity ? out += entity : out += c;
  }
  return out;
}

struct Node {
  int64_t value = 0;
  std::map<std::string, Node> kids{};

  int depth() const {
    int deepest = 0;
    for (const auto& [name, kid] : kids) deepest = std::max(deepest, kid.depth());
    return deepest + 1;
  }
};

class Picture {
 public:
  static constexpr double kWidth = 1200, kRow = 20, kTop = 44;
  explicit Picture(int64_t all) : all_(all) {}

  void put(const std::string& name, const Node& node, double x, int level) {
    const double w = kWidth * static_cast<double>(node.value) / static_cast<double>(all_);
    if (w < 0.2) return;
    uint32_t hash = 2166136261u;  // FNV-1a: a colour that stays with the name
    for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619u;
    const size_t fits = static_cast<size_t>(std::max(0.0, (w - 6) / 7));
    text += fmt::format(
        R"svg(<g><title>{} {:.1f} us, {:.2f} %</title><rect x="{:.1f}" y="{:.0f}" width="{:.1f}" height="{:.0f}" fill="hsl({} 55% 68%)"/>)svg",
        xml(name), static_cast<double>(node.value) / 1e3,
        100 * static_cast<double>(node.value) / static_cast<double>(all_), x, kTop + level * kRow,
        std::max(w - 0.5, 0.3), kRow - 1, hash % 360);
    if (fits >= 3)
      text +=
          fmt::format(R"(<text x="{:.1f}" y="{:.0f}">{}</text>)", x + 3, kTop + level * kRow + 14,
              xml(name.size() <= fits ? name : name.substr(0, fits - 2) + ".."));
    text += "</g>\n";
    for (const auto& [kid_name, kid] : node.kids) {
      put(kid_name, kid, x, level + 1);
      x += kWidth * static_cast<double>(kid.value) / static_cast<double>(all_);
    }
  }
  std::string text;

 private:
  int64_t all_;
};

}  // namespace

std::string folded_stacks(const Report& report) {
  const bool device = report.device != kCpu;
  std::map<std::string, int64_t> paths;
  for (const Trace& trace : report.traces) {
    const std::vector<int64_t> self = self_times(trace);
    const std::string root = trace.steps_here ? "step" : fmt::format("thread {}", trace.thread);
    std::vector<std::string> path(trace.records.size());
    std::vector<int64_t> own = self;  // less the kernels, which are frames of their own
    for (size_t i = 0; i < trace.records.size(); ++i) {
      const Record& r = trace.records[i];
      path[i] = (r.parent < 0 ? root : path[static_cast<size_t>(r.parent)]) + ";" + frame(r.name);
    }
    for (const LaunchRecord& l : trace.launches) {
      const bool scoped =
          l.record >= 0 && report.counts(trace, trace.records[static_cast<size_t>(l.record)]);
      if (!scoped && (l.record >= 0 || report.step_index(l.step) < 0)) continue;
      if (l.kind == LaunchKind::graph || l.device_ns() <= 0) continue;
      const bool is_node = l.graph_node > 0 && l.graph_node <= report.nodes.size();
      const std::string kernel = !l.kernel.view().empty() ? frame(l.kernel)
                                 : is_node ? frame(report.nodes[l.graph_node - 1].name)
                                           : "kernel";
      paths[(scoped ? path[static_cast<size_t>(l.record)] : root) + ";" + kernel] += l.device_ns();
      if (scoped) own[static_cast<size_t>(l.record)] -= l.device_ns();
    }
    if (device) continue;
    for (size_t i = 0; i < trace.records.size(); ++i) {
      if (report.counts(trace, trace.records[i]) && own[i] > 0) paths[path[i]] += own[i];
    }
    if (!trace.steps_here) continue;
    for (size_t i = 0; i < trace.records.size();
         ++i) {  // the rest of the step: what no scope holds
      const Record& r = trace.records[i];
      if (report.counts(trace, r) &&
          (r.parent < 0 || !report.counts(trace, trace.records[static_cast<size_t>(r.parent)])))
        paths[root] -= r.t1 - r.t0;
    }
  }
  for (const StepSample& s : report.steps) {
    if (!device) paths["step"] += s.ns();
  }
  std::string out;
  for (const auto& [path, ns] : paths) {
    if (ns > 0) out += fmt::format("{} {}\n", path, ns);
  }
  return out;
}

std::string flame_svg(const std::string& folded, const std::string& title) {
  Node all;
  for (size_t begin = 0; begin < folded.size();) {
    const size_t end = folded.find('\n', begin), cut = folded.rfind(' ', end);
    const int64_t ns = std::stoll(folded.substr(cut + 1, end - cut - 1));
    Node* at = &all;
    all.value += ns;
    for (size_t from = begin; from < cut;) {
      const size_t to = std::min(folded.find(';', from), cut);
      at = &at->kids[folded.substr(from, to - from)];
      at->value += ns;
      from = to + 1;
    }
    begin = end + 1;
  }
  Picture picture(std::max<int64_t>(all.value, 1));
  picture.put("all", all, 0, 0);
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" viewBox=\"0 "
      "0 {0:.0f} {1:.0f}\">\n"
      "<style>text {{ font: 12px sans-serif; }}</style><rect width=\"100%\" height=\"100%\" "
      "fill=\"#fff\"/>\n"
      "<text x=\"4\" y=\"18\" style=\"font-size: 15px\">{2}</text><text x=\"4\" y=\"36\">self time "
      "over the active steps; point at a "
      "frame for its name and time</text>\n{3}</svg>\n",
      Picture::kWidth, Picture::kTop + all.depth() * Picture::kRow + 6, xml(escaped(title)),
      picture.text);
}

}  // namespace sinter::profiler
