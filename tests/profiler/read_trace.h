// Runs a real reader of traces, HolisticTraceAnalysis, beside the tests.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "tests/python.h"

namespace sinter::test {

// What read_trace.py prints of the traces, one of each rank, as JSON; empty where the package is
// not there.
inline std::optional<std::string> read_by_hta(
    const std::vector<std::string>& traces, const std::string& ending = ".json") {
  std::string folder = std::filesystem::temp_directory_path() / "sinter-hta-XXXXXX";
  if (!mkdtemp(folder.data())) std::abort();
  std::string command = python() + " " SINTER_SOURCE_DIR "/tests/profiler/read_trace.py";
  for (size_t rank = 0; rank < traces.size(); ++rank) {
    const std::string file = folder + "/trace" + std::to_string(rank) + ending;
    std::ofstream(file, std::ios::binary) << traces[rank];
    command += " " + file;
  }
  command += " 2>" + folder + "/err";
  std::string out;
  FILE* pipe = popen(command.c_str(), "r");
  char buffer[4096];
  for (size_t n; pipe && (n = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;)
    out.append(buffer, n);
  const int status = pipe ? pclose(pipe) : -1;
  if (status != 0 && WEXITSTATUS(status) != 77) {
    std::string errors(
        (std::istreambuf_iterator<char>(std::ifstream(folder + "/err").rdbuf())), {});
    out = "{\"failed\": 1}";
    std::fprintf(stderr, "%s\n", errors.c_str());
  }
  std::filesystem::remove_all(folder);
  if (status != 0 && (WEXITSTATUS(status) == 77 || WEXITSTATUS(status) == 127)) return std::nullopt;
  return out;
}

}  // namespace sinter::test
