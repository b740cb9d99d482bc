#include "measure/inspect.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>

#include "core/device/launch_log.h"
#include "core/device/memory.h"
#include "core/json.h"
#include "core/numbers.h"
#include "core/parallel.h"
#include "measure/exports.h"
#include "measure/step_walk.h"
#include "measure/timer.h"
#include "ops/fused/fused.h"
#include "ops/optim/update.h"
#include "profiler/stats.h"

namespace sinter::measure {
namespace {

using InspectJson = Json;
using capture::Buffer, capture::Captured, capture::Graph, capture::Node, capture::Value;

// Values of a tensor as a small picture.
struct Picture {
  int64_t tiles = 0, rows = 0, columns = 0;  // as many pixels are shown; a tile may be sampled
  // A character each: '#' for the lowest of 57 levels, '?' for 0, '[' for the highest; the ends
  // stand for the largest magnitude.
  std::string pixels{};
  // Of all values, not of the sampled ones alone:
  double low = 0, high = 0, mean = 0, deviation = 0;
  double zeros = 0;               // the share of zeros
  std::vector<int64_t> counts{};  // 16, from low to high
  std::vector<double> values{};   // if they are few
  SINTER_FIELD_LIST(tiles, rows, columns, pixels, low, high, mean, deviation, zeros, counts, values)
};

constexpr int64_t kFewTiles = 8, kManyTiles = 32;
constexpr size_t kFewValues = 160;  // are given as they are, too

struct Tiles {
  int64_t count, rows, columns;
};

Tiles tiles_of(const Shape& shape, const Shape& image) {
  const int64_t last = shape.rank() > 0 ? shape[-1] : 1, n = shape.numel();
  if (n == 0) return {0, 0, 0};
  if (shape.rank() == 4) return {shape[0] * shape[1], shape[2], shape[3]};
  if (shape.rank() == 2 && image.rank() == 3 && last == image.numel())
    return {shape[0] * image[0], image[1], image[2]};
  return {1, n / last, last};
}

char pixel(double v, double top) {
  constexpr double kMiddle = 28;  // levels 0..56
  const double level = top > 0 ? kMiddle + kMiddle * std::clamp(v / top, -1.0, 1.0) : kMiddle;
  return static_cast<char>('#' + static_cast<int>(std::isnan(v) ? kMiddle : std::lround(level)));
}

// Samples, evenly spread over what is too large.
std::string pixels_of(
    const std::vector<double>& values, const Tiles& all, const Tiles& shown, double top) {
  std::string out;
  for (int64_t t = 0; t < shown.count; ++t) {
    for (int64_t r = 0; r < shown.rows; ++r) {
      for (int64_t c = 0; c < shown.columns; ++c) {
        const int64_t row = r * all.rows / shown.rows, column = c * all.columns / shown.columns;
        out += pixel(values[(t * all.rows + row) * all.columns + column], top);
      }
    }
  }
  return out;
}

// Matrices are one tile, of at most 24 x 64 samples. Images [N, C, H, W], kernels of a convolution,
// and rows that are images ([N, C H W] for an `image` [C, H, W]) are tiles of H x W.
Picture picture(const std::vector<double>& values, const Shape& shape, const Shape& image,
    int64_t most_tiles = kFewTiles) {
  Picture out{.low = INFINITY, .high = -INFINITY, .counts = std::vector<int64_t>(16, 0)};
  double sum = 0, squares = 0;
  int64_t zeros = 0;
  for (const double v : values) {
    out.low = std::fmin(out.low, v);
    out.high = std::fmax(out.high, v);
    sum += v;
    squares += v * v;
    zeros += v == 0;
  }
  for (const double v : values) {
    const double share = out.high > out.low ? (v - out.low) / (out.high - out.low) : 0;
    if (std::isfinite(share)) ++out.counts[static_cast<size_t>(std::min(15.0, 16 * share))];
  }
  const auto n = static_cast<double>(std::max<size_t>(values.size(), 1));
  out.mean = sum / n;
  out.deviation = std::sqrt(std::fmax(squares / n - out.mean * out.mean, 0));
  out.zeros = static_cast<double>(zeros) / n;
  const double top = std::fmax(std::abs(out.low), std::abs(out.high));
  if (values.size() <= kFewValues) out.values = values;
  const Tiles all = tiles_of(shape, image);
  const bool matrix = all.count == 1;
  out.tiles = std::min(all.count, most_tiles);
  out.rows = std::min<int64_t>(all.rows, matrix ? 24 : 28);
  out.columns = std::min<int64_t>(all.columns, matrix ? 64 : 28);
  out.pixels = pixels_of(values, all, {out.tiles, out.rows, out.columns}, top);
  return out;
}

bool is_update(const Node& node) { return optimizer_of(*node.op) != nullptr; }

// "forward", "loss", "backward", "update": what a node's recorded ops are to the step.
std::string part_of(const Graph& recorded, const Node& node) {
  const bool has_modules =
      std::ranges::any_of(recorded.nodes, [](const Node& n) { return !n.module.empty(); });
  std::vector<std::string> parts;
  for (const int o : node.origin) {
    const Node& origin = recorded.nodes[o];
    std::string part = capture::text_of_phases(origin);
    if (part == "optimizer") part = "update";
    if (part == "forward" && origin.module.empty() && has_modules) part = "loss";
    if (!part.empty() && std::ranges::find(parts, part) == parts.end()) parts.push_back(part);
  }
  return join(parts, " + ");
}

// One mode of the step.
class OpenedStep {
 public:
  OpenedStep(const char* mode, const Graph& graph, const Graph& recorded, const Tensors& inputs,
      const InspectOptions& options)
      : mode_(mode),
        graph_(graph),
        recorded_(recorded),
        walk_(graph, inputs, StepWalk::Memory::planned),
        options_(options) {}

