// Graph files of --dump-graph: text, or Graphviz where the name ends in .dot; written whole or not at all.
#pragma once

#include <string>

#include "capture/graph.h"

namespace sinter::mnist {

// Throws checkpoint where the file cannot be written.
void write_graph(const std::string& path, const capture::Graph& graph);
// "step.txt", "_eager" -> "step_eager.txt"
std::string suffixed(const std::string& path, const std::string& suffix);

}  // namespace sinter::mnist
