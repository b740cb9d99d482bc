// A graph as people read it. graph.h declares dump() and print_node().
//
//   %0 = input "x" f32[1, 784]
//   %1 = param "0.weight" f32[256, 784]      memory from outside, bound by name
//   %2 = const 0.25 f32[4]                   one number for all elements
//   %3 = linear(%0, %1, -) f32[1, 256] role=fwd  # module 0
//                                            results with their types, then attributes; - is an
//                                            absent operand
//   %4 = view(%3) f32[1, 16] offset=64       elements of the memory that another value is in,
//                                            behind its first; strides=[..] if they are not dense
//   adam_update(%1, ..) beta1=0.9            works in place, no result
//   gradient %1 %9                           .grad() of a parameter after the step
//   output "logits" %4                       all results
#pragma once

#include "capture/graph.h"

namespace sinter::capture {

// Of a graph file (file.cpp).
inline constexpr size_t kMaxGraphBytes = size_t{1} << 24;
extern const char kGraphHint[];

// What dump() and a file have of a graph: the values in use, numbered as their lines come.
struct Listing {
  Graph graph;  // each root in a buffer of its own, behind nothing: Note [Roots of a graph file]
  std::vector<std::string> lines;
  std::vector<int> numbers;  // of each value of the listed graph; -1 if it is not there
};
Listing listing_of(const Graph& graph);

// The number of each value in dump(graph), or -1 if it is not there.
std::vector<int> file_numbers(const Graph& graph);
// A type as in a listing: "f32[64, 784]".
std::string print_type(const Value& value);

}  // namespace sinter::capture
