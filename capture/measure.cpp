#include "capture/measure.h"

#include <algorithm>
#include <array>

#include "core/cache.h"
#include "core/device/memory.h"
#include "core/rng.h"
#include "ops/product/gemm_library.h"
#include "profiler/stats.h"
#include "profiler/thresholds.h"

namespace sinter::capture {
namespace {

// Copies of a graph's memory that may be spoiled: external buffers as they are, floating inputs and
// local buffers random, whole numbers zero (so labels are valid).
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
      } else if (v.dtype == DType::bf16) {
        fill<bf16>(*storage);
      } else {
        fill_bytes(storage->data(), buffer.device, 0, buffer.bytes);
      }
    }
    return Tensor::view_of(storage, v.dtype, v.shape, v.strides, v.offset);
  }

 private:
  template <class T> static void fill(const Storage& storage) {
    const size_t all = storage.bytes() / sizeof(T);
    std::vector<T> values(std::min(all, kRandom));
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = T(uniform_from_bits(philox_word(7, 0, i)) - 0.5f);
    for (size_t at = 0; at < all; at += kRandom)
      copy_to_device(static_cast<T*>(storage.data()) + at, storage.device(), values.data(),
          std::min(all - at, kRandom) * sizeof(T));
  }
  // So many random numbers, over and over: to draw all takes longer than to measure.
  static constexpr size_t kRandom = 1 << 18;
  const Graph& graph_;
  std::vector<std::shared_ptr<Storage>> storages_;
};

// Nodes of a graph, ready to run on a Scratch of it.
class Calls {
 public:
  Calls(const Graph& graph, const std::vector<const Node*>& nodes) {
    Scratch scratch(graph);
    for (const Node* node : nodes) {
      Tensors in, out;
      for (const int v : node->in) in.push_back(scratch.tensor(v));
      for (const int v : node->out) out.push_back(scratch.tensor(v));
      calls_.push_back({node, std::move(in), std::move(out)});
    }
  }
  void launch() {
    for (auto& [node, in, out] : calls_) launch_op({*node->op, in, out, node->attrs, node->role});
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
    } else if (std::ranges::any_of(
                   node.origin, [&](int o) { return std::ranges::binary_search(origin, o); })) {
      return {};
    }
  }
  return nodes;
}

// "merge_linear + glu x2"
std::string names_of(const std::vector<const Node*>& nodes) {
  std::string out;
  for (size_t i = 0; i < nodes.size(); ++i) {
    const auto same = [op = nodes[i]->op](const Node* node) { return node->op == op; };
    const auto at = nodes.begin() + std::ptrdiff_t(i);
    if (std::any_of(nodes.begin(), at, same)) continue;
    const auto n = std::count_if(at, nodes.end(), same);
    out += cat(out.empty() ? "" : " + ", nodes[i]->op->text(), n > 1 ? cat(" x", n) : "");
  }
  return out;
}

}  // namespace

GroupChoice choose(
    std::span<const double> fused_us, std::span<const double> parts_us, Device::Type device) {
  const profiler::Estimate slower = profiler::paired_ratio(fused_us, parts_us);
  if (!slower.has_interval || slower.is_noisy()) return GroupChoice::undecided;
  return slower.value > margin_on(device) && slower.low > 1 ? GroupChoice::unfuse
                                                            : GroupChoice::fuse;
}

int64_t undecided(const Rewriter& rewritten) {
  return std::ranges::count_if(
      rewritten.groups, [](const Group& g) { return !g.kept_unfused() && !g.choice.note.empty(); });
}

Rewriter rewrite_measured(const Graph& recorded, const RuleSet& set, Device::Type device) {
  const Device::Type where =
      recorded.values.empty() ? Device::Type::cpu : recorded.device_of(0).type;
  const bool keeps = where == Device::Type::cuda;
  const std::string text =
      keeps ? cat(dump(recorded), "rules ", set.text(), allow_tf32() ? ", tf32" : "") : "";
  Refused refused;
  std::vector<Group> fallbacks;
  while (true) {
    Rewriter r = rewrite(recorded, set, device, refused);
    bool changed = false;
    for (Group& group : r.groups) {
      // What the answer depends on: the recorded graph, and what may be fused in it.
      std::string without_text = text;
      for (const auto& [rule, origin] : refused)
        without_text += cat(" without ", rule, " ", origin);
      auto without_it = refused;
      without_it.insert({group.rule, group.origin.front()});
      const Rewriter without = rewrite(recorded, set, device, without_it);
      std::vector<const Node*> parts = nodes_of(without.graph, group.origin);
      const bool other_rules = !parts.empty();
      for (const int o : group.origin) {
        if (!other_rules) parts.push_back(&recorded.nodes[o]);
      }
      group.choice.candidates = {{"fused"}, {names_of(parts)}};
      choose_fastest(
          group.choice,
          keeps ? cat("group ", group.rule, " of node ", group.origin.front(), " of the step ",
                      stable_hash(without_text))
                : "",
          where,
          [&]() -> RunCandidate {
            std::array<Calls, 2> calls{Calls(r.graph, nodes_of(r.graph, group.origin)),
                Calls(other_rules ? without.graph : recorded, parts)};
            return [calls = std::move(calls)](size_t i) mutable { calls[i].launch(); };
          },
          [&](const auto& us) { return int(choose(us[0], us[1], where)); });
      if (!group.kept_unfused()) continue;
      fallbacks.push_back(group);
      refused.insert({group.rule, group.origin.front()});
      changed = true;
    }
    if (!changed) {
      r.groups.insert(r.groups.end(), fallbacks.begin(), fallbacks.end());
      return r;
    }
  }
}

}  // namespace sinter::capture
