#include "capture/leaf.h"

#include <algorithm>

namespace sinter::capture {
std::string name_of(const Leaf& leaf) {
  const std::string name = leaf.tensor.has_autograd() ? leaf.tensor.autograd().name : "";
  if (!name.empty()) return name;
  return leaf.input >= 0 ? cat("input ", leaf.input) : cat("a leaf ", leaf.tensor.describe());
}

Tensor gradient_of(const Tensor& t) { return t.has_autograd() ? t.autograd().grad : Tensor(); }
bool has_memory(const Tensor& gradient) { return gradient.defined() && !gradient.is_meta(); }
Tensor without_memory(const Tensor& t) {
  return Tensor::meta(t.shape(), t.dtype(), t.device()).with_layout(t.strides(), 0);
}
bool same_layout(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() && a.strides() == b.strides();
}

const Leaf* find_leaf(const Recorded& recorded, const Leaf& wanted) {
  for (const Leaf& leaf : recorded.leaves) {
    const bool same = leaf.parameter == wanted.parameter && leaf.input == wanted.input;
    if (same && (leaf.parameter >= 0 || leaf.input >= 0 || leaf.tensor.is_same(wanted.tensor)))
      return &leaf;
  }
  return nullptr;
}

bool same_before(const Leaf& leaf, const Tensor& now) {
  return leaf.before.defined() == now.defined() && has_memory(leaf.before) == has_memory(now);
}

bool began_alike(const Recorded& a, const Recorded& b) {
  return std::ranges::all_of(a.leaves, [&](const Leaf& leaf) {
    const Leaf* other = find_leaf(b, leaf);
    return !other || same_before(leaf, other->before);
  });
}

// Where one recording began without a gradient, nobody can tell whether it would have cleared one,
// so the other decides.
std::string gradient_difference(const std::vector<Leaf>& a, const Recorded& b, const Sides& sides) {
  static constexpr const char* kWords[] = {"kept", "cleared", "set"};
  for (const Leaf& x : a) {
    const Leaf* y = find_leaf(b, x);
    if (!y) continue;
    const bool either_set = x.after == Leaf::After::set || y->after == Leaf::After::set;
    if (!(x.before.defined() && y->before.defined()) && !either_set) continue;
    if (x.after == y->after && x.grad == y->grad && x.read == y->read) continue;
    return cat("the gradient of ", name_of(*y), " is ", kWords[int(x.after)], " ", sides.a, ", ",
        kWords[int(y->after)], " ", sides.b);
  }
  return "";
}

std::vector<const Storage*> written_memory(const Graph& graph) {
  const bool writes_input = std::ranges::any_of(
      graph.inputs, [&](int in) { return graph.changes_in_place(graph.values[in].buffer); });
  std::vector<const Storage*> out;
  for (size_t b = 0; b < graph.buffers.size(); ++b) {
    const Buffer& buffer = graph.buffers[b];
    if (buffer.kind != Buffer::Kind::external) continue;
    if (writes_input || graph.changes_in_place(int(b))) out.push_back(buffer.storage.get());
  }
  return out;
}

void check_shares_nothing(
    const std::vector<const Storage*>& written, const Tensors& inputs, size_t i) {
  for (const Storage* storage : written) {
    SINTER_CHECK(inputs[i].storage().get() != storage, state,
        cat("capture: input ", i, ", ", inputs[i].describe(),
            ", shares memory with a tensor of the closure, and the step changes one of them"),
        "give a copy(..) of it");
  }
}

}  // namespace sinter::capture
