// A fuzz target takes bytes from a stranger. It may throw Error, nothing else; fuzz_main.cpp holds
// it to that, to a second of processor time, and under a sanitizer to 64 MiB of memory beyond the
// size of the input. Under clang with SINTER_FUZZ libFuzzer drives it; otherwise its program
// replays the files and folders it is given.
#pragma once

#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <string_view>

namespace sinter::fuzz {

using Bytes = std::span<const uint8_t>;

// Defined by each target.
void one(Bytes bytes);

// Ends the program unless it is an Error of a kind for bad input, with a message that can be
// printed.
void check_error(const std::exception& error);
template <class F> void guarded(F&& f) {
  try {
    f();
  } catch (const std::exception& error) {
    check_error(error);
  }
}

inline std::string_view text_of(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// The bytes as a file for readers that take a path; in memory, one at a time.
std::string as_file(Bytes bytes);

}  // namespace sinter::fuzz
