// Programs of Python beside the tests: SINTER_PYTHON, where it names one, else python3.
#pragma once

#include <cstdlib>
#include <string>

namespace sinter::test {

inline std::string python() {
  const char* named = std::getenv("SINTER_PYTHON");
  return named && *named ? named : "python3";
}

// The exit status of tests/SCRIPT with one argument; 77, by the scripts' own rule, if there is no
// Python or it lacks their packages.
inline int run_python(const std::string& script, const std::string& argument) {
  const std::string command = python() + " " SINTER_SOURCE_DIR "/tests/" + script + " " + argument;
  const int status = WEXITSTATUS(std::system(command.c_str()));
  return status == 127 ? 77 : status;
}
inline constexpr const char* kNoTorch =
    "python has no torch with safetensors (SINTER_PYTHON names another)";

}  // namespace sinter::test
