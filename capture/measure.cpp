#include "capture/measure.h"

#include <algorithm>
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
    for (const int in : graph.inputs) inputs_.push_back(scratch.tensor(in));
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
    executor_.emplace(graph, inputs_);
  }
  void run() { executor_->replay(inputs_); }

 private:
  Tensors inputs_;
  std::optional<Executor> executor_;
};

// As replays of a whole step: is `after` faster than `before`, beyond doubt?
bool is_faster(std::span<const double> after, std::span<const double> before) {
  const profiler::Estimate faster = profiler::paired_ratio(before, after);
  return faster.is_shown() && faster.value > 1;
}
bool too_noisy(std::span<const double> a, std::span<const double> b) {
  const profiler::Estimate ratio = profiler::paired_ratio(a, b);
  return !ratio.has_interval || ratio.is_noisy();
}

// Note [Whole steps]
//   A group by itself, again and again, is not the step: there its instructions and operands are
//   warm, and it has no side branch to run beside. So whole steps are compared, as replays run
//   them:
//
//     1. all groups, or none: the faster of them. "None" wins also where the other is not shown to
//        be slower, and is by more than 1 %;
//     2. that plan with one of its groups flipped, fused or apart, those first that save the fewest
//        bytes: a flip that is shown to be faster stays, and the next ones are tried on it, those
//        that it makes room for among them.
//
//   As many flips are tried as kFlipsUs allows. The ranks of data-parallel training would have to
//   run such steps together, so there all groups stay; so they do where whole steps cannot be run,
//   for want of memory say.
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
    Refused refused;
    Choice whole;
    const bool ranks = std::ranges::any_of(
        recorded_.nodes, [](const Node& node) { return node.role == Role::comm; });
    if (!with(refused).groups.empty() && !ranks) {
      whole = all_or_none(refused);
      if (whole.timed() && whole.note.empty()) flip_groups(refused, whole.winner().us);
    }
    Rewriter r = with(refused);
    r.plan = std::move(whole);
    for (Group& group : r.groups) group.choice = known_.at(id_of(group)).choice;
    for (const auto& id : refused) {
      Group& group = r.groups.emplace_back(known_.at(id));
      group.choice.made = true;
      group.choice.chosen = 1;
    }
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
            steps[i]->run();
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

  Choice all_or_none(Refused& refused) {
    Choice choice{.candidates = {{"all groups"}, {"none"}}};
    const Refused none = without_any();
    choose_plan(choice, question("plan", refused), {with(refused).graph, with(none).graph},
        [&](const auto& us) {
          if (us[0].empty() || us[1].empty()) return us[0].empty() ? 1 : 0;
          if (too_noisy(us[0], us[1])) return -1;
          return is_faster(us[1], us[0]) ||
                         profiler::paired_ratio(us[0], us[1]).value > kNeverSlower
                     ? 1
                     : 0;
        });
    if (choice.chosen == 1) refused = none;
    return choice;
  }

  void flip_groups(Refused& refused, double step_us) {
    std::vector<Group*> to_try;
    // Of a plan its own groups: smaller ones, of which they are made, are none of it.
    const auto add = [&](const std::vector<Group>& groups) {
      const auto first = std::ssize(to_try);
      for (const Group& group : groups) {
        Group* const known = &known_.at(id_of(group));
        if (std::ranges::find(to_try, known) == to_try.end()) to_try.push_back(known);
      }
      std::ranges::stable_sort(to_try.begin() + first, to_try.end(), {}, &Group::bytes_saved);
    };
    std::vector<Group> all;
    for (const auto& [id, group] : known_) all.push_back(group);
    add(refused.empty() ? with(refused).groups : all);
    double left_us = kFlipsUs;
    for (size_t i = 0; i < to_try.size(); ++i) {
      Group* const group = to_try[i];
      const Id id = id_of(*group);
      Refused apart = refused, fused = refused;
      apart.insert(id);
      fused.erase(id);
      std::vector<Graph> plans{with(fused).graph, with(apart).graph};
      if (dump(plans[0]) == dump(plans[1])) continue;  // it is no group in this plan
      left_us -= double(2 * kRounds) * std::max(step_us, kTimingUs);
      if (left_us < 0) {
        group->choice.note = "not tried, to save time";
        continue;
      }
      Choice& choice = group->choice = {
          .candidates = {{"with it"}, {"without it"}}, .chosen = refused.contains(id)};
      const int now = choice.chosen;
      choose_plan(choice, question(str("step without ", id.first, " ", id.second), fused),
          std::move(plans), [&](const auto& us) {
            if (too_noisy(us[0], us[1])) return -1;
            return is_faster(us[1 - now], us[now]) ? 1 - now : now;
          });
      if (choice.chosen == now) continue;
      refused = choice.chosen ? apart : fused;
      add(with(refused).groups);
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

int64_t undecided(const Rewriter& rewritten) {
  if (rewritten.plan.measured && !rewritten.plan.timed()) return std::ssize(rewritten.groups);
  return std::ranges::count_if(
      rewritten.groups, [](const Group& g) { return g.choice.measured && !g.choice.note.empty(); });
}

Rewriter rewrite_measured(const Graph& recorded, const RuleSet& set, Device::Type device) {
  return Planner(recorded, set, device).plan();
}

}  // namespace sinter::capture
