#include "capture/measure.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>

#include "capture/executor.h"
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
    return Tensor::view_of(storage(v.buffer, v.dtype), v.dtype, v.shape, v.strides, v.offset);
  }
  const std::shared_ptr<Storage>& storage(int b, DType dtype = DType::u8) {
    std::shared_ptr<Storage>& storage = storages_[b];
    if (storage) return storage;
    const Buffer& buffer = graph_.buffers[b];
    storage = std::make_shared<Storage>(buffer.bytes, buffer.device);
    if (buffer.storage) {
      copy_on_device(storage->data(), buffer.storage->data(), buffer.device, buffer.bytes);
    } else if (dtype == DType::f32) {
      fill<float>(*storage);
    } else if (dtype == DType::f64) {
      fill<double>(*storage);
    } else if (dtype == DType::bf16) {
      fill<bf16>(*storage);
    } else {
      fill_bytes(storage->data(), buffer.device, 0, buffer.bytes);
    }
    return storage;
  }

 private:
  // So many random numbers, drawn once, over and over: drawing takes longer than measuring, and so
  // does bringing all of them from the host.
  static constexpr size_t kRandom = 1 << 18;
  // No lambda: that would be constexpr, and g++ takes 18 s before it gives up on it.
  template <class T> static std::vector<T> drawn() {
    std::vector<T> values(kRandom);
    for (size_t i = 0; i < kRandom; ++i)
      values[i] = T(uniform_from_bits(philox_word(7, 0, i)) - 0.5f);
    return values;
  }
  template <class T> static void fill(const Storage& storage) {
    static const std::vector<T> values = drawn<T>();
    const size_t all = storage.bytes() / sizeof(T);
    T* const to = static_cast<T*>(storage.data());
    copy_to_device(to, storage.device(), values.data(), std::min(all, kRandom) * sizeof(T));
    for (size_t at = kRandom; at < all; at += kRandom)
      copy_on_device(to + at, to, storage.device(), std::min(all - at, kRandom) * sizeof(T));
  }
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

// A whole step as replays run it, on a Scratch of the recorded graph. The batch is given: a step
// that fetches its own would run off the end of its epoch.
class SpareStep {
 public:
  SpareStep(Graph graph, Scratch& scratch) {
    std::erase_if(graph.nodes, [&](const Node& node) {
      if (node.role != Role::data) return false;
      for (const int out : node.out) {
        graph.buffers[graph.values[out].buffer].kind = Buffer::Kind::input;
        graph.inputs.push_back(out);
      }
      return true;
    });
    Tensors inputs;
    for (const int in : graph.inputs) inputs.push_back(scratch.tensor(in));
    // What no other node touches, a data set say, stays where it is.
    const auto spare = [&](int value) {
      if (value < 0) return;
      Buffer& buffer = graph.buffers[graph.values[value].buffer];
      if (buffer.kind == Buffer::Kind::external)
        buffer.storage = scratch.storage(graph.values[value].buffer);
    };
    for (const Node& node : graph.nodes) {
      std::ranges::for_each(node.in, spare);
      std::ranges::for_each(node.out, spare);
    }
    executor_.emplace(graph, inputs);
  }
  void launch() { executor_->launch_graph(); }

