// The tape: ops in execution order, with what their backward needs. backward() reads it from the
// end: since every op stands behind the ops that made its inputs, the reverse order is a valid
// order of differentiation, without recursion, sorting or reference cycles.
//
// A *slot* numbers a value on the tape that wants a gradient. A value that an op made knows its
// slot and the tape's generation, a number that no other tape ever has; of leaves, which threads
// may share, the tape keeps its own list and writes nothing into them. It holds no handle to
// intermediate results but those that backward reads. One tape per thread; clear() starts a new
// generation.
//
// Note [What nobody can differentiate any more]
//   A forward pass of which no backward() follows would stay on the tape for good. So it looks
//   which results are still in use: those of which there are more handles than its own, and all
//   that they were made from. The other ops go, and their slots are used again. It looks when the
//   result of its last op was dropped, as that of such a pass is, or it has grown to a length; each
//   time to twice what it had to keep, so that looking costs each op about as much once. A training
//   loop does neither: the length stays when the tape is cleared.
#pragma once

#include <deque>
#include <unordered_map>

#include "autograd/autograd.h"
#include "ops/op.h"

namespace sinter {

class Tape final : public Recorder {
 public:
  static Tape& current();
  void record(const Call& call) override;
  void check_in_place(const OpDef& op, Operands in) const override;
  void backward(const Tensor& root, const BackwardOptions& options);
  void clear();
  // The slot of t on this tape, or -1.
  int64_t slot_of(const Tensor& t) const;
  void add_hook(int64_t slot, std::function<Tensor(const Tensor&)> hook) {
    slots_[slot].hooks.push_back(std::move(hook));
  }
  void retain(int64_t slot, const Tensor& t) { slots_[slot].keep = t; }
  size_t size() const { return nodes_.size(); }
  uint64_t taken() const { return taken_; }  // ops since the beginning, those that are gone too
  // The number of the op whose backward runs now, or -1.
  int64_t running() const { return running_; }
  // Called with each leaf that backward() gives a gradient to, just before: no op tells of it.
  std::function<void(const Tensor& leaf)> on_gradient;
  // Called with each leaf whose gradient is complete, with what backward() adds to it, as soon as
  // it is: while the gradients of other leaves are still to come.
  std::function<void(const Tensor& leaf)> on_complete;
  // backward() refuses to go through the first n ops: a recorded step began behind them.
  void keep_out_of(size_t n) { outside_ = n; }
  // What to do about a value whose tape is gone.
  const char* used_hint() const;
  // Throws state while backward() runs, as a hook finds it: the lists that it walks must stay.
  void check_idle(const char* what) const;

 private:
  struct Slot {
    Tensor keep;  // whose .grad receives the gradient: a leaf, or a tensor that asked for it
    const char* used = nullptr;  // the value comes from a tape that was used up, or from another
                                 // thread's: the op that took it
    std::weak_ptr<const void> value;  // what an op made
    std::vector<std::function<Tensor(const Tensor&)>> hooks;
    // An op computed the value, so its gradient has the value's type. That of a parameter, or of a
    // view of one (low_precision), may be wider: f32 of bf16.
    bool computed = false;
  };
  struct Mark {
    int64_t slot;      // of the value, or -1
    uint64_t version;  // of its storage at record time, if it is saved
  };
  struct Node {
    const OpDef* op;
    Attrs attrs;
    size_t inputs;
    Tensors values;  // the inputs, then the results: saved ones whole, others without storage
    std::vector<Mark> marks;  // of each of them
    std::span<const Mark> in_marks() const { return std::span(marks).first(inputs); }
    std::span<const Mark> out_marks() const { return std::span(marks).subspan(inputs); }
    uint32_t needs;
    uint64_t uid;        // of the op's call in a profile; 0: not profiled
    const char* module;  // Context::module
  };
  static uint64_t next_generation();
  int64_t new_slot();
  int64_t slot_for_input(const Tensor& t, const char* op);
  bool last_result_dropped() const;
  void drop_unreachable();
  static void check_known(const Tensor& leaf, const char* op);
  void check_usable(const Node& node) const;
  Tensors run_backward(const Node& node, const Tensors& grads);
  // The gradient of a slot is complete: hooks, then .grad.
  void finish(Slot& slot, Tensor& gradient) const;
  void deliver(Slot& slot, Tensor gradient) const;

  std::vector<Node> nodes_;
  size_t outside_ = 0;  // the first of nodes_ that are no part of the step that is being recorded
  // Note [What nobody can differentiate any more]: of nodes_, those that the last look left, and
  // how many there are at the next.
  size_t kept_ = 0, look_at_ = 32;
  std::deque<Slot> slots_;
  std::vector<int64_t> free_slots_;
  std::unordered_map<const void*, int64_t>
      leaves_;  // slots by Tensor::id(); their slots keep them alive
  uint64_t generation_ = next_generation();
  uint64_t taken_ = 0;
  bool cleared_ = false;  // ever
  bool busy_ = false;     // backward() runs
  int64_t running_ = -1;
};

}  // namespace sinter