  InspectJson look() {
    const std::vector<double> ns = times();
    walk_.restart();
    std::vector<int> writes(graph_.buffers.size(), 0);
    for (size_t n = 0; n < graph_.nodes.size(); ++n) ops_.push_back(look_at(n, ns[n], writes));
    const capture::MemoryPlan& plan = walk_.plan();
    const Cost cost = graph_.cost();
    return {{"mode", mode_}, {"launches", graph_.launches()}, {"flops", cost.flops},
        {"bytes", cost.bytes()}, {"arena_bytes", plan.bytes},
        {"unshared_bytes", plan.unshared_bytes}, {"ops", ops_}, {"buffers", buffers()},
        {"arcs", arcs()}, {"pictures", pictures_}};
  }
  // As the step has left it.
  Tensor tensor(int value) const { return walk_.tensor(value); }

 private:
  const Value& value(int v) const { return graph_.values[v]; }
  Device device() const { return graph_.device_of(0); }
  bool timed() const { return device().type != Device::Type::simt; }

  // Of each node, the median of the passes; NaN, which JSON writes as null, on the emulator. In one
  // pass before them libraries choose their kernels.
  std::vector<double> times() {
    std::vector<std::vector<double>> of(graph_.nodes.size());
    for (int pass = -1; timed() && pass < options_.passes; ++pass) {
      walk_.restart();
      for (size_t n = 0; n < of.size(); ++n) {
        synchronize(device());
        const double ns = ns_per_call(device(), 1, [&] { walk_.run(n); });
        if (pass >= 0) of[n].push_back(ns);
      }
    }
    std::vector<double> out;
    for (const std::vector<double>& ns : of) out.push_back(std::round(profiler::median(ns)));
    return out;
  }

  InspectJson look_at(size_t n, double ns, std::vector<int>& writes) {
    const Node& node = graph_.nodes[n];
    const capture::MemoryPlan& plan = walk_.plan();
    InspectJson in = InspectJson::array(), out = InspectJson::array();
    for (size_t i = 0; i < node.in.size(); ++i) {
      if (node.in[i] >= 0) in.push_back(operand(node.in[i], writes));
    }
    InspectJson kernels = InspectJson::array();
    {
      const LaunchLog log;
      walk_.run(n);
      for (const LaunchShape& l : log.launches())
        kernels.push_back({{"name", l.kernel}, {"grid", {l.grid.x, l.grid.y, l.grid.z}},
            {"block", l.block}, {"shared", l.shared_bytes}});
    }
    synchronize(device());
    for (size_t i = 0; i < node.in.size(); ++i) {
      if (node.in[i] < 0 || !node.writes_operand(i)) continue;
      ++writes[value(node.in[i]).buffer];
      out.push_back(operand(node.in[i], writes));
    }
    for (const int v : node.out) {
      ++writes[value(v).buffer];
      out.push_back(operand(v, writes));
    }
    const Cost cost = graph_.cost(node);
    const Label* const label = find_label(node.text());
    const int now = static_cast<int>(n);
    int64_t live = 0, freed = 0;
    for (size_t b = 0; b < plan.offset.size(); ++b) {
      const auto bytes = static_cast<int64_t>(graph_.buffers[b].bytes);
      if (plan.offset[b] < 0 || plan.first[b] > now || plan.last[b] < now) continue;
      live += bytes;
      freed += plan.last[b] == now ? bytes : 0;
    }
    return {{"op", node.text()}, {"role", profiler::name_of(node.role)},
        {"rule", node.rule ? node.rule : ""}, {"part", part_of(recorded_, node)},
        {"module", node.module}, {"formula", label ? label->formula.text : node.op->formula.text},
        {"place", node.op->formula.place()}, {"attrs", node.attrs.str()}, {"flops", cost.flops},
        {"read", cost.bytes_read}, {"written", cost.bytes_written}, {"ns", ns},
        {"kernels", std::move(kernels)}, {"live", live}, {"freed", freed}, {"origin", node.origin},
        {"in", std::move(in)}, {"out", std::move(out)}};
  }