 private:
  std::optional<Executor> executor_;
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

// "linear + glu x2"
std::string names_of(const std::vector<const Node*>& nodes) {
  std::string out;
  for (size_t i = 0; i < nodes.size(); ++i) {
    const auto same = [name = nodes[i]->text()](const Node* n) { return n->text() == name; };
    const auto at = nodes.begin() + std::ptrdiff_t(i);
    if (std::any_of(nodes.begin(), at, same)) continue;
    const auto n = std::count_if(at, nodes.end(), same);
    out += str(out.empty() ? "" : " + ", nodes[i]->text(), n > 1 ? str(" x", n) : "");
  }
  return out;
}

// As replays of a whole step: is `after` faster than `before`, beyond doubt?
bool is_faster(std::span<const double> after, std::span<const double> before) {
  const profiler::Estimate faster = profiler::paired_ratio(before, after);
  return faster.is_shown() && faster.value > 1;
}
bool too_noisy(std::span<const double> a, std::span<const double> b) {
  const profiler::Estimate ratio = profiler::paired_ratio(a, b);
  return !ratio.has_interval || ratio.is_noisy();
}

// How near the two times of a group are. One without times is mostly a part of another that stands.
double distance(const Choice& choice) {
  if (!choice.timed()) return HUGE_VAL;
  const std::vector<Candidate>& c = choice.candidates;
  return std::abs(std::log(profiler::four_digits(c[0].us) / profiler::four_digits(c[1].us)));
}

// Note [Groups, then whole steps]
//   A group by itself, ten times in a row on one stream, is not the step: there its instructions
//   and operands are warm, and it has no side branch to run beside. So on CUDA the choice by groups
//   is only where whole steps begin, captured and timed as replays run them:
//
//     1. the plan by groups, all groups, none: the fastest of them, if that is shown. "None" wins
//        also where the others are not shown to be slower, and are by more than 1 %;
//     2. the plan with one group flipped, fused or apart, in the order of how near the group's two
//        times were: a flip that is shown to be faster stays, and the next ones are tried on it.
//
//   As many flips are tried as kFlipsUs allows. The ranks of data-parallel training would have to
//   run such steps together, so there the choice by groups stays; so it does where whole steps
//   cannot be run, for want of memory say.
class Planner {
 public:
  Planner(const Graph& recorded, const RuleSet& set, Device::Type device)
      : recorded_(recorded),
        set_(set),
        device_(device),
        where_(recorded.device().type),
        scratch_(recorded) {
    if (on_card()) text_ = str(dump(recorded), "rules ", set.text(), allow_tf32() ? ", tf32" : "");
  }

  Rewriter plan() {
    Refused refused = by_groups();
    Choice whole;
    const bool ranks = std::ranges::any_of(
        recorded_.nodes, [](const Node& node) { return node.role == Role::comm; });
    if (on_card() && !known_.empty() && !ranks) {
      whole = by_whole_steps(refused);
      if (whole.timed() && whole.note.empty()) flip_groups(refused, whole.winner().us);
      for (auto& [id, group] : known_) {
        group.in_step.made = true;
        group.in_step.chosen = refused.contains(id);
      }
    }
    Rewriter r = with(refused);
    r.plan = std::move(whole);
    for (Group& group : r.groups) {
      const Group& known = known_.at(id_of(group));
      group.choice = known.choice;
      group.in_step = known.in_step;
    }
    for (const auto& id : refused) r.groups.push_back(known_.at(id));
    return r;
  }

 private:
  using Id = Refused::value_type;
  static Id id_of(const Group& group) { return {group.rule, group.origin.front()}; }
  bool on_card() const { return where_ == Device::Type::cuda; }

  Rewriter with(const Refused& refused) {
    Rewriter r = rewrite(recorded_, set_, device_, refused);
    for (const Group& group : r.groups) known_.try_emplace(id_of(group), group);
    return r;
  }
  // What a choice depends on: the recorded graph, and what may be fused in it.
  std::string question(const std::string& what, const Refused& refused) const {
    if (!on_card()) return "";
    std::string text = text_;
    for (const auto& [rule, origin] : refused) text += str(" without ", rule, " ", origin);
    return str(what, " of the step ", stable_hash(text));
  }

  // Each group against what would run without it; without the losers others may be found.
  Refused by_groups() {
    Refused refused;
    for (bool changed = true; changed;) {
      changed = false;
      Rewriter r = with(refused);
      for (Group& group : r.groups) {
        measure_group(r, group, refused);
        known_.insert_or_assign(id_of(group), group);
        if (group.kept_unfused()) changed = refused.insert(id_of(group)).second;
      }
    }
    return refused;
  }

  void measure_group(const Rewriter& r, Group& group, const Refused& refused) {
    Refused without_it = refused;
    without_it.insert(id_of(group));
    const Rewriter without = rewrite(recorded_, set_, device_, without_it);
    std::vector<const Node*> parts = nodes_of(without.graph, group.origin);
    const bool other_rules = !parts.empty();
    for (const int o : group.origin) {
      if (!other_rules) parts.push_back(&recorded_.nodes[o]);
    }
    group.choice.candidates = {{"fused"}, {names_of(parts)}};
    choose_fastest(
        group.choice,
        question(str("group ", group.rule, " of node ", group.origin.front()), refused), where_,
        [&]() -> RunCandidate {
          std::array<Calls, 2> calls{Calls(r.graph, nodes_of(r.graph, group.origin)),
              Calls(other_rules ? without.graph : recorded_, parts)};
          return [calls = std::move(calls)](size_t i) mutable { calls[i].launch(); };
        },
        [&](const auto& us) { return int(choose(us[0], us[1], where_)); });
  }

