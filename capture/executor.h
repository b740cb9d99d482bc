// Runs a graph again and again: one arena for all local buffers, one prepared call per node. A run
// allocates nothing and checks nothing but its inputs, which may lie elsewhere at each run. On CUDA
// the whole list is one CUDA graph, and inputs are copied to where it reads them, and back if it
// writes them, unless they are adopted. Results and gradients are memory of the arena, which they
// keep alive. Not thread-safe.
#pragma once

#include <deque>

#include "capture/cuda_replay.h"
#include "capture/graph.h"
#include "capture/plan.h"

namespace sinter::capture {

class Listener;

class Executor {
 public:
  // REQUIRES: every external buffer is bound. Throws state if a result is memory of an input.
  // `adopted`: tensors for the first inputs, which a CUDA graph reads where they lie, without a
  // copy. REQUIRES: these inputs lie there at each run.
  explicit Executor(const Graph& graph, const Tensors& adopted = {});
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Throws shape unless inputs have the recorded shapes, strides and types, and state if an input
  // that the graph writes is a result of an earlier run. REQUIRES: inputs overlap as they did.
  void run(const Tensors& inputs);
  // The same for inputs that are known to have those shapes, strides and types. Those from number
  // `gradients` on may be results of an earlier run that the graph writes: nobody looks for the
  // change in them.
  void replay(const Tensors& inputs, size_t gradients = SIZE_MAX);
  // Where the graph reads input i, if it is a CUDA graph: a batch that is already there is not
  // copied.
  const Tensor& input(size_t i) const { return inputs_[i].tensor; }
  // Memory of the arena, which the next run overwrites.
  const Tensors& outputs() const { return outputs_; }
  Tensor tensor(int value) const { return tensors_[value]; }
  const MemoryPlan& plan() const { return plan_; }
  const std::vector<profiler::MemoryUse>& memory() const { return memory_; }  // of the nodes
  size_t num_inputs() const { return inputs_.size(); }
  // Kernels of the step per run (Graph::launches), and calls that the host makes for them.
  size_t launches() const { return launches_; }
  size_t calls() const { return replay_ ? 1 : launches(); }
  // Of node n, where the own kernel and the library could both make it: which of them does, and
  // why; else "".
  const std::string& made_by(size_t n) const { return instructions_[n].made_by; }

 private:
  struct Instruction {
    const OpDef* op;
    Attrs attrs;
    Tensors in, out;
    Role role;
    const char* module;
    profiler::StaticName phase;
    std::vector<Storage*> written;
    std::string made_by;
  };
  // An input of the graph. What the caller gives may lie in the arena, being a result of the last
  // run: then its buffer is a copy.
  struct Input {
    Tensor tensor;          // as the instructions see it
    int64_t offset, bytes;  // in its buffer
    int buffer;
    const char* writer = nullptr;  // the op that changes it, if one does
  };
  void run(Instruction& i);
  static void tell(Listener& listener, Instruction& i);
  static void count_writes(const Instruction& i);
  void run_list();
  void place(Input& input, const Tensor& given, bool gradient);
  bool in_arena(const Tensor& t) const;
  void check_inputs(const Tensors& inputs) const;
  const size_t launches_;
  const bool cuda_graph_;
  Branches branches_;
  MemoryPlan plan_;
  std::vector<profiler::MemoryUse> memory_;
  std::shared_ptr<Storage> arena_;
  std::vector<std::shared_ptr<Storage>> storages_;  // per buffer
  std::vector<std::shared_ptr<Storage>> copies_;    // per buffer: of inputs that lay in the arena
  std::vector<Input> inputs_;
  std::vector<Storage*> overwritten_;  // results and gradients
  Tensors tensors_;                    // per value
  std::deque<Instruction> instructions_;
  Tensors outputs_;
  std::unique_ptr<CudaReplay> replay_;
};

}  // namespace sinter::capture
