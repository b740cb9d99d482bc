// Runs a graph again and again: one arena for all local buffers, one prepared call per node. A run allocates nothing and checks nothing.
// The graph's inputs may lie elsewhere at each run. Not thread-safe.
#pragma once

#include <deque>

#include "capture/graph.h"
#include "capture/plan.h"

namespace sinter::capture {

class Executor {
 public:
  // REQUIRES: every external buffer is bound.
  explicit Executor(const Graph& graph);
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // REQUIRES: inputs have the recorded shapes, strides and types. Results: outputs().
  void run(const Tensors& inputs);
  // Memory of the arena: the next run overwrites it.
  const Tensors& outputs() const { return outputs_; }
  Tensor tensor(int value) const { return tensors_[value]; }
  const MemoryPlan& plan() const { return plan_; }
  size_t launches() const { return instructions_.size(); }

 private:
  struct Instruction {
    const OpDef* op;
    Attrs attrs;
    Tensors in, out;
    Role role;
    std::vector<Storage*> written;
  };
  MemoryPlan plan_;
  std::shared_ptr<Storage> arena_;
  std::vector<std::shared_ptr<Storage>> storages_;  // per buffer
  std::vector<Storage*> input_storages_;
  Tensors tensors_;                                 // per value
  std::deque<Instruction> instructions_;
  Tensors outputs_;
};

}  // namespace sinter::capture