  // Times whole steps by these plans.
  void choose_plan(Choice& choice, const std::string& question, std::vector<Graph> plans,
      const PickWinner& pick) {
    choice.of_replays = true;
    choose_fastest(
        choice, question, where_,
        [&]() -> RunCandidate {
          std::vector<std::shared_ptr<SpareStep>> steps(plans.size());
          return [&, steps = std::move(steps)](size_t i) mutable {
            if (!steps[i]) steps[i] = std::make_shared<SpareStep>(plans[i], scratch_);
            steps[i]->launch();
          };
        },
        pick);
  }

  Refused without_any() {
    Refused refused;
    for (size_t before = 0, first = 1; first || refused.size() > before; first = 0) {
      before = refused.size();
      for (const Group& group : with(refused).groups) refused.insert(id_of(group));
    }
    return refused;
  }

  Choice by_whole_steps(Refused& refused) {
    Choice choice{.candidates = {{"by groups"}}};
    std::vector<Refused> plans{refused};
    for (const auto& [name, plan] : {std::pair("all groups", Refused()), {"none", without_any()}}) {
      if (std::ranges::find(plans, plan) != plans.end()) continue;
      choice.candidates.push_back({name});
      plans.push_back(plan);
    }
    std::vector<Graph> graphs;
    for (const Refused& plan : plans) graphs.push_back(with(plan).graph);
    choose_plan(choice, question("plan", refused), std::move(graphs), [&](const auto& us) {
      int best = 0;
      for (int i = 1; i < int(us.size()); ++i) {
        if (us[best].empty()) best = i;
        if (us[i].empty() || best == i) continue;
        if (too_noisy(us[best], us[i])) return -1;
        const bool none = choice.candidates[i].name == "none";
        if (is_faster(us[i], us[best]) ||
            (none && profiler::paired_ratio(us[best], us[i]).value > kNeverSlower))
          best = i;
      }
      return best;
    });
    refused = plans[choice.chosen];
    return choice;
  }

  void flip_groups(Refused& refused, double step_us) {
    std::vector<Group*> nearest;
    for (auto& [id, group] : known_) nearest.push_back(&group);
    std::ranges::stable_sort(nearest, {}, [](const Group* g) { return distance(g->choice); });
    double left_us = kFlipsUs;
    for (Group* const group : nearest) {
      const Id id = id_of(*group);
      Refused apart = refused, fused = refused;
      apart.insert(id);
      fused.erase(id);
      std::vector<Graph> plans{with(fused).graph, with(apart).graph};
      if (dump(plans[0]) == dump(plans[1])) continue;  // it is no group in this plan
      left_us -= double(2 * kRounds) * std::max(step_us, kTimingUs);
      if (left_us < 0) {
        group->in_step.note = "not tried, to save time";
        continue;
      }
      Choice& choice = group->in_step = {
          .candidates = {{"with it"}, {"without it"}}, .chosen = refused.contains(id)};
      const int now = choice.chosen;
      choose_plan(choice, question(str("step without ", id.first, " ", id.second), fused),
          std::move(plans), [&](const auto& us) {
            if (too_noisy(us[0], us[1])) return -1;
            return is_faster(us[1 - now], us[now]) ? 1 - now : now;
          });
      if (choice.chosen != now) refused = choice.chosen ? apart : fused;
    }
  }

  static constexpr double kNeverSlower = 1.01, kFlipsUs = 6e5;
  const Graph& recorded_;
  const RuleSet& set_;
  const Device::Type device_, where_;
  Scratch scratch_;
  std::string text_;
  std::map<Id, Group> known_;  // every group that was met
};

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
  return Planner(recorded, set, device).plan();
}

}  // namespace sinter::capture
