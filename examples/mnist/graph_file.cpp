#include "examples/mnist/graph_file.h"

#include <filesystem>

#include "core/atomic_file.h"

namespace sinter::mnist {

void write_graph(const std::string& path, const capture::Graph& graph) {
  write_file(path, path.ends_with(".dot") ? capture::dump_dot(graph) : capture::dump(graph));
}

std::string suffixed(const std::string& path, const std::string& suffix) {
  const std::filesystem::path p(path);
  return (p.parent_path() / (p.stem().string() + suffix + p.extension().string())).string();
}

}  // namespace sinter::mnist
