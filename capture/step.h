// Step: a callable that does a whole training step (or a forward pass), recorded, fused and
// replayed.
//
//   capture::Step step([&](const Tensors& in) {
//     opt.zero_grad();
//     Tensor loss = cross_entropy(net(in[0]), in[1]);
//     backward(loss);
//     opt.step(loss);
//     return Tensors{loss};
//   }, {.parameters = nn::parameter_visitor(net)});
//   step({x, labels});
//
// A replay runs the ops that were recorded and nothing else of the function. What changes from call
// to call must be an input, a tensor changed by ops, or part of `mode`. Nobody guards a number of
// the closure (a factor, a flag, a loop count) or a tensor of the closure that is not in
// `parameters` and is assigned anew: Note [Recorded once more] says when a change is found. Not
// seen at all: memory written through a raw pointer, variables that the function assigns, hooks and
// prints.
//
// Note [Recorded once more]
//   At calls 10, 100, 1000 and so on of a key the function runs once more before the replay, and
//   what it records is compared with the captured graph and with what that does to gradients. A
//   difference is an Error that names the op, where it stands, and what differs, with both values;
//   the call is not done, and the key is forgotten, so the next call captures the step as it is
//   then. The calls since the change had the old number: a wrong result, but not for ever.
//
//   A profile has a row "recheck" of it, and no other.
//
// Note [Traced]
//   At these calls and at call 2 the function is traced. Nothing is launched, copied, sent or
//   waited for (Note [Recording without doing] of recording.h), but for tensors that the function
//   makes on the host, which are compared; and what the library keeps is as before: gradients and
//   all else that autograd knows of parameters, inputs and leaves, versions, random numbers, the
//   step's state, running statistics, the position of Batches, the tape. So the results of all
//   calls are those of a step that does not look. What the function itself does on the host it does
//   once more: it counts, prints, and assigns variables, to which a tensor that it made is then a
//   meta tensor. Its elements cannot be read, and a step that gives one to an op is refused by the
//   name of that op: what lasts must be made before the step or at call 1.
//
// Note [What a replay promises]
//   A step gives what its function would give at this call, or refuses with an Error that says
//   why. A test of tests/capture/promises_test.cpp or cases_test.cpp stands for each sentence.
//
//   Calls. Per key, call 1 runs eagerly and is recorded, and call 2 is traced; if both recordings
//   agree, call 2 replays, as do all that follow. Else the difference is the error, and call 2 is
//   not done: all is as before it. If call 2 begins with other gradients and does something else,
//   it is traced once more, with those of call 1, and that must be what call 1 did.
//
//   The key: shapes, strides, types and devices of the inputs, which of them require grad; the
//   training flags that the function asks for, grad mode, `mode`, set_first_row(), the thread, the
//   Communicator.
//
//   Devices. A step works on one; an op on a second is refused. Inputs that no op reads may lie
//   elsewhere. to() inside is refused.
//
//   Constants. A tensor that the host makes inside (Tensor::zeros(), from()) is a constant, if each
//   recording finds the same elements in it; else it is refused, and so is an op that changes it.
//
//   Inputs may lie elsewhere at each call, change in place between calls, be results of the last
//   call, and share memory with each other or a parameter, as far as the step writes none of that
//   and the input gets no gradient: else they are refused. On CUDA, inputs that are the same
//   tensors at calls 1 and 2 are read where they lie, without a copy; where one lies elsewhere
//   later, the step is captured again, with copies. One that the step writes is written at each
//   call and its version counted; it may not be a result of this step. One that an op on the
//   caller's tape made is refused.
//
//   Results are off the tape and own their memory, which stays valid for good; the next call of
//   the same key overwrites it, and backward() refuses what it would find overwritten. In place of
//   one that views an input there is a copy. Refused: results that are undefined or on the tape.
//
//   Gradients of parameters, of inputs and of other leaves that backward() reaches are set, added
//   to what is there, or cleared, as the function does; where a gradient at entry matters, its
//   presence and its place in its storage belong to the key. They own their memory as results do.
//   One that a rule took (see rules.h) cannot be added to or read: that is refused. A gradient of
//   the last call may be read and changed; what held it then is overwritten, as results are.
//
//   Parameters: another storage, layout, number, requires_grad or bf16 copy is a guard miss, which
//   is named, and the step is captured again. A parameter that was written between calls is seen,
//   and so is its bf16 copy, which is renewed before the replay.
//
//   Random ops draw at each call what they would draw eagerly from the same state. A
//   set_first_row() inside holds until the call ends.
//
//   backward() inside goes through ops of the step only; through ops that ran before, it is
//   refused.
//
//   Host writes and reads of step state inside the function (set_lr, copy_values, manual_seed,
//   item()) are refused; between calls they act.
//
//   Nesting: called inside a recording or under AnomalyMode, the function runs op by op, so the
//   outer step records its ops.
//
//   Threads: one call at a time, else refused. A step may move between threads; each has its own
//   capture.
//
//   Failures: if the function throws or the capture fails, the step is as before the call.
//
//   Numbers of the closure: a change is found at the next call that records the step once more, and
//   refused there, by the name of the op.
#pragma once

