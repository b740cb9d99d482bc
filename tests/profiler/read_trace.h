// Runs a real reader of traces, HolisticTraceAnalysis, beside the tests.
#pragma once

#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "tests/python.h"
#include "tests/test_util.h"

namespace sinter::test {

inline std::string no_hta() {
  return "no HolisticTraceAnalysis for " + python() + " (SINTER_PYTHON names another)";
}

// What read_trace.py prints of the traces, one of each rank, as JSON; empty where the package is
// not there.
inline std::optional<std::string> read_by_hta(
    const std::vector<std::string>& traces, const std::string& ending = ".json") {
  const TempDir folder;
  std::string command = python() + " " SINTER_SOURCE_DIR "/tests/profiler/read_trace.py";
  for (size_t rank = 0; rank < traces.size(); ++rank)
    command += " " + folder.write("trace" + std::to_string(rank) + ending, traces[rank]);
  command += " 2>" + folder.file("err");
  std::string out;
  FILE* pipe = popen(command.c_str(), "r");
  char buffer[4096];
  for (size_t n; pipe && (n = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;)
    out.append(buffer, n);
  const int status = pipe ? pclose(pipe) : -1;
  if (status != 0 && WEXITSTATUS(status) != 77) {
    out = "{\"failed\": 1}";
    std::fprintf(stderr, "%s\n", text_of(folder.file("err")).c_str());
  }
  if (status != 0 && (WEXITSTATUS(status) == 77 || WEXITSTATUS(status) == 127)) return std::nullopt;
  return out;
}

}  // namespace sinter::test
