// Leaves of a recorded call, that is, tensors whose .grad a step may read and change: what each
// gradient was when the call began, and what the call did to it.
#pragma once

#include <string>

#include "capture/graph.h"
#include "capture/recording.h"

namespace sinter::capture {

// Parameter number `parameter`, input number `input`, or a tensor of the closure.
struct Leaf {
  enum class After : uint8_t { kept, cleared, set };
  int parameter = -1, input = -1;
  Tensor tensor;  // as it was recorded
  Tensor before;  // its .grad when the recorded call began
  // Ops use `before`: it is an input of the graph or, as a piece of larger memory, must stay where
  // it is.
  bool read = false;
  After after = After::kept;
  int value = -1, grad = -1;  // of the graph, if it is set
};

// One recorded call.
struct Recorded {
  Graph graph;
  std::vector<Leaf> leaves;
  std::vector<Bf16Copy> bf16_copies;
  RandomOpsOfStep::Draws draws;
  bool clears_tape = false;
};

std::string name_of(const Leaf& leaf);

// t.grad(), undefined if there is none. A gradient that a rule took (rules.h) has no memory.
Tensor gradient_of(const Tensor& t);
bool has_memory(const Tensor& gradient);
Tensor without_memory(const Tensor& t);
bool same_layout(const Tensor& a, const Tensor& b);

// The leaf of `recorded` that stands for the same tensor, or nullptr.
const Leaf* find_leaf(const Recorded& recorded, const Leaf& wanted);
// Is a gradient as it was when the recorded call began? A recording is of one such state.
bool same_before(const Leaf& leaf, const Tensor& now);
bool began_alike(const Recorded& a, const Recorded& b);
// "" if both recordings do the same to the gradients, else the first difference.
std::string gradient_difference(
    const std::vector<Leaf>& a, const Recorded& b, const Sides& sides = {});

// The memory of the closure that a graph writes; if it writes an input, all memory of the closure.
// No input may share it.
std::vector<const Storage*> written_memory(const Graph& graph);
// Throws state if input i does.
void check_shares_nothing(
    const std::vector<const Storage*>& written, const Tensors& inputs, size_t i);

}  // namespace sinter::capture