#include <atomic>
#include <functional>
#include <memory>

#include "capture/captured.h"

namespace sinter::capture {

using ParameterVisitor = std::function<void(const Tensor&)>;

struct StepOptions {
  RuleSet rules;
  // Calls the visitor for every parameter, always in one order. Guarded: their number, storage,
  // requires_grad and bf16 copy.
  std::function<void(const ParameterVisitor&)> parameters;
  // Another key for another answer: a flag or a number of the closure.
  std::function<int64_t()> mode;
  size_t cache_size = 8;  // keys kept; the one not used for longest goes
  // Time the step with and without each fused group and keep what is not slower; on CUDA products
  // and convolutions by libraries against own kernels too (core/device/chooser.h). Unset: on CUDA,
  // where times hardly vary.
  std::optional<bool> measure = {};
  // What measuring kept unfused in an earlier run's first captures: taken, not measured again.
  std::vector<Refused> choices = {};
  // The calls of Note [Recorded once more]: every Nth of a key, in place of 10, 100, 1000, ..; 0:
  // none.
  std::optional<int64_t> recheck_every = {};
};

struct StepStats {
  // recordings: calls that ran and were recorded, call 1 of a key; a trace is part of a capture.
  int64_t calls = 0, recordings = 0, captures = 0, replays = 0, evictions = 0;
  int64_t eager = 0;     // calls inside another recording or under AnomalyMode
  int64_t rechecks = 0;  // Note [Recorded once more]
  // Why calls were not replayed, in words, the last 16: guard misses and, once, that the keys keep
  // changing, or that what was captured is forgotten as often.
  std::vector<std::string> misses;
  double capture_ms = 0;  // rewriting, planning, measuring
};

class Step {
 public:
  using Function = std::function<Tensors(const Tensors&)>;
  explicit Step(Function function, StepOptions options = {});
  ~Step();
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;

  // Throws what the function throws, and state where Note [What a replay promises] says "refused".
  // The list stays valid until the next call.
  const Tensors& operator()(const Tensors& inputs);
  const StepStats& stats() const { return stats_; }
  // The capture that was called most, or nullptr while there is none.
  const Captured* captured() const;
  // What measuring kept unfused, per capture in their order; empty without `measure`.
  const std::vector<Refused>& choices() const { return choices_; }
  // Forgets all captures.
  void reset();

 private:
  struct Key;
  struct Entry;
  struct Guarded {
    Tensor tensor;
    uint64_t storage, bf16_copy;  // the uids; 0: no copy
    bool requires_grad;
  };
  std::string failed_guard();
  void note_miss(std::string text);
  void note_guard_miss(const std::string& guard);
  void note_change(const std::string& what);
  // "" or how the key of a call differs from that of an entry.
  std::string key_difference(const Entry& entry, const Tensors& inputs, const Key& key) const;
  void evict(const Tensors& inputs, const Key& key);
  void check_inputs(const Tensors& inputs) const;
  // Does input i lie in the storage of an input before it, a parameter or its gradient?
  bool shares_memory(const Tensors& inputs, size_t i) const;
  const Tensor& tensor_of(const Leaf& leaf, const Tensors& inputs) const;
  bool gradients_fit(const Captured& captured, const Tensors& inputs) const;
  // `anywhere`: even if the entry has adopted inputs, and these lie elsewhere.
  bool matches(
      const Entry& entry, const Tensors& inputs, const Key& key, bool anywhere = false) const;
  Tensors adopted_inputs(const Entry& entry, const Tensors& inputs) const;
  Entry* find(const Tensors& inputs, const Key& key);
  Entry& add_entry(const Tensors& inputs, const Key& key, Recorded first);
  void forget(const Entry& entry);
  void forget_all();
  void replay(Captured& captured, const Tensors& inputs);
  void recheck(Entry& entry, const Tensors& inputs);
  // A trace is not done and gives no results: Note [Recording without doing] of recording.h. As it
  // was: with the gradients with which the recording of `known` began.
  enum class How : uint8_t { run, trace, trace_as_it_was };
  // `known`: the leaves of an earlier recording, so that their gradients at entry are seen.
  Recorded record(const Tensors& inputs, How how, const std::vector<Leaf>& known = {});
  Entry& capture(Entry& first, const Tensors& inputs, const Key& key);

  Function function_;
  StepOptions options_;
  StepStats stats_;
  std::vector<std::unique_ptr<Entry>> entries_;
  std::vector<Guarded> guarded_;
  std::vector<Refused> choices_;
  bool adopts_ = true;  // until adopted inputs lie elsewhere
  bool told_of_keys_ = false;
  std::vector<std::string> changes_;  // why the last calls were recorded anew
  // Of this call; bound_: what the graph reads, where that is not just the inputs.
  Tensors results_, bound_;
  std::atomic<uint64_t> caller_{0};  // the thread that is in a call
  uint64_t clock_ = 0;
};

}  // namespace sinter::capture
