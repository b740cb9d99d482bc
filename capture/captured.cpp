#include "capture/captured.h"

#include <algorithm>

#include "capture/measure.h"
#include "capture/step.h"
#include "core/device/chooser.h"

namespace sinter::capture {
namespace {

std::string name_of(const Leaf& leaf) {
  const std::string name = leaf.tensor.has_autograd() ? leaf.tensor.autograd().name : "";
  if (!name.empty()) return name;
  return leaf.input >= 0 ? str("input ", leaf.input) : str("a leaf ", leaf.tensor.describe());
}

// What a replay asks of a leaf's gradient at its beginning, and does with it. Where the step did
// the same with a gradient and without one, it takes any. Else it is replayed in the state that it
// was recorded in: to a gradient that is there it adds, say, and makes one that is not. Of one that
// is read, only the layout and the place in its storage count, since it is an input of the graph;
// unless the graph has its memory built in.
Leaf gradient_in_replay(const Graph& graph, Leaf leaf, const Leaf& other) {
  leaf.any = leaf.before.defined() != other.before.defined();
  if (!leaf.before.defined()) {  // only one that found a gradient tells whether the step clears it
    leaf.before = other.before;
    leaf.after = other.after;
  }
  const bool pinned = leaf.read && is_external(graph, leaf.before);
  if (!pinned && leaf.before.defined()) leaf.before = without_memory(leaf.before);
  if (leaf.input >= 0) leaf.tensor = {};
  return leaf;
}

// Leaves that only one recording knows were made by the step itself, and nobody else sees their
// gradients.
void keep_gradients(Captured& c, const Recorded* same) {
  for (const Leaf& leaf : std::exchange(c.leaves, {})) {
    const Leaf* other = same ? find_leaf(same->leaves, leaf) : leaf.own ? nullptr : &leaf;
    if (other) {
      // A rule took the gradient, and the step reads it: this says so.
      if (is_external(c.recorded, leaf.before) && !has_memory(leaf.before)) leaf.tensor.grad();
      c.leaves.push_back(gradient_in_replay(c.recorded, leaf, *other));
      continue;
    }
    SINTER_CHECK(!leaf.read, state,
        str("capture: a leaf made in the step has a gradient from outside: ", name_of(leaf)),
        "give it as an input");
    std::erase_if(c.recorded.gradients, [&](const Graph::Gradient& g) {
      return g.param == leaf.value && g.grad == leaf.grad;  // a view of a weight may be its value
    });
  }
  for (const Leaf& a : c.leaves) {
    for (const Leaf& b : c.leaves) {
      SINTER_CHECK(&a == &b || a.value < 0 || a.value != b.value, state,
          str("capture: ", name_of(a), " and ", name_of(b),
              " lie in the same memory, and each gets a gradient"),
          "use one tensor for both");
    }
  }
}

// Where each gradient lies after a replay.
void bind_gradients(Captured& c) {
  const Graph& graph = c.fused.graph;
  for (Leaf& g : c.leaves) {
    if (g.after != Leaf::After::set) continue;
    const Buffer& buffer = graph.buffer_of(g.grad);
    SINTER_CHECK(buffer.kind != Buffer::Kind::input && !buffer.constant.defined(), state,
        str("capture: the gradient of ", name_of(g), " is set to ",
            buffer.constant.defined() ? "a tensor that the host makes in the step" : "an input"),
        "set it to a copy(..)");
    g.given = c.executor->tensor(g.grad);
    for (const auto& [parameter, rule] : graph.taken) {
      if (parameter != g.value) continue;
      g.given = without_memory(g.given);
      g.taken_by = rule;
    }
  }
}

// Note [Constants of a step], graph.cpp
void own_constants(Captured& c) {
  for (Buffer& buffer : c.recorded.buffers) {
    if (buffer.constant.defined()) buffer.storage = buffer.constant.storage();
  }
  for (size_t i = 0; i < c.recorded.outputs.size(); ++i) {
    if (c.recorded.buffer_of(c.recorded.outputs[i]).constant.defined()) c.constants.push_back(i);
  }
}

}  // namespace

Tensor gradient_of(const Tensor& t) { return t.has_autograd() ? t.autograd().grad : Tensor(); }
bool has_memory(const Tensor& gradient) { return gradient.defined() && !gradient.is_meta(); }
Tensor without_memory(const Tensor& t) {
  return Tensor::meta(t.shape(), t.dtype(), t.device()).with_layout(t.strides(), t.offset());
}
bool same_layout(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() && a.strides() == b.strides();
}

const Leaf* find_leaf(const std::vector<Leaf>& leaves, const Leaf& wanted) {
  for (const Leaf& leaf : leaves) {
    const bool same = leaf.parameter == wanted.parameter && leaf.input == wanted.input;
    if (same && (leaf.parameter >= 0 || leaf.input >= 0 || leaf.tensor.is_same(wanted.tensor)))
      return &leaf;
  }
  return nullptr;
}

bool Recorded::flags_fit() const {
  const uint64_t changes = TrainingFlag::changes();
  if (changes == flags_seen) return true;
  const TrainingFlag::Numbers now = TrainingFlag::off();
  const auto differs = [&](uint64_t f) { return now.contains(f) != off.contains(f); };
  if (std::ranges::any_of(flags, differs)) return false;
  flags_seen = changes;
  return true;
}

bool began_alike(const Recorded& a, const Recorded& b) {
  return std::ranges::all_of(a.leaves, [&](const Leaf& leaf) {
    const Leaf* other = find_leaf(b.leaves, leaf);
    const Tensor x = leaf.before, y = other ? other->before : x;
    if (x.defined() != y.defined() || has_memory(x) != has_memory(y)) return false;
    const bool stays = !is_external(a.recorded, x) || x.storage() == y.storage();
    return !has_memory(x) || (same_layout(x, y) && x.offset() == y.offset() && stays);
  });
}

// Where one recording began without a gradient, nobody can tell whether it would have cleared one,
// so the other decides.
std::string difference(const Recorded& a, const Recorded& b, const Sides& sides) {
  if (const std::string differs = difference(a.recorded, b.recorded, sides); !differs.empty())
    return differs;
  static constexpr const char* kWords[] = {"kept", "cleared", "set"};
  for (const Leaf& x : a.leaves) {
    const Leaf* y = find_leaf(b.leaves, x);
    if (!y) continue;
    const bool either_set = x.after == Leaf::After::set || y->after == Leaf::After::set;
    if (!(x.before.defined() && y->before.defined()) && !either_set) continue;
    if (x.after == y->after && x.grad == y->grad && x.read == y->read) continue;
    return str("the gradient of ", name_of(*y), " is ", kWords[int(x.after)], " ", sides.a, ", ",
        kWords[int(y->after)], " ", sides.b);
  }
  return "";
}

bool is_external(const Graph& graph, const Tensor& t) {
  return t.defined() && std::ranges::any_of(graph.buffers, [&](const Buffer& b) {
    return b.kind == Buffer::Kind::external && b.storage == t.storage();
  });
}

void check_elements(const Graph& graph, const std::vector<Leaf>& leaves) {
  for (const Node& node : graph.nodes) {
    for (const int in : node.in) {
      if (in < 0 || graph.buffer_of(in).kind != Buffer::Kind::external) continue;
      const auto& storage = graph.buffer_of(in).storage;
      const bool began = std::ranges::any_of(leaves,
          [&](const Leaf& l) { return l.before.defined() && l.before.storage() == storage; });
      SINTER_CHECK(storage->has_bytes() || began, state,
          str("capture: ", node.op->text(), " is given ", graph.meta(in).describe(),
              ", a meta tensor, which has no elements: the function has made it at a call that was "
              "only traced (2, 10, 100, ..), and has kept it"),
          "make what lasts from call to call before the step, or at its first call, and let ops "
          "change it in place");
    }
  }
}

WrittenMemory::WrittenMemory(const Graph& graph) {
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    if (graph.changes_in_place(graph.values[graph.inputs[i]].buffer)) inputs.push_back(i);
  }
  for (size_t b = 0; b < graph.buffers.size(); ++b) {
    const Buffer& buffer = graph.buffers[b];
    if (buffer.kind != Buffer::Kind::external) continue;
    all_closure.push_back(buffer.storage.get());
    if (graph.changes_in_place(int(b))) closure.push_back(buffer.storage.get());
  }
}

