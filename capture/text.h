// The text form of a graph, which is also the format of a saved graph. graph.h declares dump(),
// parse() and print_node().
//
//   sinter-graph 1
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
//   output "logits" %4                       all results, in the last line: a file without it was
//                                            cut
#pragma once

#include "capture/graph.h"

namespace sinter::capture {

inline constexpr int kGraphVersion = 1;
inline constexpr size_t kMaxGraphBytes = size_t{1} << 24, kMaxGraphValues = 1 << 15;

// The number of each value in dump(graph), or -1 if it is not there.
std::vector<int> file_numbers(const Graph& graph);
// A type as in the file: "f32[64, 784]".
std::string print_type(const Value& value);

}  // namespace sinter::capture
