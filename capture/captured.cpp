#include "capture/captured.h"

#include <algorithm>

#include "capture/measure.h"
#include "capture/step.h"
#include "core/device/chooser.h"

namespace sinter::capture {
namespace {

using Need = Captured::Gradient::Need;

bool is_external(const Graph& graph, const Tensor& t) {
  return std::ranges::any_of(graph.buffers, [&](const Buffer& b) {
    return b.kind == Buffer::Kind::external && b.storage == t.storage();
  });
}

// What a replay asks of a leaf's gradient at its beginning, and does with it. `leaf` is of the
// second recording, `first` of the first. A step that adds to a gradient has read it, so one must
// be there. A step that cleared or replaced one without reading it takes any. A step that found
// none, either time, has made the first gradient itself; to one that is there it would have added,
// so none may be. Of a gradient that is read, only the layout counts, since it is an input of the
// graph; unless the graph has its memory built in.
Captured::Gradient gradient_in_replay(const Graph& graph, const Leaf& leaf, const Leaf& first) {
  const bool any = (leaf.before.defined() && !leaf.read) || (first.before.defined() && !first.read);
  const Need need = any ? Need::any : leaf.read ? Need::present : Need::absent;
  Leaf kept = leaf;
  // Only a recording that found a gradient tells whether the step clears it.
  if (!leaf.before.defined() && first.before.defined()) kept.after = first.after;
  const bool pinned = leaf.read && is_external(graph, leaf.before);
  if (!pinned) kept.before = leaf.read ? without_memory(leaf.before) : Tensor();
  if (leaf.input >= 0) kept.tensor = {};
  return {std::move(kept), need, {}, nullptr};
}

// Leaves that only one recording knows were made by the step itself, and nobody else sees their
// gradients.
void keep_gradients(Captured& c, const Recorded& first, const std::vector<Leaf>& leaves) {
  for (const Leaf& leaf : leaves) {
    if (const Leaf* other = find_leaf(first, leaf)) {
      c.gradients.push_back(gradient_in_replay(c.recorded, leaf, *other));
      continue;
    }
    SINTER_CHECK(!leaf.read, state,
        cat("capture: a leaf made in the step has a gradient from outside: ", name_of(leaf)),
        "give it as an input");
    std::erase_if(
        c.recorded.gradients, [&](const Graph::Gradient& g) { return g.param == leaf.value; });
  }
  for (const Captured::Gradient& a : c.gradients) {
    for (const Captured::Gradient& b : c.gradients) {
      SINTER_CHECK(&a == &b || a.leaf.value < 0 || a.leaf.value != b.leaf.value, state,
          cat("capture: ", name_of(a.leaf), " and ", name_of(b.leaf),
              " lie in the same memory, and each gets a gradient"),
          "use one tensor for both");
    }
  }
}

// Where each gradient lies after a replay.
void bind_gradients(Captured& c) {
  const Graph& graph = c.fused.graph;
  for (Captured::Gradient& g : c.gradients) {
    if (g.leaf.after != Leaf::After::set) continue;
    SINTER_CHECK(graph.buffers[graph.values[g.leaf.grad].buffer].kind != Buffer::Kind::input, state,
        cat("capture: the gradient of ", name_of(g.leaf), " is set to an input"),
        "set it to a copy(..)");
    g.grad = c.executor->tensor(g.leaf.grad);
    for (const auto& [parameter, rule] : graph.taken) {
      if (parameter != g.leaf.value) continue;
      g.grad = without_memory(g.grad);
      g.taken_by = rule;
    }
  }
}

}  // namespace

std::unique_ptr<Captured> make_captured(const Recorded& first, Recorded second, Device::Type device,
    const StepOptions& options, std::vector<Refused>& choices, const Tensors& adopted) {
  auto captured = std::make_unique<Captured>(Captured{.recorded = std::move(second.graph),
      .fused = Rewriter({}, {}, {}),
      .bf16_copies = std::move(second.bf16_copies),
      .draws = second.draws,
      .clears_tape = second.clears_tape});
  Captured& c = *captured;
  keep_gradients(c, first, second.leaves);

  // The emulator's times mean nothing: there fewer launches always win.
  const bool chooses =
      options.measure.value_or(device == Device::Type::cuda) && device != Device::Type::simt;
  const bool known = chooses && choices.size() < options.choices.size();
  const bool measures = chooses && !known;
  const bool products_too = measures && choice_rule() == ChoiceRule::model;
  const ScopedChoiceRule rule(products_too ? ChoiceRule::measured : choice_rule());
  Refused chosen = known ? options.choices[choices.size()] : Refused{};
  if (measures) {
    c.fused = rewrite_measured(c.recorded, options.rules, device);
    for (const Group& group : c.fused.groups) {
      if (group.kept_unfused()) chosen.emplace(group.rule, group.origin.front());
    }
  } else {
    c.fused = rewrite(c.recorded, options.rules, device, chosen);
  }
  c.executor = std::make_unique<Executor>(c.fused.graph, options.cuda_graph, adopted);
  c.written = written_memory(c.fused.graph);
  bind_gradients(c);
  if (chooses) choices.push_back(std::move(chosen));
  return captured;
}

}  // namespace sinter::capture
