#include "capture/measure.h"

#include <algorithm>
#include <chrono>
#include <sstream>

#include "core/cache.h"
#include "core/device/cuda_graph.h"
#include "core/device/kept_choices.h"
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
  // On CUDA by the card's own clock, in a graph as the step's: on the host's, whoever has fewer
  // launches wins.
  double run_us(Device device) {
    if (device.type == Device::Type::cuda) {
      if (!graph_) {
        cuda::GraphBuilder rehearsal(0, false);
        rehearsal.begin(cuda::Pass::rehearsal);
        launch();
        rehearsal.end();
        graph_ = cuda::capture_repeated([this] { launch(); }, kRepetitions);
      }
      return graph_->milliseconds(1) * 1e3 / kRepetitions;
    }
    const auto start = std::chrono::steady_clock::now();
    launch();
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start)
        .count();
  }

 private:
  static constexpr int kRepetitions = 10;
  void launch() {
    for (auto& [node, in, out] : calls_) launch_op({*node->op, in, out, node->attrs, node->role});
  }
  std::vector<std::tuple<const Node*, Tensors, Tensors>> calls_;
  std::unique_ptr<cuda::DeviceGraph> graph_;
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

// Runs in turn, A B B A, so that a slow moment of the machine hits both alike: as many pairs as fit
// the time, but enough for an interval. The first run of each warms up.
GroupChoice time_both(Group& group, Timed& fused, Timed& parts, Device device) {
  constexpr size_t kPairs = 15;
  constexpr double kEnoughUs = 3e5;
  double spent = 0;
  try {
    spent = fused.run_us(device);
  } catch (const Error&) {  // then it cannot run here, and the step would not
    return GroupChoice::unfuse;
  }
  spent += parts.run_us(device);
  std::vector<double> fused_us, parts_us;
  while (fused_us.size() < kPairs && (fused_us.size() < profiler::kMinPairs || spent < kEnoughUs)) {
    const bool fused_first = fused_us.size() % 2 == 0;
    if (fused_first) fused_us.push_back(fused.run_us(device));
    parts_us.push_back(parts.run_us(device));
    if (!fused_first) fused_us.push_back(fused.run_us(device));
    spent += fused_us.back() + parts_us.back();
  }
  group.fused_us = profiler::median(fused_us);
  group.parts_us = profiler::median(parts_us);
  return choose(fused_us, parts_us, device.type);
}

// What a group's choice depends on: the recorded graph, and what may be fused in it. Between runs
// the answer is kept with the times it rests on.
class GroupQuestion {
 public:
  GroupQuestion(const std::string& recorded, const Group& group, const Refused& refused) {
    std::string all = recorded;
    for (const auto& [rule, origin] : refused) all += cat(" without ", rule, " ", origin);
    text_ = cat(
        "group ", group.rule, " of node ", group.origin.front(), " of the step ", stable_hash(all));
  }
  std::optional<GroupChoice> recall(Group& group) const {
    std::istringstream answer(kept_choice(text_).value_or(""));
    std::string word;
    answer >> word >> group.fused_us >> group.parts_us;
    group.measured_before = !answer.fail();
    if (!group.measured_before) return {};
    return word == kUnfuse ? GroupChoice::unfuse : GroupChoice::fuse;
  }
  // One that nothing stands behind is asked again.
  void keep(const Group& group, GroupChoice choice) const {
    if (choice == GroupChoice::not_judged || group.fused_us == 0) return;
    keep_choice(text_, cat(choice == GroupChoice::unfuse ? kUnfuse : "fuse", " ", group.fused_us,
                           " ", group.parts_us));
  }

 private:
  static constexpr const char* kUnfuse = "unfuse";
  std::string text_;
};

}  // namespace

GroupChoice choose(
    std::span<const double> fused_us, std::span<const double> parts_us, Device::Type device) {
  const profiler::Estimate slower = profiler::paired_ratio(fused_us, parts_us);
  if (!slower.has_interval || slower.is_noisy()) return GroupChoice::not_judged;
  return slower.value > margin_on(device) && slower.low > 1 ? GroupChoice::unfuse
                                                            : GroupChoice::fuse;
}

int64_t not_judged(const Rewriter& rewritten) {
  return std::ranges::count_if(rewritten.groups, [](const Group& g) { return g.not_judged; });
}

Rewriter rewrite_measured(const Graph& recorded, const RuleSet& set, Device::Type device) {
  const Device where = recorded.values.empty() ? kCpu : recorded.device_of(0);
  const bool keeps = where.type == Device::Type::cuda;
  const std::string text =
      keeps ? cat(dump(recorded), "rules ", set.text(), allow_tf32() ? ", tf32" : "") : "";
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
      const GroupQuestion question(text, group, refused);
      std::optional<GroupChoice> choice;
      if (keeps) choice = question.recall(group);
      if (!choice) {
        Timed a(r.graph, nodes_of(r.graph, group.origin)),
            b(other_rules ? without.graph : recorded, parts);
        choice = time_both(group, a, b, where);
        if (keeps) question.keep(group, *choice);
      }
      group.instead = names_of(parts);
      group.not_judged = *choice == GroupChoice::not_judged;
      if (*choice == GroupChoice::unfuse) {
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
