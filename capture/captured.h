// What a Step keeps of its calls. Of a recorded one (Recorded): the graph, and of each leaf, that
// is, a tensor whose .grad a step may read and change, what its gradient was when the call began
// and what the call did to it. Of a captured key (Captured): the graph as it was recorded, its
// rewritten form, the executor that replays it, and what a replay does to the gradients.
#pragma once

#include <memory>
#include <string>

#include "capture/executor.h"
#include "capture/recording.h"
#include "capture/rules.h"
#include "core/training_flag.h"

namespace sinter::capture {

struct StepOptions;

// Parameter number `parameter`, input number `input`, or a tensor of the closure.
struct Leaf {
  enum class After : uint8_t { kept, cleared, set };
  int parameter = -1, input = -1;
  Tensor tensor;  // as it was recorded
  Tensor before;  // its .grad when the recorded call began
  // Ops use `before`: it is an input of the graph or, as a piece of larger memory, must stay where
  // it is.
  bool read = false;
  bool own = false;  // the recorded call made the tensor: the next one makes another
  After after = After::kept;
  int value = -1, grad = -1;  // of the graph, if it is set
  // Of a captured key: before a replay .grad is there or not as `before` is, but for `any`; if it
  // is read, laid out and placed in its storage as that and, if that has memory, there.
  bool any = false;
  // What it is then, if it is set, without memory if the rule `taken_by` took it.
  Tensor given = {};
  const char* taken_by = nullptr;
};

// One recorded call, which ran or was traced.
struct Recorded {
  Graph recorded;
  std::vector<Leaf> leaves;
  std::vector<Bf16Copy> bf16_copies;  // that it reads: up to date before each replay
  RandomOpsOfStep::Draws draws;
  bool clears_tape = false;
  // The training flags that the function asked for, and those that were off when it began.
  TrainingFlag::Numbers flags, off;
  mutable uint64_t flags_seen = UINT64_MAX;  // TrainingFlag::changes() when they were last compared
  bool flags_fit() const;
};

// t.grad(), undefined if there is none. A gradient that a rule took (rules.h) has no memory.
Tensor gradient_of(const Tensor& t);
bool has_memory(const Tensor& gradient);
Tensor without_memory(const Tensor& t);
bool same_layout(const Tensor& a, const Tensor& b);

// The leaf of `leaves` that stands for the same tensor, or nullptr.
const Leaf* find_leaf(const std::vector<Leaf>& leaves, const Leaf& wanted);
// Did both begin with the same gradients, as far as that is to an op?
bool began_alike(const Recorded& a, const Recorded& b);
// "" if both recordings do the same, to the gradients too, else the first difference.
std::string difference(const Recorded& a, const Recorded& b, const Sides& sides = {});
// Is t memory of the closure for the graph?
bool is_external(const Graph& graph, const Tensor& t);
// Throws state if an op reads a tensor that a trace has made, and that has no elements then, but
// for the gradients with which `leaves` began.
void check_elements(const Graph& graph, const std::vector<Leaf>& leaves);

// What a graph writes, and its inputs may not share: memory of the closure, and inputs, by number.
// One that is written may share no memory of the closure.
struct WrittenMemory {
  std::vector<const Storage*> closure, all_closure;
  std::vector<size_t> inputs;
  WrittenMemory() = default;
  explicit WrittenMemory(const Graph& graph);
  // Throws state if one of the graph's inputs shares it. The first `inputs` of them are the step's,
  // the others gradients of `leaves`, which they are or were before.
  void check_apart(const Tensors& given, size_t inputs, const std::vector<Leaf>& leaves) const;
};

struct Captured : Recorded {
  Rewriter fused{{}, {}, {}};
  std::unique_ptr<Executor> executor;
  WrittenMemory written;
  std::vector<size_t> constants;  // results that are constants of the step
};

// Rewrites, plans and prepares a recording. `same`: one that agrees with it, or nullptr where the
// one that was compared with it began with the gradients of `same`. `choices`: what measuring kept
// unfused, per capture; one is appended if options.measure. `adopted`: see Executor. Throws state
// if no replay could do what was recorded.
std::unique_ptr<Captured> make_captured(const Recorded* same, Recorded recorded,
    const StepOptions& options, std::vector<Refused>& choices, const Tensors& adopted);

}  // namespace sinter::capture
