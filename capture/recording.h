// Records the ops of one call of a step as a Graph: a Recorder that hangs in the thread's Context
// while it lives.
//
// Note [Recording without doing]
//   A step may be recorded to see what it would do, and not be done. Context::launches is off then:
//   each op infers its results, which are meta tensors, and tells the recorders; it allocates,
//   launches, copies and sends nothing, so no element of any tensor changes, and nobody waits for a
//   device. What an op or backward() changes on the host as well is put back at the end: versions
//   of what is written in place, the tape, the counts of random ops, the gradients of leaves. A
//   program reads no element in a step (host reads are refused), so it cannot tell the difference.
#pragma once

#include <map>
#include <optional>
#include <set>

#include "autograd/tape.h"
#include "capture/graph.h"
#include "core/training_flag.h"
#include "ops/optim/step_state.h"

namespace sinter::capture {

struct Bf16Copy {
  Tensor weight, copy;
};

class Recording final : public Recorder {
 public:
  // `inputs` become the graph's inputs "x0", "x1", .. or get their own names. `launches`: else see
  // Note [Recording without doing]. REQUIRES: no two of them overlap. Throws state inside another
  // recording.
  explicit Recording(const Tensors& inputs, bool launches = true);
  ~Recording() override;
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  void record(const Call& call) override;
  void check_in_place(const OpDef& op, Operands in) const override;
  // The leaves that backward() gave a gradient to, in that order, and what their .grad() was
  // before; undefined if the step made that.
  struct Reached {
    Tensor leaf, before;
    bool own;  // the step made the leaf
  };
  const std::vector<Reached>& reached() const { return reached_; }
  // The weights whose bf16 copies were asked for, with the copies as far as the step did not make
  // them itself. A copy that is old when the step begins is renewed before it, not in it.
  const std::vector<Bf16Copy>& bf16_copies() const { return bf16_copies_; }
  const TrainingFlag::Numbers& flags() const { return flags_; }  // that were asked for
  RandomOpsOfStep::Draws draws() const { return random_ops_->draws(); }
  bool views_input(const Tensor& t) const { return region_of(t); }
  // Ends the recording. `parameters`: whose .grad() are results of the step, as far as they are
  // defined. `movable`: tensors that lived before the step and may lie elsewhere at the next call:
  // those that the step uses become its last inputs, unless it uses more of their storage; the
  // others become undefined.
  Graph finish(const Tensors& outputs, const Tensors& parameters, Tensors* movable = nullptr);

 private:
  // The memory of an input: a buffer that begins where it does, wherever that is in the storage at
  // this call.
  struct Region {
    uint64_t storage;
    Extent extent;
    int buffer;
  };
  int value_of(const Tensor& t);
  void check_device(const Call& call) const;
  // The region that t lies in, or nullptr.
  const Region* region_of(const Tensor& t) const;
  bool made_here(const Tensor& t) const;
  // Is it of the step, made by an op or by the host?
  bool own(const Tensor& t) const { return t.defined() && t.storage()->uid() > begun_; }
  // Or a view that the step made, of whatever memory?
  bool made_as_leaf(const Tensor& t) const { return own(t) || views_.contains(t.id()); }
  bool changed_here(const Tensor& t) const;
  void note_bf16_copy(const Tensor& weight, const Tensor& copy);
  // The buffer of t, and where it begins in t's storage, in bytes.
  std::pair<int, int64_t> buffer_of(const Tensor& t);

  Graph graph_;
  std::optional<RandomOpsOfStep> random_ops_;
  std::vector<Region> regions_;
  std::map<uint64_t, int> buffers_;
  std::map<std::vector<int64_t>, int> values_;  // by storage, type and layout
  std::vector<Reached> reached_;
  std::set<const void*> views_;  // the results of view ops, by id()
  std::vector<Bf16Copy> bf16_copies_;
  std::vector<int> node_of_taped_;  // the graph's number of each op of the tape; -1: a view
  TrainingFlag::Numbers flags_;
  uint64_t taken_;        // Tape::taken() when the last op was told
  const uint64_t begun_;  // storages of higher numbers were made since the recording began
  const char* reads_forbidden_before_;
  // To be put back, without launches.
  std::optional<Tape> tape_before_;
  mutable std::vector<std::pair<std::shared_ptr<Storage>, Storage::Written>> written_before_;
};

}  // namespace sinter::capture