  // A value as it is now; a buffer is told from what it was by how often it was written.
  InspectJson operand(int v, const std::vector<int>& writes) {
    const Value& of = value(v);
    const capture::Extent extent = capture::extent_of(of);
    const auto [known, fresh] =
        picture_of_.try_emplace({v, writes[of.buffer]}, static_cast<int>(pictures_.size()));
    if (fresh) {
      const Tensor value_of = walk_.tensor(v);
      pictures_.push_back(
          picture(value_of.to_vector<double>(), value_of.shape(), options_.picture));
    }
    return {{"name", name_of(v)}, {"type", str(sinter::name_of(of.dtype), of.shape.str())},
        {"buffer", of.buffer}, {"begin", extent.begin}, {"end", extent.end},
        {"picture", known->second}};
  }

  // "0.weight", "grad 0.weight", "loss", "output", "%12".
  std::string name_of(int v) const {
    if (!value(v).name.empty()) return value(v).name;
    for (const Graph::Gradient& g : recorded_.gradients) {
      if (g.grad == v) return "grad " + recorded_.values[g.param].name;
    }
    for (const Node& node : recorded_.nodes) {
      const bool copies = is_update(node) && node.in[kLow] >= 0;
      if (copies && recorded_.values[node.in[kLow]].buffer == value(v).buffer)
        return recorded_.values[node.in[kParam]].name + " bf16";
    }
    if (std::ranges::find(graph_.outputs, v) == graph_.outputs.end()) return str("%", v);
    for (const Node& node : recorded_.nodes) {
      const bool makes = std::ranges::find(node.out, v) != node.out.end();
      if (makes && part_of(recorded_, node) == "loss") return "loss";
    }
    return "output";
  }

  InspectJson buffers() const {
    constexpr const char* kKinds[] = {"input", "kept", "constant", "arena"};
    const capture::MemoryPlan& plan = walk_.plan();
    InspectJson out = InspectJson::array();
    for (size_t b = 0; b < plan.offset.size(); ++b) {
      const Buffer& buffer = graph_.buffers[b];
      out.push_back({{"kind", kKinds[static_cast<size_t>(buffer.kind)]}, {"bytes", buffer.bytes},
          {"offset", plan.offset[b]}, {"first", plan.first[b]}, {"last", plan.last[b]}});
    }
    return out;
  }

  // From the op that saved a value for its backward to the op that reads it there: memory that is
  // held in between. They are those of the recorded step, as far as there are two nodes still, and
  // the second still reads that memory.
  InspectJson arcs() const {
    std::vector<int> node_of(recorded_.nodes.size(), -1);
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      for (const int o : graph_.nodes[n].origin) node_of[o] = static_cast<int>(n);
    }
    std::set<std::array<int, 3>> all;  // from, to, buffer
    for (size_t o = 0; o < recorded_.nodes.size(); ++o) {
      const Node& reader = recorded_.nodes[o];
      const int from = reader.forward < 0 ? -1 : node_of[reader.forward], to = node_of[o];
      if (from < 0 || to < 0 || from == to) continue;
      for (const int v : reader.in) {
        if (v < 0 || !is_held(v) || !touches(recorded_, recorded_.nodes[reader.forward], v))
          continue;
        if (touches(graph_, graph_.nodes[to], v)) all.insert({from, to, value(v).buffer});
      }
    }
    InspectJson out = InspectJson::array();
    for (const auto& [from, to, buffer] : all)
      out.push_back({{"from", from}, {"to", to}, {"buffer", buffer},
          {"bytes", graph_.buffers[buffer].bytes}});
    return out;
  }
  bool is_held(int v) const {
    const Buffer::Kind kind = graph_.buffers[value(v).buffer].kind;
    return kind == Buffer::Kind::local || kind == Buffer::Kind::input;
  }
  // Has the node an operand or a result in the memory of v?
  static bool touches(const Graph& graph, const Node& node, int v) {
    const auto beside = [&](int other) {
      return other >= 0 && graph.values[other].buffer == graph.values[v].buffer;
    };
    return std::ranges::any_of(node.in, beside) || std::ranges::any_of(node.out, beside);
  }

