// Saved graphs: what parses is a graph that holds its own rules, and its dump is the dump of what that parses to.
#include "capture/graph.h"

#include <cstdlib>

#include "tests/fuzz/fuzz.h"

namespace sinter::fuzz {

void one(Bytes bytes) {
  const capture::Graph graph = capture::parse(text_of(bytes), "F");
  graph.verify("parse");
  const std::string dumped = capture::dump(graph);
  try {
    if (capture::dump(capture::parse(dumped, "F")) != dumped) std::abort();
  } catch (...) {
    std::abort();
  }
  capture::dump_dot(graph);
}

}  // namespace sinter::fuzz
