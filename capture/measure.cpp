#include "capture/measure.h"

#include <algorithm>
#include <chrono>
#include <limits>

#include "core/device/memory.h"
#include "core/rng.h"

namespace sinter::capture {
namespace {

// Copies of a graph's memory that may be spoiled: external buffers as they are, local ones random, inputs zero (labels are valid).
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

}  // namespace

Rewriter rewrite_measured(const Graph& recorded, const RuleSet& set, Device::Type device) {
  constexpr int kRuns = 7;
  const Device where = recorded.values.empty() ? kCpu : recorded.device_of(0);
  Refused refused;
  std::vector<Group> fallbacks;
  while (true) {
    Rewriter r = rewrite(recorded, set, device, refused);
    bool changed = false;
    for (Group& group : r.groups) {
      std::vector<const Node*> fused, parts;
      for (const Node& node : r.graph.nodes) {
        if (std::includes(group.origin.begin(), group.origin.end(), node.origin.begin(), node.origin.end())) fused.push_back(&node);
      }
      for (const int o : group.origin) parts.push_back(&recorded.nodes[o]);
      Timed a(r.graph, fused), b(recorded, parts);
      a.run_us(where), b.run_us(where);
      group.fused_us = group.parts_us = std::numeric_limits<double>::infinity();
      for (int i = 0; i < kRuns; ++i) {  // in turn; the best of each, as other load only ever adds
        group.fused_us = std::min(group.fused_us, a.run_us(where));
        group.parts_us = std::min(group.parts_us, b.run_us(where));
      }
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
