// NVRTC without its library: programs "compile" to four bytes, are counted, and can be told to
// fail. One at a time.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "core/device/nvrtc.h"

namespace sinter::test {

class FakeNvrtc {
 public:
  FakeNvrtc() : table_{create, compile, destroy, log_size, log, code_size, code, code_size, code} {
    sources = {};
    answer = programs = 0;
    cuda::set_nvrtc(&table_);
  }
  ~FakeNvrtc() { cuda::set_nvrtc(nullptr); }
  FakeNvrtc(const FakeNvrtc&) = delete;
  FakeNvrtc& operator=(const FakeNvrtc&) = delete;

  static inline std::vector<std::string> sources;  // compiled, in order
  static inline int answer = 0, programs = 0;      // of nvrtcCompileProgram; alive

 private:
  static constexpr const char* kLog = "generated.cu(3): error: what is wrong\nmore\n";
  static int create(void** program, const char* source, const char*, int, const char* const*,
      const char* const*) {
    sources.emplace_back(source);
    *program = &programs;
    return ++programs, 0;
  }
  static int compile(void*, int, const char* const*) { return answer; }
  static int destroy(void**) { return --programs, 0; }
  static int log_size(void*, size_t* bytes) { return *bytes = std::strlen(kLog) + 1, 0; }
  static int log(void*, char* text) { return std::memcpy(text, kLog, std::strlen(kLog) + 1), 0; }
  static int code_size(void*, size_t* bytes) { return *bytes = 4, 0; }
  static int code(void*, char* bytes) { return std::memcpy(bytes, "CODE", 4), 0; }

  const cuda::Nvrtc table_;
};

}  // namespace sinter::test
