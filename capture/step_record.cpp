// Step::record: one call of the function, watched.
#include <algorithm>
#include <ranges>

#include "autograd/tape.h"
#include "capture/step.h"
#include "core/device/memory.h"
#include "ops/ops.h"

namespace sinter::capture {
namespace {

void check_result(const Tensor& t, size_t i) {
  SINTER_CHECK(t.defined(), state, str("capture: result ", i, " of the step is undefined"),
      "return only what the step made");
  if (!t.requires_grad()) return;
  const bool on_tape = t.autograd().leaf || Tape::current().slot_of(t) >= 0;
  SINTER_CHECK(!on_tape, state,
      str("capture: result ", i, " of the step requires grad: ", t.describe(),
          "; a replay is not on the tape, so no gradient would flow through it"),
      "return detach(..), or call backward inside the step");
  SINTER_CHECK(!t.autograd().grad.defined(), state,
      str("capture: result ", i, " of the step keeps its gradient: ", t.describe(),
          "; a replay would not set it"),
      "return its grad() as a result");
}

// The same elements in the same layout, in memory of its own.
Tensor copy_of(const Tensor& t) {
  const Extent extent = extent_of(t);
  const auto storage = std::make_shared<Storage>(size_t(extent.end - extent.begin), t.device());
  copy_on_device(storage->data(), t.raw(), t.device(), storage->bytes());
  return Tensor::view_of(storage, t.dtype(), t.shape(), t.strides(), 0);
}

// What autograd knows of tensors is as it was when this ends. Until then a gradient that a rule
// took is a meta tensor like all others.
class KeptAutograd {
 public:
  KeptAutograd() = default;
  ~KeptAutograd() {
    for (auto& [t, meta] : kept_ | std::views::reverse)  // one that was kept twice is as at first
      if (t.has_autograd()) t.autograd() = std::move(meta);
  }
  KeptAutograd(const KeptAutograd&) = delete;
  KeptAutograd& operator=(const KeptAutograd&) = delete;
  void keep(const Tensor& t) {
    kept_.emplace_back(t, t.has_autograd() ? t.autograd() : AutogradMeta());
    if (t.has_autograd()) t.autograd().grad_taken_by = nullptr;
  }

 private:
  std::vector<std::pair<Tensor, AutogradMeta>> kept_;
};

}  // namespace

Recorded Step::record(const Tensors& inputs, How how, const std::vector<Leaf>& known) {
  const bool launches = how == How::run;
  Recorded r{.off = TrainingFlag::off()};
  const auto follow = [&](const Tensor& t, int parameter, int input) {
    const auto is_t = [&](const Leaf& leaf) { return leaf.tensor.is_same(t); };
    if (std::ranges::none_of(r.leaves, is_t))
      r.leaves.push_back(
          {.parameter = parameter, .input = input, .tensor = t, .before = gradient_of(t)});
  };
  for (size_t p = 0; p < guarded_.size(); ++p) follow(guarded_[p].tensor, int(p), -1);
  // Those that share memory are given as copies: the graph must know which of them an op reads.
  Tensors apart;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].requires_grad() || gradient_of(inputs[i]).defined())
      follow(inputs[i], -1, int(i));
    apart.push_back(!shares_memory(inputs, i) ? inputs[i]
                    : launches                ? copy_of(inputs[i])
                                              : without_memory(inputs[i]));
  }
  for (const Leaf& leaf : known) {
    if (leaf.parameter < 0 && leaf.input < 0 && !leaf.own) follow(leaf.tensor, -1, -1);
  }
  KeptAutograd kept;
  if (!launches) {
    for (const Tensor& t : inputs) kept.keep(t);
    for (const Leaf& leaf : r.leaves) kept.keep(leaf.tensor);
  }
  for (Leaf& leaf : r.leaves) {
    const Leaf* then = how == How::trace_as_it_was ? find_leaf(known, leaf) : nullptr;
    if (then) leaf.tensor.autograd().grad = leaf.before = then->before;
  }
  Tensors results;
  {
    Recording recording(apart, launches);
    results = function_(apart);
    for (size_t i = 0; i < results.size(); ++i) {
      check_result(results[i], i);
      if (recording.views_input(results[i])) results[i] = copy(off_tape(results[i]));
    }
    for (const auto& [leaf, before, own] : recording.reached()) {
      const size_t followed = r.leaves.size();
      follow(leaf, -1, -1);
      if (r.leaves.size() == followed) continue;
      r.leaves.back().before = before;
      r.leaves.back().own = own;
    }
    Tensors with_gradient, before;
    for (Leaf& leaf : r.leaves) {
      const Tensor now = gradient_of(leaf.tensor);
      if (!now.defined()) {
        leaf.after = Leaf::After::cleared;
      } else if (!now.is_same(leaf.before)) {
        leaf.after = Leaf::After::set;
      }
      if (leaf.after == Leaf::After::set) with_gradient.push_back(leaf.tensor);
      before.push_back(has_memory(leaf.before) ? leaf.before : Tensor());
    }
    r.bf16_copies = recording.bf16_copies();
    r.draws = recording.draws();
    r.flags = recording.flags();
    r.clears_tape = !recording.reached().empty() && Tape::current().size() == 0;
    r.recorded = recording.finish(results, with_gradient, &before);
    size_t set = 0;
    for (size_t l = 0; l < r.leaves.size(); ++l) {
      Leaf& leaf = r.leaves[l];
      leaf.read = before[l].defined();
      if (leaf.after != Leaf::After::set) continue;
      leaf.value = r.recorded.gradients[set].param;
      leaf.grad = r.recorded.gradients[set++].grad;
    }
  }
  check_elements(r.recorded, r.leaves);
  if (!launches) return r;
  Tensors bound = inputs;
  for (const Leaf& leaf : r.leaves) {
    if (leaf.read && !is_external(r.recorded, leaf.before)) bound.push_back(leaf.before);
  }
  WrittenMemory(r.recorded).check_apart(bound, inputs.size(), r.leaves);
  ++stats_.recordings;
  for (Tensor& t : results) {  // as those of a replay
    if (t.requires_grad()) t = off_tape(t);
  }
  results_ = std::move(results);
  return r;
}

}  // namespace sinter::capture
