#include "capture/measure.h"

#include <algorithm>
#include <chrono>
#include <limits>

#include "core/device/memory.h"
#include "core/rng.h"

namespace sinter::capture {
namespace {

// Copies of a graph's memory that may be spoiled: external buffers as they are, floating inputs and local
// buffers random, whole numbers zero (so labels are valid).
class Scratch {
 public:
  explicit Scratch(const Graph& graph) : graph_(graph), storages_(graph.buffers.size()) {}

  Tensor tensor(int value) {
    if (value < 0) return {};
    const Value& v = graph_.values[value];
    std::shared_ptr<Storage>& storage = storages_[v.buffer];
    if (!storage) {
      const Buffer& buffer = graph_.buffers[v.buffer];
      storage = std::make_shared<Storage>(buffer.bytes, buffer.device);
      if (buffer.storage) {
        copy_on_device(storage->data(), buffer.storage->data(), buffer.device, buffer.bytes);
      } else if (v.dtype == DType::f32) {
        fill<float>(*storage);
      } else if (v.dtype == DType::f64) {
        fill<double>(*storage);
      } else {
        fill_bytes(storage->data(), buffer.device, 0, buffer.bytes);
      }
    }
    return Tensor::view_of(storage, v.dtype, v.shape, v.strides, v.offset);
  }

 private:
  template <class T>
  static void fill(const Storage& storage) {
    std::vector<T> values(storage.bytes() / sizeof(T));
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<T>(uniform_from_bits(philox_word(7, 0, i)) - 0.5f);
    copy_to_device(storage.data(), storage.device(), values.data(), values.size() * sizeof(T));
  }
  const Graph& graph_;
  std::vector<std::shared_ptr<Storage>> storages_;
};

class Timed {
 public:
  Timed(const Graph& graph, std::vector<const Node*> nodes) {
    Scratch scratch(graph);
    for (const Node* node : nodes) {
      Tensors in, out;
      for (const int v : node->in) in.push_back(scratch.tensor(v));
      for (const int v : node->out) out.push_back(scratch.tensor(v));
      calls_.push_back({node, std::move(in), std::move(out)});
    }
  }
  double run_us(Device device) {
    synchronize(device);
    const auto start = std::chrono::steady_clock::now();
    for (auto& [node, in, out] : calls_) launch_op({*node->op, in, out, node->attrs, node->role});
    synchronize(device);
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
  }

 private:
  std::vector<std::tuple<const Node*, Tensors, Tensors>> calls_;
};

// Nodes of the graph that stand for the group's ops; empty if one of them stands for others too.
std::vector<const Node*> nodes_of(const Graph& graph, const std::vector<int>& origin) {
  std::vector<const Node*> nodes;
  for (const Node& node : graph.nodes) {
    if (stands_for(node, origin)) {
      nodes.push_back(&node);
    } else if (std::any_of(node.origin.begin(), node.origin.end(), [&](int o) { return std::binary_search(origin.begin(), origin.end(), o); })) {
      return {};
    }
  }
  return nodes;
}

std::string names_of(const std::vector<const Node*>& nodes) {
  std::vector<std::pair<std::string_view, int>> counts;
  for (const Node* node : nodes) {
    const auto it = std::find_if(counts.begin(), counts.end(), [&](const auto& c) { return c.first == node->op->text(); });
    it == counts.end() ? void(counts.emplace_back(node->op->text(), 1)) : void(++it->second);
  }
  std::string out;
  for (const auto& [name, n] : counts) out += cat(out.empty() ? "" : " + ", name, n > 1 ? cat(" x", n) : "");
  return out;
}

// The best of up to kRuns runs in turn, as other load only ever adds; of fewer where one takes long.
void time_both(Group& group, Timed& fused, Timed& parts, Device device) {
  constexpr int kRuns = 7;
  constexpr double kEnoughUs = 3e5;
  double spent = fused.run_us(device) + parts.run_us(device);
  group.fused_us = group.parts_us = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kRuns && (i == 0 || spent < kEnoughUs); ++i) {
    const double f = fused.run_us(device), p = parts.run_us(device);
    group.fused_us = std::min(group.fused_us, f);
    group.parts_us = std::min(group.parts_us, p);
    spent += f + p;
  }
}

}  // namespace

Rewriter rewrite_measured(const Graph& recorded, const RuleSet& set, Device::Type device) {
  const Device where = recorded.values.empty() ? kCpu : recorded.device_of(0);
  Refused refused;
  std::vector<Group> fallbacks;
  while (true) {
    Rewriter r = rewrite(recorded, set, device, refused);
    bool changed = false;
    for (Group& group : r.groups) {
      auto without_it = refused;
      without_it.insert({group.rule, group.origin.front()});
      const Rewriter without = rewrite(recorded, set, device, without_it);
      std::vector<const Node*> parts = nodes_of(without.graph, group.origin);
      const bool other_rules = !parts.empty();
      for (const int o : group.origin) {
        if (!other_rules) parts.push_back(&recorded.nodes[o]);
      }
      Timed a(r.graph, nodes_of(r.graph, group.origin)), b(other_rules ? without.graph : recorded, parts);
      time_both(group, a, b, where);
      group.instead = names_of(parts);
      if (group.fused_us > kMargin * group.parts_us) {
        group.kept_unfused = true;
        fallbacks.push_back(group);
        refused.insert({group.rule, group.origin.front()});
        changed = true;
      }
    }
    if (!changed) {
      r.groups.insert(r.groups.end(), fallbacks.begin(), fallbacks.end());
      return r;
    }
  }
}

}  // namespace sinter::capture
