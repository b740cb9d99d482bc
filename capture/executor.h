// Runs a graph again and again: one arena for all local buffers, one prepared call per node. A run allocates nothing and checks
// nothing but its inputs.
// The graph's inputs may lie elsewhere at each run. On CUDA the whole list is one CUDA graph, and inputs are copied to where it reads them.
// Not thread-safe.
#pragma once

#include <deque>

#include "capture/cuda_replay.h"
#include "capture/graph.h"
#include "capture/plan.h"

namespace sinter::capture {

class Executor {
 public:
  // REQUIRES: every external buffer is bound.
  // `cuda_graph`: replay as one call on CUDA; else, and elsewhere, as a list of launches.
  explicit Executor(const Graph& graph, bool cuda_graph = true);
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Throws shape unless inputs have the recorded shapes, strides and types. Results: outputs().
  void run(const Tensors& inputs);
  // Where the graph reads input i, if it is a CUDA graph: a batch that is already there is not copied.
  const Tensor& input(size_t i) const { return inputs_[i]; }
  // Memory of the arena: the next run overwrites it.
  const Tensors& outputs() const { return outputs_; }
  Tensor tensor(int value) const { return tensors_[value]; }
  const MemoryPlan& plan() const { return plan_; }
  // Kernels per run, and calls that the host makes for them.
  size_t launches() const { return instructions_.size(); }
  size_t calls() const { return replay_ ? 1 : launches(); }
  // Of node n, where the own kernel and the library could both make it: which of them does, and why; else "".
  const std::string& made_by(size_t n) const { return instructions_[n].made_by; }

 private:
  struct Instruction {
    const OpDef* op;
    Attrs attrs;
    Tensors in, out;
    Role role;
    std::vector<Storage*> written;
    std::string made_by;
  };
  void run(Instruction& i);
  void check_inputs(const Tensors& inputs) const;
  bool cuda_graph_;
  Branches branches_;
  MemoryPlan plan_;
  std::shared_ptr<Storage> arena_;
  std::vector<std::shared_ptr<Storage>> storages_;  // per buffer
  Tensors inputs_;
  Tensors tensors_;                                 // per value
  std::deque<Instruction> instructions_;
  Tensors outputs_;
  std::unique_ptr<CudaReplay> replay_;
};

}  // namespace sinter::capture
