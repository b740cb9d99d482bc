// Graph files in use: read, bound to tensors by name, checked for what predict asks of them. Used
// by `mnist predict --graph` and by programs that run a saved graph: Executor(bind(load(file),
// find)).run(inputs).
#pragma once

#include <functional>

#include "capture/graph.h"

namespace sinter::capture {

// Throws data: the file cannot be read, or read_graph() refuses it.
Graph load(const std::string& file);

// The tensor of that name, or an undefined one.
using FindTensor = std::function<Tensor(const std::string& name)>;

// Gives every parameter of a graph that was read its memory: that of the tensor found, so that a
// graph with updates changes it. A graph that only reads a parameter gets a copy where the tensor
// lies otherwise than recorded. The graph moves to the tensors' device. Throws checkpoint: missing
// names and wrong shapes or types, all of them; state: memory that cannot be bound.
Graph bind(Graph graph, const FindTensor& find);

// Throws data unless the graph has one dense input f32[1, N] and one output f32[1, C] and changes
// nothing from outside.
void check_forward(const Graph& graph, const std::string& file);

}  // namespace sinter::capture
