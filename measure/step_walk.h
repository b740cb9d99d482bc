// StepWalk: a captured step, as it was recorded or as the rules left it, run node by node on copies
// of its memory. The step, its model and its optimizer stay as they are.
//
//   StepWalk walk(captured.recorded, inputs, StepWalk::Memory::planned);
//   for (size_t n = 0; n < captured.recorded.nodes.size(); ++n) {
//     walk.run(n);
//     show(walk.out(n));
//   }
//
// Inspection prints what it sees on the way, blame() holds it against f64. One thread.
#pragma once

#include <memory>

#include "capture/plan.h"

namespace sinter::measure {

class StepWalk {
 public:
  // planned: on the step's device, its buffers where a replay has them: some share memory.
  // apart: on the host, memory of its own for each buffer, and no learning rates to come: those lie
  // in the step's device, which the host does not read.
  enum class Memory : uint8_t { planned, apart };
  // Throws shape where `inputs`, on any device, are not those of the step. REQUIRES: the graph
  // outlives the walk.
  StepWalk(const capture::Graph& graph, const Tensors& inputs, Memory memory);

  // The inputs, and all that lives across steps, as they were at first.
  void restart();
  // Node n by its kernel.
  void run(size_t n);
  // Node n by somebody else: its results, then the operands that it changes, become these, rounded
  // to the step's types. REQUIRES: memory is apart.
  void put(size_t n, const Tensors& values);

  const capture::MemoryPlan& plan() const { return plan_; }
  Tensor tensor(int value) const { return value < 0 ? Tensor{} : tensors_[value]; }
  // Operands and results of node n, with what is in them now.
  const Tensors& in(size_t n) const { return nodes_[n].in; }
  const Tensors& out(size_t n) const { return nodes_[n].out; }

 private:
  struct Operands {
    Tensors in, out;
  };
  const capture::Graph& graph_;
  const Tensors inputs_;
  const Memory memory_;
  const capture::MemoryPlan plan_;
  std::shared_ptr<Storage> arena_;                  // planned
  std::vector<std::shared_ptr<Storage>> storages_;  // per buffer
  Tensors tensors_;                                 // per value
  std::vector<Operands> nodes_;
};

}  // namespace sinter::measure