  const char* mode_;
  const Graph &graph_, &recorded_;
  StepWalk walk_;
  const InspectOptions& options_;
  std::map<std::pair<int, int>, int> picture_of_;
  InspectJson ops_ = InspectJson::array(), pictures_ = InspectJson::array();
};

// The tensors that the step's updates change, in their order, before and after it.
InspectJson parameters_of(const Graph& recorded, const OpenedStep& after, const Shape& image) {
  InspectJson out = InspectJson::array();
  for (const Node& node : recorded.nodes) {
    if (!is_update(node)) continue;
    const Value& v = recorded.values[node.in[kParam]];
    const Tensor old =
        Tensor::view_of(recorded.buffers[v.buffer].storage, v.dtype, v.shape, v.strides, v.offset);
    const std::vector<double> a = old.to_vector<double>(),
                              b = after.tensor(node.in[kParam]).to_vector<double>();
    double norm = 0, moved = 0, most = 0;
    std::vector<double> change;
    for (size_t i = 0; i < a.size(); ++i) {
      change.push_back(b[i] - a[i]);
      norm += a[i] * a[i];
      moved += change[i] * change[i];
      most = std::max(most, std::abs(change[i]));
    }
    out.push_back({{"name", v.name}, {"shape", v.shape.str()}, {"norm", std::sqrt(norm)},
        {"moved", std::sqrt(moved)}, {"most", most}});
    const bool first =
        std::ranges::none_of(out, [](const auto& p) { return p.contains("before"); });
    if (!first || v.shape.rank() < 2) continue;
    out.back()["before"] = picture(a, v.shape, image, kManyTiles);
    out.back()["change"] = picture(change, v.shape, image, kManyTiles);
  }
  return out;
}

InspectJson switches_of(const Captured& captured, const capture::RuleSet& set) {
  const RuleSwitches switches = rule_switches(captured, set);
  if (switches.names.empty()) return {};
  InspectJson counts = InspectJson::array();
  for (const StepCounts& c : switches.counts)
    counts.push_back({c.launches, c.bytes, c.arena_bytes});
  return {{"set", set.text()}, {"names", switches.names}, {"counts", std::move(counts)}};
}

// What the last module gave: the logits.
InspectJson logits_of(const InspectJson& step) {
  InspectJson last;
  for (const InspectJson& op : step["ops"]) {
    if (op["part"] == "forward" && !op["out"].empty()) last = op["out"][0]["picture"];
  }
  return last;
}

}  // namespace

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
    out.counts.push_back(
        {graph.launches(), graph.cost().bytes(), capture::plan_memory(graph).bytes});
  }
  return out;
}

Inspection::Inspection(
    const Captured& captured, const Tensors& inputs, const InspectOptions& options)
    : title_(options.title), command_(options.command) {
  const Graph &recorded = captured.recorded, &fused = captured.fused.graph;
  OpenedStep eager("eager", recorded, recorded, inputs, options);
  OpenedStep rewritten("fused", fused, recorded, inputs, options);
  InspectJson json = {{"schema", "sinter.inspect/1"}, {"title", options.title},
      {"command", options.command}, {"device", recorded.device_of(0).str()},
      {"threads", num_threads()}, {"steps", {eager.look(), rewritten.look()}},
      {"switches", switches_of(captured, options.rules)}, {"misses", InspectJson::array()}};
  for (const capture::Miss& miss : captured.fused.misses)
    json["misses"].push_back({{"rule", miss.rule}, {"what", miss.what}, {"why", miss.obstacle.why},
        {"remedy", miss.obstacle.remedy}, {"saves", miss.would_save}});
  json["parameters"] = parameters_of(recorded, eager, options.picture);
  json["logits"] = logits_of(json["steps"][0]);
  json["labels"] = InspectJson::array();
  for (const Tensor& t : inputs) {
    if (!is_float(t.dtype()) && t.rank() == 1) json["labels"] = t.to_vector<int64_t>();
  }
  json_ = json_text(json);
}

std::string Inspection::page() const {
  return html_report({.title = title_, .command = command_, .opened = json_});
}

}  // namespace sinter::measure