void WrittenMemory::check_apart(
    const Tensors& given, size_t inputs_of_step, const std::vector<Leaf>& leaves) const {
  for (size_t i = 0; i < given.size(); ++i) {
    const auto shares = [&](size_t written) {
      return written != i && given[i].storage() == given[written].storage() &&
             extent_of(given[i]).overlaps(extent_of(given[written]));
    };
    const bool writes = std::ranges::find(inputs, i) != inputs.end();
    const auto& closed = writes ? all_closure : closure;
    const bool apart = std::ranges::find(closed, given[i].storage().get()) == closed.end() &&
                       std::ranges::none_of(inputs, shares);
    const auto name = [&] {
      if (i < inputs_of_step) return str("input ", i);
      const auto leaf = std::ranges::find_if(leaves, [&](const Leaf& l) {
        return l.before.is_same(given[i]) || gradient_of(l.tensor).is_same(given[i]);
      });
      return str("the gradient of ", leaf == leaves.end() ? "a leaf" : name_of(*leaf));
    };
    SINTER_CHECK(apart, state,
        str("capture: ", name(), ", ", given[i].describe(),
            ", shares memory with another tensor that the step uses, and the step changes one of "
            "them"),
        "give a copy(..) of it");
  }
}

std::unique_ptr<Captured> make_captured(const Recorded* same, Recorded recorded,
    const StepOptions& options, std::vector<Refused>& choices, const Tensors& adopted) {
  const Device::Type device = recorded.recorded.device().type;
  auto captured = std::make_unique<Captured>(Captured{std::move(recorded)});
  Captured& c = *captured;
  keep_gradients(c, same);
  own_constants(c);

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
  c.executor = std::make_unique<Executor>(c.fused.graph, adopted);
  c.written = WrittenMemory(c.fused.graph);
  bind_gradients(c);
  if (chooses) choices.push_back(std::move(chosen));
  return captured;
}

}  // namespace sinter::capture
